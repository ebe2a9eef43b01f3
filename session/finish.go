package session

// What finalize makes of a message and its parts: pure functions of payloads.

import (
	"cmp"
	"fmt"
	"strconv"

	"github.com/mooring-rpc/mooring/ledger"
)

// finishMessage is the message's payload once its turn has ended: with the time
// of its end (unless it has one and none is asked for), usage as "tokens", and
// the failure as "error".
func finishMessage(payload []byte, o *opFinalize, now int64) []byte {
	payload = trimmed(payload)
	end := cmp.Or(o.completed, uint64(now))
	if o.completed != 0 || at(payload, "time", "completed") == nil {
		payload = setIfObject(payload, strconv.AppendUint(nil, end, 10), "time", "completed")
	}
	if o.usage != nil {
		payload = set(payload, trimmed(o.usage), "tokens")
	}
	if o.failure != nil {
		payload = set(payload, trimmed(o.failure), "error")
	}
	return payload
}

// closePart is a part's payload once its turn has ended: a tool call still
// pending or running becomes an error, and what was streaming gets the time of
// its end. grew says that deltas were folded into it.
func closePart(payload []byte, grew bool, status string, now uint64) []byte {
	end := strconv.AppendUint(nil, now, 10)
	if grew && at(payload, "time", "start") != nil && at(payload, "time", "end") == nil {
		payload = setIfObject(trimmed(payload), end, "time", "end")
	}
	switch ledger.Unquote(at(payload, "state", "status")) {
	case "pending", "running":
		payload = set(trimmed(payload), encode("error"), "state", "status")
		payload = set(payload, encode(fmt.Sprintf("turn %s", status)), "state", "error")
		if at(payload, "state", "time", "start") != nil && at(payload, "state", "time", "end") == nil {
			payload = set(payload, end, "state", "time", "end")
		}
	}
	return payload
}
