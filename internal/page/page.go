package page

// A session's page as it is written: start, messages and parts, rest, end.

import (
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page/internal/fields"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Head is the content of a session page's head.
type Head struct {
	Title  string         // of the session; "" takes that of Info
	ID     string         // its name on the page: opencode's id, or its own
	Live   string         // path of the live stream (SSE) below Base; "" for none
	Cursor uint64         // the page shows at least this cursor: the live stream starts here
	Hash   session.Hash   // of the event there; zero if it is not to be compared
	Info   *session.Entry // session info or nil
	Base   string         // path prefix of the server ("" or "/prefix"): for assets and links
	Over   *fault.Error   // why the session has ended; nil while it lives
	Share  *Share         // of a session that an agent syncs to a public share; else nil
	State  State          // of the session, beside its entries
	All    bool           // it has everything: the first paint leaves nothing out
	May    []string       // what the page's ref may do: names of actions; nil on a page without a ref
	Own    string         // id of the page's own ref; "" on a page without
}

// Doc is a session's page in progress.
type Doc struct {
	w   io.Writer
	err error      // of the first write that failed; nothing is written after it
	o   markup.Out // output of the present call; empty between calls

	at       place
	message  *session.Entry // the open message; nil for an orphan's
	id       string         // its message id
	user     bool           // its role is user
	spent    time.Duration  // on highlighting
	closes   string         // path that ends the token; "" for none
	contents contents
	totals   totals
	share    *Share
	revert   session.Revert
	may      []string
	open     bool // the last message is an unfinished answer
	running  bool // an unfinished tool call was written

	all    bool // nothing is left out
	within bool // a piece of parts of one message
	shown  int  // blocks written
	bytes  int  // of HTML written
	left   int  // parts left out
}

// place is a position in the document.
type place uint8

const (
	inLog      place = iota // between messages
	inMessage               // within one
	afterLog                // after the last one
	inRequests              // in the section of requests
	inRest                  // in that below
)

// Start writes the document's head and the content above the first message to w. Each call writes
// once, so w may be flushed between calls.
func Start(w io.Writer, h Head) *Doc {
	if h.Title = markup.OneLine(h.Title, markup.LabelBytes); h.Title == "" {
		h.Title = titleOf(h.Info)
	}
	d := &Doc{w: w, share: h.Share, revert: h.State.Revert, may: h.May, all: h.All}
	s := shell{title: h.Title, base: h.Base, kind: "session", may: h.May, own: h.Own}
	if h.Live != "" && h.Over == nil {
		s.live = true
	}
	switch {
	case strings.HasPrefix(h.Live, "/s/"): // and one below it
		ref, _, _ := strings.Cut(strings.TrimPrefix(h.Live, "/s/"), "/")
		d.closes = h.Base + "/s/" + ref + "/close"
	case strings.HasPrefix(h.Live, "/sessions/"):
		d.closes = h.Base + "/sessions/close"
	}
	s.cursor, s.hash = h.Cursor, h.Hash
	s.open(&d.o)
	sessionBar(&d.o, h)
	d.o.Lit(`<div class="frame">`)
	if s.live {
		find(&d.o, h.Live)
	}
	d.o.Lit(`<main id="session" tabindex="-1">`)
	info(&d.o, h.Info)
	lacks(&d.o, h.Share)
	about(&d.o, h.Base, &h.State)
	d.o.Lit(`<div id="log">`)
	d.flush()
	return d
}

// Message begins the next message; t is its turn, nil if it has none.
func (d *Doc) Message(m *session.Entry, t *session.Turn) {
	d.close()
	d.at, d.message, d.id = inMessage, m, strings.TrimPrefix(m.Key, session.MessageKey(""))
	p := fields.Read(m.Payload)
	d.user = role(p) == "user"
	d.open = unfinished(p)
	messageOpen(&d.o, d.id, m.Ord, p, t)
	d.shown++
	d.totals.message(p)
	d.contents.message(d.id, p, d.user)
	d.flush()
}

// Part writes a part of the last message begun. A part of another message is an orphan: it gets a
// message element without a head.
func (d *Doc) Part(p *session.Entry) {
	id, _ := partOf(p.Key)
	d.begin(id, p.Ord)
	v := fields.Read(p.Payload)
	d.running = d.running || running(v)
	part(&d.o, p, v)
	d.shown++
	d.totals.part(v)
	d.contents.part(d.id, v)
	d.flush()
}

// begin begins a message of which only parts are known, unless it is begun.
func (d *Doc) begin(id string, ord session.Ord) {
	if d.at != inMessage || d.id != id {
		d.close()
		d.at, d.message, d.id, d.user = inMessage, nil, id, false
		orphanOpen(&d.o, id, ord)
	}
}

// Requests writes requests that are open or claimed. It may be called again; no message may follow.
func (d *Doc) Requests(list []*session.RequestInfo) {
	if len(list) == 0 {
		return
	}
	if d.endLog(); d.at != inRequests {
		d.o.Lit(`<section id="requests" aria-label="Requests" aria-live="polite">`)
		d.at = inRequests
	}
	for _, r := range list {
		request(&d.o, r.Asked, r.State)
	}
	d.flush()
}

// Rest writes the other entries: the diff, models, and entries of the users' own kinds. It may be
// called again; no message may follow.
func (d *Doc) Rest(entries []*session.EntryInfo) {
	d.rest()
	for _, e := range entries {
		if e.Key != "session" {
			block(&d.o, e.Entry, e.Change, nil)
		}
	}
	d.flush()
}

// Over writes that the session ended, for its readers, while its page was written. Only End may
// follow.
func (d *Doc) Over(f *fault.Error) {
	d.rest()
	d.o.Lit(`<div class="error ended" id="ended" role="alert"><strong>`)
	d.o.Text(overTitle(f.Code))
	d.o.Lit(`</strong><p>`)
	d.o.Text(markup.OneLine(f.Message, 4*markup.LabelBytes))
	d.o.Lit(`</p></div>`)
	d.flush()
}

// End writes the contents, the totals and the document's end. It returns the first error of a
// write.
func (d *Doc) End() error {
	d.rest()
	d.o.Lit(`</section>`)
	composer(&d.o, d.may)
	d.o.Lit(`</main>`)
	d.totals.left = d.left
	d.contents.write(&d.o, &d.totals, d.closes)
	d.o.Lit(`</div>`)
	overlays(&d.o)
	shellClose(&d.o)
	d.flush()
	return d.err
}

// close ends the open message, if there is one.
func (d *Doc) close() {
	if d.at == inMessage {
		var p fields.Value
		if d.message != nil {
			p = fields.Read(d.message.Payload)
		}
		messageClose(&d.o, p)
		d.at, d.message = inLog, nil
	}
}

// endLog ends the messages.
func (d *Doc) endLog() {
	if d.at < afterLog {
		d.close()
		d.o.Lit(`</div>`)
		d.leftOut()
		reverted(&d.o, &d.revert, slices.Contains(d.may, "revert"))
		silence(&d.o, d.share, d.open || d.running)
		d.at = afterLog
	}
}

// rest begins the section below the messages and the requests.
func (d *Doc) rest() {
	if d.at != inRest {
		if d.endLog(); d.at == inRequests {
			d.o.Lit(`</section>`)
		}
		d.o.Lit(`<section id="rest" aria-label="Changes and models">`)
		d.at = inRest
	}
}

// pageTime bounds the highlighting of a whole page's code.
const pageTime = 10 * time.Second

// flush writes what the present call has made.
func (d *Doc) flush() {
	if b := d.o.Bytes(); d.err == nil && len(b) > 0 {
		_, d.err = d.w.Write(b)
	}
	d.bytes += len(d.o.Bytes())
	if d.spent += d.o.Reset(); d.spent > pageTime {
		d.o.StopHighlighting()
		d.spent = pageTime + 1
	}
}

// Block returns the HTML of one block: a message without its parts, a part, the session's info,
// the diff, a model, a value of an own kind. by is the last change of an own kind's value; t is the
// turn of its message, nil if unknown or none.
func Block(e *session.Entry, by session.Change, t *session.Turn) []byte {
	var o markup.Out
	block(&o, e, by, t)
	return o.Bytes()
}

func block(o *markup.Out, e *session.Entry, by session.Change, t *session.Turn) {
	p := fields.Read(e.Payload)
	k, err := session.ParseKey(e.Key)
	switch {
	case err != nil, k.Own():
		own(o, e, by, p)
	case k.Kind == session.KeySession:
		info(o, e)
	case k.Kind == session.KeyMessage:
		messageOpen(o, k.Message, e.Ord, p, t)
		messageClose(o, p)
	case k.Kind == session.KeyPart:
		part(o, e, p)
	case k.Kind == session.KeyDiff:
		sessionDiff(o, p)
	case k.Kind == session.KeyModel:
		model(o, e, p)
	}
}

// messageID returns the element id of a message, partID that of a part: no other ids have these
// prefixes.
func messageID(message string) string { return "m-" + message }

func partID(message, part string) string { return "p-" + message + "/" + part }

// untitled is the title of a session without one.
const untitled = "Untitled session"

// titleOf returns the title in a session's info, which may be nil.
func titleOf(info *session.Entry) string {
	if info != nil {
		if title := markup.OneLine(fields.Read(info.Payload).At("title").Text(), markup.LabelBytes); title != "" {
			return title
		}
	}
	return untitled
}

func itoa(n int) string { return strconv.Itoa(n) }
