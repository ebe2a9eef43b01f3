package session

// What finalize makes of a message and its parts: pure functions of payloads.

import (
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"
)

// finishMessage is the message's payload once its turn has ended: with the time
// of its end (unless it has one and none is asked for), usage as "tokens", and
// the failure as "error".
func finishMessage(payload []byte, o *opFinalize, now int64) []byte {
	payload = trimmed(payload)
	at := uint64(now)
	if o.completed != 0 {
		at = o.completed
	}
	if o.completed != 0 || !gjson.GetBytes(payload, "time.completed").Exists() {
		payload = setIfObject(payload, "time", "completed", strconv.AppendUint(nil, at, 10))
	}
	if o.usage != nil {
		payload = set(payload, "tokens", trimmed(o.usage))
	}
	if o.failure != nil {
		payload = set(payload, "error", trimmed(o.failure))
	}
	return payload
}

// closePart is a part's payload once its turn has ended: a tool call still
// pending or running becomes an error, and what was streaming gets the time of
// its end. grew says that deltas were folded into it.
func closePart(payload []byte, grew bool, status string, at uint64) []byte {
	end := strconv.AppendUint(nil, at, 10)
	if grew && gjson.GetBytes(payload, "time.start").Exists() && !gjson.GetBytes(payload, "time.end").Exists() {
		payload = setIfObject(trimmed(payload), "time", "end", end)
	}
	switch gjson.GetBytes(payload, "state.status").String() {
	case "pending", "running":
		payload = set(trimmed(payload), "state.status", encode("error"))
		payload = set(payload, "state.error", encode(fmt.Sprintf("turn %s", status)))
		if gjson.GetBytes(payload, "state.time.start").Exists() && !gjson.GetBytes(payload, "state.time.end").Exists() {
			payload = set(payload, "state.time.end", end)
		}
	}
	return payload
}
