package prompts

import (
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/session"
)

// pieces is a Sink that keeps the texts that it is given as they are flushed.
type pieces struct {
	pending string
	given   []string
}

func (p *pieces) Begin(string) {}
func (p *pieces) Put(_ session.Key, payload []byte, _ uint64) bool {
	p.pending += gjson.GetBytes(payload, "text").Str
	return false
}
func (p *pieces) Append(k session.Key, payload []byte, cursor uint64) bool {
	return p.Put(k, payload, cursor)
}
func (p *pieces) Remove(string, uint64) bool { return false }
func (p *pieces) Reset(string) bool          { return false }
func (p *pieces) Pending() int               { return len(p.pending) }
func (p *pieces) Flush() error {
	if p.pending != "" {
		p.given, p.pending = append(p.given, p.pending), ""
	}
	return nil
}

// What comes together, as to a reader who is behind, is given in a few pieces, what comes alone at once, and all of it before
// the prompt ends.
func TestWhatComesTogether(t *testing.T) {
	t.Parallel()
	f, sink, cursor := NewFollower(nil, "one", nil), &pieces{}, uint64(0)
	f.Messages, f.State = []string{"turn_one"}, session.RequestClaimed
	event := func() *session.Event {
		cursor++
		return &session.Event{Cursor: cursor, Method: session.MethodAppendText, Key: session.PartKey("turn_one", "p"), Payload: httpkit.JSON(map[string]string{"text": strings.Repeat("x", 100)})}
	}
	take := func(want error, events ...*session.Event) {
		t.Helper()
		if err := f.take(t.Context(), sink, events); err != want {
			t.Fatal(err)
		}
	}
	take(nil, event())
	take(nil, event())
	if len(sink.given) != 2 {
		t.Errorf("two events that come one by one are given in %d pieces", len(sink.given))
	}
	var together []*session.Event
	for range 100 {
		together = append(together, event())
	}
	take(nil, together...)
	if n := len(sink.given) - 2; n > 3 {
		t.Errorf("what comes together is given in %d pieces", n)
	}
	for _, piece := range sink.given {
		if len(piece) > gatherBytes+100 {
			t.Errorf("a piece has %d bytes", len(piece))
		}
	}
	take(ErrEnded, event(), &session.Event{Cursor: cursor + 1, Method: session.MethodPut, Key: session.RequestStateKey("one"), Payload: []byte(`{"state":"answered"}`)})
	if all := strings.Join(sink.given, ""); len(all) != int(cursor)*100 {
		t.Errorf("%d bytes of %d are given", len(all), cursor*100)
	}
}
