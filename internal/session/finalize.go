package session

// The effect of finalize on a message and its parts: pure functions of payloads.

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/mooring-rpc/mooring/ledger"
)

// finalizeMessage returns the message's payload at the end of its turn: with the time of its end
// (unless it has one and none is given), usage as "tokens", and the failure as "error".
func finalizeMessage(payload []byte, o *opFinalize, now int64) []byte {
	payload = trimSpace(payload)
	end := cmp.Or(o.completed, uint64(now))
	if o.completed != 0 || jsonAt(payload, "time", "completed") == nil {
		payload = jsonSetIfObject(payload, strconv.AppendUint(nil, end, 10), "time", "completed")
	}
	if o.usage != nil {
		payload = jsonSet(payload, trimSpace(o.usage), "tokens")
	}
	if o.failure != nil {
		payload = jsonSet(payload, trimSpace(o.failure), "error")
	}
	return payload
}

// closePart returns a part's payload at the end of its turn: a tool call still pending or running
// becomes an error, and a streaming part gets the time of its end. grew means that deltas were
// folded into it.
func closePart(payload []byte, grew bool, status string, now uint64) []byte {
	end := strconv.AppendUint(nil, now, 10)
	if grew && jsonAt(payload, "time", "start") != nil && jsonAt(payload, "time", "end") == nil {
		payload = jsonSetIfObject(trimSpace(payload), end, "time", "end")
	}
	switch ledger.Unquote(jsonAt(payload, "state", "status")) {
	case "pending", "running":
		payload = jsonSet(trimSpace(payload), encode("error"), "state", "status")
		payload = jsonSet(payload, encode(fmt.Sprintf("turn %s", status)), "state", "error")
		if jsonAt(payload, "state", "time", "start") != nil && jsonAt(payload, "state", "time", "end") == nil {
			payload = jsonSet(payload, end, "state", "time", "end")
		}
	}
	return payload
}
