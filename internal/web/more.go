// What the first paint of a session's page has left out, requested when it comes near the window.

package web

import (
	"bytes"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// maxMore bounds the messages that are asked for at once.
const maxMore = 50

// piece is what is asked for: messages with their parts, or of one message those parts whose
// positions are from from to to.
type piece struct {
	messages []string
	parts    bool
	from, to session.Ord
}

// serveMore writes the HTML of ?message=ID…, or of ?message=ID&from=ORD&to=ORD: from the beginning
// as many as fit into a piece. What is not there any more is left out.
func (q *request) serveMore() error {
	asked, refused := parsePiece(q.r.URL.Query())
	if refused != nil {
		return refused
	}
	release, err := q.admitPaint()
	if err != nil {
		return err
	}
	defer release()
	h, err := q.resolve(q.caller())
	if err != nil {
		return err
	}
	if err := q.site.acquireRender(q.r.Context()); err != nil {
		return nil // the reader has gone
	}
	body, err := q.renderMore(h, asked)
	q.site.releaseRender()
	if err != nil {
		return err
	}
	q.writeBlocks(body)
	return nil
}

func parsePiece(params url.Values) (p *piece, refused *fault.Error) {
	p = &piece{messages: params["message"], parts: params.Has("from") || params.Has("to")}
	if n := len(p.messages); n == 0 || n > maxMore || p.parts && n > 1 {
		return nil, fault.BadArgument.With("ask for 1 to %d messages: ?message=ID, or for parts of one: ?message=ID&from=POSITION&to=POSITION", maxMore)
	}
	for _, id := range p.messages {
		if _, refused := session.ParseKey(session.MessageKey(id)); refused != nil {
			return nil, refused
		}
	}
	if p.parts {
		var ok, also bool
		p.from, ok = parseOrd(params.Get("from"))
		p.to, also = parseOrd(params.Get("to"))
		if !ok || !also {
			return nil, fault.BadArgument.With("a position is two numbers: 12.0")
		}
	}
	return p, nil
}

// parseOrd parses a position as a page has it.
func parseOrd(text string) (ord session.Ord, ok bool) {
	at, index, _ := strings.Cut(text, ".")
	var err, also error
	ord.At, err = strconv.ParseUint(at, 10, 64)
	ord.Index, also = strconv.ParseUint(index, 10, 64)
	return ord, err == nil && also == nil
}

// renderMore returns the HTML of a piece.
func (q *request) renderMore(h *objects.Capability, asked *piece) ([]byte, error) {
	var b bytes.Buffer
	within := ""
	if asked.parts {
		within = asked.messages[0]
	}
	s := showing{req: q, capability: h, doc: page.More(&b, within), sent: func() error { return nil }}
	for _, id := range asked.messages {
		prefix := session.PartKey(id, "")
		all, err := q.outline(h, [2]string{prefix, strings.TrimSuffix(prefix, "/") + "0"}) // 0 follows /
		if err != nil {
			return nil, err
		}
		if asked.parts {
			all = slices.DeleteFunc(all, func(e *session.Entry) bool { return e.Ord.Compare(asked.from) < 0 || e.Ord.Compare(asked.to) > 0 })
		} else {
			all = append(all, &session.Entry{Key: session.MessageKey(id)})
		}
		if err := s.show(inOrder(all), 0); err != nil {
			return nil, err
		}
		if s.doc.Full() {
			break
		}
	}
	if err := s.doc.EndMore(); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}
