// Snapshots: the folded state, streamed and never held whole.

package httpapi

import (
	"fmt"
	"io"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
)

// entryJSON is a key of the state. Its payload is a separate member.
type entryJSON struct {
	Key    string `json:"key"`
	Cursor uint64 `json:"cursor"`
	Schema uint32 `json:"schema_version"`

	// Ord is its position in the session's order: by the first number, then by the second, then
	// by key.
	Ord [2]uint64 `json:"ord"`

	Claim *claimJSON `json:"claim,omitempty"` // who works on it
}

type claimJSON struct {
	Cursor uint64 `json:"cursor"`
	Until  int64  `json:"until"` // Unix ms
	Outbox string `json:"outbox"`
	Worker string `json:"worker,omitempty"`
	Ref    string `json:"ref"`
	Actor  string `json:"actor"`
}

// newEntryJSON returns an entry with the cursor of its last change.
func newEntryJSON(e *session.Entry, cursor uint64) entryJSON {
	shown := entryJSON{Key: e.Key, Cursor: cursor, Schema: e.Schema, Ord: [2]uint64{e.Ord.At, e.Ord.Index}}
	if c := e.Claim; c != nil {
		shown.Claim = &claimJSON{c.Cursor, c.Until, session.OutboxOf(c.Outbox), c.Worker, c.Ref, c.Actor}
	}
	return shown
}

type turnJSON struct {
	Message string `json:"message"`
	Status  string `json:"status"`
	Begun   uint64 `json:"begun"`
	Ended   uint64 `json:"ended,omitempty"`
	Outbox  string `json:"outbox"`
	Ref     string `json:"ref,omitempty"` // the ref it was begun under
}

// serveSnapshot serves GET /sessions/{id}/snapshot. Its time is bounded by the rate at which it
// is read.
func serveSnapshot(q *Request) *fault.Error {
	params := q.params("at", "hash", "keys", "compacted")
	at, keys, compacted := params.position("at"), params.keys(), params.bool("compacted")
	if params.refused != nil {
		return params.refused
	}
	live, refused := q.Session(q.ClientCtx)
	if refused == nil {
		refused = q.BeginStream()
	}
	if refused != nil {
		return refused
	}
	s := &snapshotWriter{q: q}
	of, err := live.Snapshot(q.ClientCtx, at, keys, compacted, s.writePiece)
	if err == nil {
		err = s.end(of)
	}
	if err != nil {
		return q.ToFault(err)
	}
	return nil
}

// snapshotWriter writes {"cursor":N,"hash":"…","turns":[…],"entries":[…]}, in the compacted view with
// "compacted":{…},"left_out":[…] before the turns. All turns come before the first entry.
type snapshotWriter struct {
	q       *Request
	body    io.WriteCloser // once it is started
	started bool
	lists   []string // that follow, by name; the first is begun
	any     bool     // it has an element
}

func (s *snapshotWriter) begin(of fanout.Position, c *session.Compaction) error {
	if s.started {
		return nil
	}
	s.started, s.lists = true, []string{"turns", "entries"}
	s.body = httpkit.Compressed(s.q.W, s.q.Request)
	s.q.W.Header().Set("Content-Type", "application/json")
	s.q.W.WriteHeader(http.StatusOK)
	b := fmt.Appendf(nil, `{"cursor":%d,"hash":%q`, of.Cursor, hashJSON(of.Hash))
	if shown := newCompactedJSON(c); shown != nil {
		b = fmt.Appendf(b, `,"compacted":%s`, httpkit.JSON(shown))
		s.lists = []string{"left_out", "turns", "entries"}
	}
	_, err := s.body.Write(fmt.Appendf(b, `,%q:[`, s.lists[0]))
	return err
}

// element appends an element of a list, which is the last's or a later one.
func (s *snapshotWriter) element(b []byte, list string, element []byte) []byte {
	b = s.list(b, list)
	if s.any {
		b = append(b, ',')
	}
	s.any = true
	return append(b, element...)
}

// list appends what is before a list's first element, if it is not begun yet.
func (s *snapshotWriter) list(b []byte, name string) []byte {
	for s.lists[0] != name {
		s.lists, s.any = s.lists[1:], false
		b = fmt.Appendf(b, `],%q:[`, s.lists[0])
	}
	return b
}

func (s *snapshotWriter) writePiece(p *session.StateChunk) error {
	if err := s.begin(fanout.Position{Cursor: p.Row.Cursor, Hash: p.Hash}, &p.Compacted); err != nil {
		return err
	}
	var b []byte
	for _, message := range p.LeftOut {
		b = s.element(b, "left_out", httpkit.JSON(message))
	}
	for _, t := range p.Turns {
		b = s.element(b, "turns", httpkit.JSON(turnJSON{Message: t.Message, Status: t.Status.String(), Begun: t.Begun, Ended: t.Ended, Outbox: session.OutboxOf(t.Outbox), Ref: t.Ref}))
	}
	for _, e := range p.Entries {
		b = s.element(b, "entries", addMember(httpkit.JSON(newEntryJSON(e, e.Cursor)), "payload", e.Payload))
	}
	if len(b) == 0 {
		return nil
	}
	_, err := s.body.Write(b)
	return err
}

func (s *snapshotWriter) end(of fanout.Position) error {
	if err := s.begin(of, &session.Compaction{}); err != nil {
		return err
	}
	if _, err := s.body.Write(append(s.list(nil, "entries"), `]}`...)); err != nil {
		return err
	}
	return s.body.Close()
}
