// Compactions: of which messages opencode has a summary, which it sends to the model in their place.
//
// opencode asks for a summary by a user's message that has a part of type compaction, and the answer is an assistant's
// message with summary: true. Once that has ended without an error, the model is sent the two, what comes after them, and
// what came before from the part's tail_start_id on, if it has one: the last turns before the compaction.

package opencode

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/session"
)

// Compaction is up to which message of a session a summary stands for it, by keys of messages. The zero value is none.
type Compaction struct {
	Upto    string `json:"upto"`
	Summary string `json:"summary"`
}

// message is what is looked at of a message.
type message struct {
	id    string
	place session.KeyPosition

	Role    string          `json:"role"`
	Parent  string          `json:"parentID"`
	Finish  string          `json:"finish"`
	Summary json.RawMessage `json:"summary"` // true or, of a user's message, an object
	Error   json.RawMessage `json:"error"`
}

// isSummary reports whether a message is a summary that has ended well.
func (m *message) isSummary() bool {
	return m.Role == "assistant" && string(m.Summary) == "true" && m.Finish != "" && (m.Error == nil || string(m.Error) == "null")
}

// lastCompaction returns the compaction that opencode goes by after batches, which were put into a session of an order.
func lastCompaction(order session.Order, batches []Batch) Compaction {
	byID, tails := map[string]*message{}, map[string]string{} // tails: of messages with a part that compacts
	for i, b := range batches {
		for j, p := range b.Puts {
			kind, rest, _ := strings.Cut(p.Key, "/")
			switch id, _, _ := strings.Cut(rest, "/"); kind {
			case "message":
				ord := order.NewOrd(&session.Event{At: b.At, Cursor: uint64(i)}, j, p.Key, p.Payload)
				byID[id] = newMessage(id, byID[id], ord, &p)
			case "part":
				if kind, _ := text(p.Payload, "type"); kind == "compaction" {
					tails[id], _ = text(p.Payload, "tail_start_id")
				}
			}
		}
	}
	if len(tails) == 0 {
		return Compaction{}
	}
	all := slices.SortedFunc(maps.Values(byID), func(a, b *message) int { return a.place.Compare(session.ByPut, b.place) })
	summaries := map[string]*message{} // by the id of what they answer
	for i, m := range slices.Backward(all) {
		if m.isSummary() && summaries[m.Parent] == nil {
			summaries[m.Parent] = m
		}
		tail, compacts := tails[m.id]
		if !compacts || m.Role != "user" || summaries[m.id] == nil {
			continue
		}
		first := i // that is still sent
		if at := slices.IndexFunc(all[:i], func(t *message) bool { return t.id == tail }); at >= 0 {
			first = at
		}
		if first == 0 {
			return Compaction{}
		}
		return Compaction{session.MessageKey(all[first-1].id), session.MessageKey(summaries[m.id].id)}
	}
	return Compaction{}
}

// newMessage returns what is put of a message at a place, which was put as before before; nil is never.
func newMessage(id string, before *message, ord session.Ord, p *Put) *message {
	m := &message{}
	if json.Unmarshal(p.Payload, m) != nil { // it is none of opencode's
		m = &message{}
	}
	m.id, m.place = id, session.KeyPosition{Ord: ord, Key: p.Key}
	if before != nil {
		m.place = before.place
	}
	return m
}
