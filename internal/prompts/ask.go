// Asking for a prompt and for the end of its turn.

package prompts

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/oklog/ulid/v2"
)

// Sum returns a hash of texts, in hexadecimal: ids of requests are made of it, so that what is asked again has the same.
func Sum(domain string, of ...string) string {
	text := domain
	for _, s := range of {
		text += "\x00" + s
	}
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:16])
}

// Ask asks a prompt. The same again changes nothing; known says that it was asked before.
func Ask(q *httpapi.Request, live *objects.Capability, id string, payload []byte) (known bool, refused *fault.Error) {
	before, _, err := live.GetKeys(q.Context(), []string{session.RequestKey(id)})
	if err != nil { // before it is asked by a ref that reads no answer
		return false, q.ToFault(err)
	}
	_, refused = q.ApplyAlone(live, session.MethodAsk, id, []ledger.Arg{
		{Name: "kind", JSON: httpkit.JSON(session.KindPrompt)},
		{Name: "payload", JSON: payload},
	})
	if refused != nil && refused.Code == fault.AlreadyExists {
		return true, fault.AlreadyExists.With("the message with this id was sent before, with another text: what an agent was given cannot be changed, so send it as a new message").Pos(refused.At)
	}
	return len(before.Entries) > 0, refused
}

// Stop asks for the end of the turn that answers a prompt, by a request with the id that idOf returns for the turn's message.
// Where another ref has asked something under that id, which it can make up, the request has an id of its own.
func (f *Follower) Stop(q *httpapi.Request, idOf func(message string) string) (message, stop string, refused *fault.Error) {
	if len(f.Messages) == 0 {
		return "", "", fault.Unavailable.With("the agent has the prompt and has not begun to answer it: stop it in a moment")
	}
	message = f.Messages[len(f.Messages)-1]
	args := []ledger.Arg{{Name: "kind", JSON: httpkit.JSON(session.KindStop)}, {Name: "message", JSON: httpkit.JSON(message)}}
	stop = idOf(message)
	_, refused = q.ApplyAlone(f.live, session.MethodAsk, stop, args)
	if refused != nil && refused.Code == fault.AlreadyExists {
		stop += "_" + ulid.Make().String()
		_, refused = q.ApplyAlone(f.live, session.MethodAsk, stop, args)
	}
	return message, stop, refused
}
