// A share's content, streamed: nothing here holds a whole session.

package share

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Bounds of a page of state, which is one read: bytes and keys, or one larger value.
const (
	pageBytes = 256 << 10
	pageKeys  = 1000
)

// entryKinds are the ranges of keys, in the order of the replies: messages before parts, so that
// a part follows its message.
var entryKinds = []struct{ name, after, below string }{
	{"session", "sessio", "session!"},
	{"diff", "session_dif", "session_diff!"},
	{"model", "model/", "model0"},
	{"message", "message/", "message0"},
	{"part", "part/", "part0"},
}

// walk calls page with a share's entries of a kind, a page at a time, messages and parts in the
// session's order. Each page is as of its read.
func (s *Service) walk(ctx context.Context, h *objects.Capability, kind int, page func([]*session.Entry) error) error {
	if name := entryKinds[kind].name; name == "message" || name == "part" {
		return s.walkInOrder(ctx, h, kind, page)
	}
	for after, below := entryKinds[kind].after, entryKinds[kind].below; ; {
		got, next, err := h.Range(ctx, after, below, pageBytes, pageKeys)
		if err != nil {
			return err
		}
		if err := page(got.Entries); err != nil || next == "" {
			return err
		}
		after = next
	}
}

// walkInOrder sorts keys without their values, at most Config.MaxOrdered at once. If there are
// more, it makes several passes over all of them, each returning the next ones.
func (s *Service) walkInOrder(ctx context.Context, h *objects.Capability, kind int, page func([]*session.Entry) error) error {
	for last := (orderedKey{}); ; {
		batch, more, err := s.nextOrdered(ctx, h, kind, last)
		if err != nil {
			return err
		}
		keys := make([]string, len(batch))
		for i, p := range batch {
			keys[i], last = p.key, p
		}
		for len(keys) > 0 {
			got, next, err := h.Values(ctx, keys[:min(len(keys), pageKeys)], pageBytes)
			if err != nil {
				return err
			}
			if err := page(got.Entries); err != nil {
				return err
			}
			keys = keys[next:]
		}
		if !more {
			return nil
		}
	}
}

// orderedKey is a key and its position in the session's order.
type orderedKey struct {
	ord session.Ord
	key string
}

func (p orderedKey) compare(q orderedKey) int {
	return cmp.Or(p.ord.Compare(q.ord), strings.Compare(p.key, q.key))
}

// nextOrdered returns a kind's first keys after last, in order; more reports whether others
// follow.
func (s *Service) nextOrdered(ctx context.Context, h *objects.Capability, kind int, last orderedKey) (first []orderedKey, more bool, err error) {
	limit := s.cfg.MaxOrdered
	keep := func() {
		slices.SortFunc(first, orderedKey.compare)
		if len(first) > limit {
			first, more = first[:limit], true
		}
	}
	err = h.Outline(ctx, entryKinds[kind].after, entryKinds[kind].below, limit, func(entries []*session.Entry) error {
		for _, e := range entries {
			if p := (orderedKey{e.Ord, e.Key}); p.compare(last) > 0 {
				first = append(first, p)
			}
		}
		if len(first) > 2*limit {
			keep()
		}
		return nil
	})
	keep()
	return first, more, err
}

// stream is a reply that is written while it is read.
type stream struct {
	*httpkit.PacedWriter
	open *http.Request  // the request, of a reply without the share's id, which may be compressed; else nil
	body io.WriteCloser // of such a reply, once it has begun
	buf  []byte
}

// newStream begins a reply that may take as long as the client takes each page of it within the
// stall timeout.
func (s *Service) newStream(w http.ResponseWriter) *stream {
	httpkit.LiftReadDeadline(w)
	return &stream{PacedWriter: httpkit.NewPacedWriter(w, httpkit.Pace{PieceBytes: pageBytes, PieceTime: s.cfg.StallTimeout})}
}

// flush sends the buffered bytes. The error says that the client has gone.
func (t *stream) flush() error {
	if len(t.buf) == 0 {
		return nil
	}
	if t.body == nil && t.open != nil {
		t.body = httpkit.Compressed(t, t.open)
	}
	to := io.Writer(t.PacedWriter)
	if t.body != nil {
		to = t.body
	}
	_, err := to.Write(t.buf)
	t.buf = t.buf[:0]
	return err
}

// end sends the buffered bytes, and the reply's end.
func (t *stream) end() error {
	if err := t.flush(); err != nil || t.body == nil {
		return err
	}
	return t.body.Close()
}

// list writes values separated by commas.
func (t *stream) list(values [][]byte, first bool) bool {
	for _, v := range values {
		if !first {
			t.buf = append(t.buf, ',')
		}
		t.buf = append(t.buf, v...)
		first = false
	}
	return first
}

// serveRead serves a read of a share. An error before the first byte is answered; after it the
// connection is cut, so that a partial reply cannot be taken for a whole one.
func (s *Service) serveRead(w http.ResponseWriter, v *visitor, id string, give func(*stream, *objects.Capability) error) {
	t := s.newStream(w)
	err := func() error {
		leave, err := s.slots.acquire(v.Context(), v.caller.Address())
		if err != nil {
			return err
		}
		defer leave()
		live, err := s.Public(v.Context(), v.caller, id)
		if err != nil {
			return err
		}
		w.Header().Set("Content-Type", "application/json")
		if err := give(t, live); err != nil {
			return err
		}
		return t.end()
	}()
	switch {
	case err == nil:
	case t.Started():
		panic(http.ErrAbortHandler)
	default:
		s.refuse(w, v, err, opencode.ForReader)
	}
}

// serveData serves the flat array of {type, data} that opencode imports.
func (s *Service) serveData(w http.ResponseWriter, v *visitor, id string) {
	s.serveRead(w, v, id, func(t *stream, h *objects.Capability) error {
		t.open = v.Request
		sep := byte('[')
		for kind := range entryKinds {
			err := s.walk(v.Context(), h, kind, func(page []*session.Entry) error {
				for _, e := range page {
					t.buf = append(t.buf, sep)
					t.buf = opencode.AppendItem(t.buf, e.Key, e.Payload)
					sep = ','
				}
				return t.flush()
			})
			if err != nil {
				return err
			}
		}
		if sep == '[' {
			t.buf = append(t.buf, sep)
		}
		t.buf = append(t.buf, ']')
		return nil
	})
}

// serveShare serves {session, messages, parts, diffs, models, metadata}.
func (s *Service) serveShare(w http.ResponseWriter, v *visitor, id string) {
	s.serveRead(w, v, id, func(t *stream, h *objects.Capability) error {
		about, err := s.metadata(v, h, id)
		if err != nil {
			return err
		}
		t.buf = append(t.buf, `{"session":`...)
		for _, field := range []struct {
			kind            int
			open, none, end string
		}{
			{0, "", "null", ""}, {3, `,"messages":[`, "", "]"}, {4, `,"parts":[`, "", "]"}, {1, `,"diffs":`, "[]", ""}, {2, `,"models":[`, "", "]"},
		} {
			t.buf = append(t.buf, field.open...)
			first := true
			err := s.walk(v.Context(), h, field.kind, func(page []*session.Entry) error {
				values := make([][]byte, len(page))
				for i, e := range page {
					if values[i] = e.Payload; entryKinds[field.kind].name == "diff" {
						values[i] = opencode.Diff(e.Payload)
					}
				}
				first = t.list(values, first)
				return t.flush()
			})
			if err != nil {
				return err
			}
			if first {
				t.buf = append(t.buf, field.none...)
			}
			t.buf = append(t.buf, field.end...)
		}
		t.buf = append(append(append(t.buf, `,"metadata":`...), about...), '}')
		return nil
	})
}

// metadata describes a share in lists.
type metadata struct {
	ID        string `json:"id"`
	SessionID string `json:"sessionID"` // opencode's
	Title     string `json:"title"`
	URL       string `json:"url"`
	Created   int64  `json:"created"` // Unix ms, of the session here
	Updated   int64  `json:"updated"` // Unix ms
	Cursor    uint64 `json:"cursor"`
}

// titleBytes is how many bytes of a title a list shows.
const titleBytes = 256

func newMetadata(id, url string, row *session.Row, title string) metadata {
	if len(title) > titleBytes {
		title = strings.ToValidUTF8(title[:titleBytes], "")
	}
	return metadata{ID: id, SessionID: row.External, Title: title, URL: url, Created: row.Created, Updated: row.Updated, Cursor: row.Cursor}
}

// metadata returns a share's metadata as JSON.
func (s *Service) metadata(v *visitor, h *objects.Capability, id string) ([]byte, error) {
	d, err := h.Describe(v.Context())
	if err != nil {
		return nil, err
	}
	at, err := s.shareURL(v, id)
	if err != nil {
		return nil, err
	}
	return json.Marshal(newMetadata(id, at, d.Row, d.Title()))
}

func (s *Service) serveMetadata(w http.ResponseWriter, v *visitor, id string) {
	s.serveRead(w, v, id, func(t *stream, h *objects.Capability) (err error) {
		t.buf, err = s.metadata(v, h, id)
		return err
	})
}

// listPage is how many shares are read at once for a list.
const listPage = 200

// serveSessions lists all living shares, for callers with the share key.
func (s *Service) serveSessions(w http.ResponseWriter, v *visitor, _ string) {
	t := s.newStream(w)
	if err := s.sessions(t, v); err != nil {
		if t.Started() {
			panic(http.ErrAbortHandler)
		}
		s.refuse(w, v, err, opencode.ForCreator)
	}
}

func (s *Service) sessions(t *stream, v *visitor) error {
	leave, err := s.slots.acquire(v.Context(), v.caller.Address())
	if err != nil {
		return err
	}
	defer leave()
	if !s.hasKey(v) {
		if len(v.Header.Values(shareKeyHeader)) > 0 {
			return s.throttled(v.caller, fault.UnknownRef.With("the share key is wrong, or this server has none"))
		}
		return fault.MissingRight.With("the list of shares needs the share key")
	}
	t.buf = append(t.buf, '[')
	first := true
	for after := ""; ; {
		list, next, err := s.cfg.Store.ListShares(v.Context(), after, listPage)
		if err != nil {
			return s.toFault(v.Context(), err, "list the shares")
		}
		var values [][]byte
		for _, l := range list {
			at, err := s.shareURL(v, l.Share.ID)
			if err != nil {
				return err
			}
			one, err := json.Marshal(newMetadata(l.Share.ID, at, &l.Row, l.Title))
			if err != nil {
				return s.toFault(v.Context(), errors.Join(err), "list the shares")
			}
			values = append(values, one)
		}
		t.Header().Set("Content-Type", "application/json")
		first = t.list(values, first)
		if next == "" {
			t.buf = append(t.buf, ']')
			return t.flush()
		}
		if err := t.flush(); err != nil {
			return err
		}
		after = next
	}
}
