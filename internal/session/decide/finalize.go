package decide

// The effect of finalize on a message and its parts: pure functions of payloads.

import (
	"bytes"
	"cmp"
	"fmt"
	"strconv"

	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/ledger"
)

// finalizeMessage returns the message's payload at the end of its turn: with the time of its end
// (unless it has one and none is given), usage as "tokens", and the failure as "error".
func finalizeMessage(payload []byte, o *opFinalize, now int64) []byte {
	payload = bytes.TrimSpace(payload)
	end := cmp.Or(o.completed, uint64(now))
	if o.completed != 0 || rawjson.At(payload, "time", "completed") == nil {
		payload = rawjson.SetIfObject(payload, strconv.AppendUint(nil, end, 10), "time", "completed")
	}
	if o.usage != nil {
		payload = rawjson.Set(payload, bytes.TrimSpace(o.usage), "tokens")
	}
	if o.failure != nil {
		payload = rawjson.Set(payload, bytes.TrimSpace(o.failure), "error")
	}
	return payload
}

// closePart returns a part's payload at the end of its turn: a tool call still pending or running
// becomes an error, and a streaming part gets the time of its end. grew means that deltas were
// folded into it.
func closePart(payload []byte, grew bool, status string, now uint64) []byte {
	end := strconv.AppendUint(nil, now, 10)
	if grew && rawjson.At(payload, "time", "start") != nil && rawjson.At(payload, "time", "end") == nil {
		payload = rawjson.SetIfObject(bytes.TrimSpace(payload), end, "time", "end")
	}
	switch ledger.Unquote(rawjson.At(payload, "state", "status")) {
	case "pending", "running":
		payload = rawjson.Set(bytes.TrimSpace(payload), rawjson.Encode("error"), "state", "status")
		payload = rawjson.Set(payload, rawjson.Encode(fmt.Sprintf("turn %s", status)), "state", "error")
		if rawjson.At(payload, "state", "time", "start") != nil && rawjson.At(payload, "state", "time", "end") == nil {
			payload = rawjson.Set(payload, end, "state", "time", "end")
		}
	}
	return payload
}
