// The first paint: a session's page as of now. It is read, rendered and written a piece at a
// time, so no session is ever held whole, and a slow reader holds one piece only.

package web

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/connlimit"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// painting is a document in progress.
type painting struct {
	req        *request
	capability *objects.Capability
	doc        *page.Doc
	out        *httpkit.PacedWriter
	body       io.WriteCloser // what is written to out
	buf        bytes.Buffer   // rendered, not yet written
}

// paint writes the page of a session.
func (q *request) paint() error {
	release, err := q.admitPaint()
	if err != nil {
		return err
	}
	defer release()
	h, desc, err := q.describe()
	if err != nil {
		return err
	}
	head := page.Head{ID: displayName(desc), Live: q.path + "/live", Cursor: desc.Row.Cursor, Hash: desc.Row.Head, Info: desc.Info, Base: q.base, Share: q.shareInfo(desc), All: q.r.URL.Query().Has(page.All),
		State: page.State{Revert: desc.Row.RevertedTo(desc.Grant), Compaction: desc.Row.CompactedTo(desc.Grant)}}
	if !q.isShare() {
		if err := q.addKin(h, desc, &head.State); err != nil {
			return err
		}
		head.May, head.Own = q.allowed(h, desc.Grant), h.Ref()
	}
	out := q.newPacedWriter()
	body := httpkit.Compressed(out, q.r) // a session's page has no secret: not even the public id, which its address has
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.w.WriteHeader(http.StatusOK)
	if q.r.Method == http.MethodHead {
		return nil
	}
	if q.site.acquireRender(q.r.Context()) != nil {
		return nil // the reader has gone
	}
	defer q.site.releaseRender()
	p := &painting{req: q, capability: h, out: out, body: body}
	p.doc = page.Start(&p.buf, head)
	if err := p.send(); err != nil {
		return nil // the reader has gone
	}
	if err := p.writeState(); err != nil {
		p.fail(err)
	}
	return nil
}

// admitPaint takes one of the places for pages in progress, or refuses the request.
func (q *request) admitPaint() (release func(), err error) {
	address := q.caller().Address()
	switch q.site.paintLimiter.Acquire(address) {
	case connlimit.Total:
		return nil, fault.Overloaded.With("too many pages are being loaded here now: try again in a moment")
	case connlimit.PerAddress:
		return nil, fault.Overloaded.With("too many pages are being loaded from this address now: try again in a moment")
	}
	return func() { q.site.paintLimiter.Release(address) }, nil
}

// describe returns the session shown, and its description before it is read.
func (q *request) describe() (*objects.Capability, *objects.Description, error) {
	h, err := q.resolve(q.caller())
	if err != nil {
		return nil, nil, err
	}
	desc, err := h.Describe(q.r.Context())
	if err != nil {
		return nil, nil, err
	}
	if desc.Row == nil {
		return nil, nil, fault.BadArgument.With("this is not a session's page")
	}
	return h, desc, nil
}

// shareInfo returns the facts of a public share; nil for another page.
func (q *request) shareInfo(desc *objects.Description) *page.Share {
	if !q.isShare() {
		return nil
	}
	s := &page.Share{Changed: desc.Row.Updated, Silence: time.Duration(desc.Now-desc.Row.Updated) * time.Millisecond, Lease: q.site.cfg.Lease}
	lacks, err := q.site.shares.LeftOut(q.r.Context(), desc.Row.ID)
	if err != nil {
		return s // LeftOut has logged the error
	}
	for _, l := range lacks {
		s.Lacks = append(s.Lacks, page.Lack{Key: l.Key, Why: l.Why})
	}
	return s
}

// displayName returns the name of a session: its external id, or its own.
func displayName(desc *objects.Description) string {
	if desc.Row.External != "" {
		return desc.Row.External
	}
	return desc.Row.ID
}

// writeState writes the whole state.
func (p *painting) writeState() error {
	err := p.writeMessages()
	if err == nil {
		err = p.writeRequests()
	}
	for _, keys := range [][2]string{{"", "message/"}, {"message0", "part/"}, {"part0", "request/"}, {"request0", "\x7f"}} { // all keys but those of messages and requests, in order
		if err == nil {
			err = p.writeRest(keys[0], keys[1])
		}
	}
	if err != nil {
		return err
	}
	return p.end()
}

// writeRequests writes what is open or claimed, a piece at a time. What has ended is in the log.
func (p *painting) writeRequests() error {
	for q := (session.RequestQuery{}); ; {
		page, err := p.capability.Requests(p.req.r.Context(), q)
		if err != nil {
			return err
		}
		p.doc.Requests(page.Requests)
		if err := p.send(); err != nil {
			return err
		}
		if q.After = page.Next; q.After == 0 {
			return nil
		}
	}
}

// end ends the document.
func (p *painting) end() error {
	if err := p.doc.End(); err != nil {
		return err
	}
	if err := p.send(); err != nil {
		return err
	}
	if p.body.Close() != nil || p.out.Flush() != nil {
		return errReaderGone
	}
	return nil
}

// writeMessages writes the messages with their parts, in the session's order: the first and the
// last, with empty elements for those between.
func (p *painting) writeMessages() error {
	all, err := p.req.outline(p.capability, [2]string{"message/", "message0"}, [2]string{"part/", "part0"})
	if err != nil {
		return err
	}
	s := showing{req: p.req, capability: p.capability, doc: p.doc, sent: p.send}
	return s.show(inOrder(all), lastBlocks)
}

// writeRest writes the entries of the keys from from on and below below, a piece at a time.
func (p *painting) writeRest(from, below string) error {
	q := session.KeyQuery{From: from, Below: below, Limit: entriesPerRead, Values: true, MaxBytes: p.req.site.cfg.PageBytes}
	for {
		page, err := p.capability.ListKeys(p.req.r.Context(), q)
		if err != nil {
			return err
		}
		p.doc.Rest(page.Entries)
		if err := p.send(); err != nil || !page.More {
			return err
		}
		q.After = page.Next
	}
}

// entriesPerRead bounds a piece of state in entries, where they are small.
const entriesPerRead = 512

// errReaderGone says that the reader has gone, or was too slow.
var errReaderGone = errors.New("the reader has gone")

// send writes the rendered bytes, and gives up the render slot meanwhile.
func (p *painting) send() error {
	p.req.site.releaseRender()
	_, err := p.body.Write(p.buf.Bytes())
	if err == nil {
		err = p.out.Flush()
	}
	p.req.site.renderSlots <- struct{}{} // the slot is held while reading and rendering
	if err != nil {
		return errReaderGone
	}
	if p.buf.Cap() > 4*p.req.site.cfg.PageBytes {
		p.buf = bytes.Buffer{} // do not keep a buffer grown by one large entry
	}
	p.buf.Reset()
	return nil
}

// pieceBytes is how many bytes of a document have one deadline; minReadRate is how many a second its
// reader must take overall, since a page in progress keeps its place among Config.Paints.
const (
	pieceBytes  = 32 << 10
	minReadRate = 16 << 10
)

// newPacedWriter returns the writer of a document, or of a stream, which sets its own deadlines.
func (q *request) newPacedWriter() *httpkit.PacedWriter {
	httpkit.LiftReadDeadline(q.w)
	return httpkit.NewPacedWriter(q.w, httpkit.Pace{PieceBytes: pieceBytes, PieceTime: q.site.cfg.WriteTimeout, MinRate: minReadRate})
}

// fail ends a document whose session cannot be read further, with the reason.
func (p *painting) fail(err error) {
	if errors.Is(err, errReaderGone) || p.req.r.Context().Err() != nil {
		return
	}
	p.doc.Over(p.req.toFault(err))
	_ = p.end() // the reader may have gone
}

// acquireRender waits for a render slot; releaseRender returns it.
func (s *Site) acquireRender(ctx context.Context) error {
	select {
	case s.renderSlots <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *Site) releaseRender() { <-s.renderSlots }
