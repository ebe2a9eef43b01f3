// One block of a session's page, for a script that lost track of it.

package web

import (
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// serveBlock writes the HTML of the block ?key=KEY.
func (q *request) serveBlock() error {
	key := q.r.URL.Query().Get("key")
	parsed, refused := session.ParseKey(key)
	if refused != nil {
		return refused
	}
	h, err := q.resolve(q.caller())
	if err != nil {
		return err
	}
	if err := q.site.acquireRender(q.r.Context()); err != nil {
		return nil // the reader has gone
	}
	body, err := q.renderBlock(h, key, parsed.Kind)
	q.site.releaseRender()
	if err != nil {
		return err
	}
	q.writeBlocks(body)
	return nil
}

// writeBlocks writes blocks of a session's page.
func (q *request) writeBlocks(body []byte) {
	out := q.newPacedWriter()
	to := httpkit.Compressed(out, q.r) // blocks have nothing secret
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.w.WriteHeader(http.StatusOK)
	if q.r.Method == http.MethodHead {
		return
	}
	if _, err := to.Write(body); err == nil { // else the reader has gone
		_ = to.Close()
	}
}

// renderBlock returns the HTML of a key's block.
func (q *request) renderBlock(h *objects.Capability, key string, kind session.KeyKind) ([]byte, error) {
	if kind == session.KeyRequest {
		return q.renderRequest(h, key)
	}
	if (session.Key{Kind: kind}).Own() {
		read, _, err := h.GetKeys(q.r.Context(), []string{key})
		if err != nil {
			return nil, err
		}
		if len(read.Entries) > 0 {
			return page.Block(read.Entries[0].Entry, read.Entries[0].Change, nil), nil
		}
		return nil, errNoBlock
	}
	// The only key between these two is key: no character of a key is below 0x02.
	read, _, err := h.Range(q.r.Context(), keyBefore(key), key+"\x01", q.site.cfg.PageBytes, 1)
	if err != nil {
		return nil, err
	}
	if len(read.Entries) == 0 || read.Entries[0].Key != key {
		return nil, errNoBlock
	}
	var turn *session.Turn
	if len(read.Turns) > 0 && kind == session.KeyMessage {
		turn = read.Turns[0]
	}
	return page.Block(read.Entries[0], session.Change{}, turn), nil
}

// renderRequest returns the HTML of a request's card.
func (q *request) renderRequest(h *objects.Capability, key string) ([]byte, error) {
	id, _, _ := session.RequestOf(key)
	read, _, err := h.GetKeys(q.r.Context(), []string{session.RequestKey(id), session.RequestStateKey(id)})
	switch {
	case err != nil:
		return nil, err
	case len(read.Entries) == 0 || read.Entries[0].Key != session.RequestKey(id):
		return nil, errNoBlock
	case len(read.Entries) == 1:
		return page.Request(read.Entries[0].Entry, nil), nil
	}
	return page.Request(read.Entries[0].Entry, read.Entries[1].Entry), nil
}

var errNoBlock = fault.NotFound.With("there is no such block now")

// keyBefore returns a text that sorts before a key and after every smaller key.
func keyBefore(key string) string {
	last := len(key) - 1
	return key[:last] + string(rune(key[last]-1)) + "\x7f"
}
