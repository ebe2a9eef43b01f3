package page

// A session's state as a whole, beside its messages: that it is reverted or compacted, and the sessions that
// were started by it; of a public share, that synced items are missing, and that no change has come for long. And what the page's ref may do with it, for the script (src/console.js), which has the
// buttons; the server refuses what is not allowed whether there is a button or not.

import (
	"strconv"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
	"github.com/mooring-rpc/mooring/internal/session"
)

// State is a session's state beside its entries. What the ref does not show is zero.
type State struct {
	Revert     session.Revert     // what it is reverted to
	Compaction session.Compaction // up to where it is compacted
	Children   []*session.Listing // the sessions that were started by it
	More       bool               // there are more children
	Opens      string             // path below Base below which the children's pages are; "" if the ref opens none
	Above      string             // path below Base of the page of the session that started it; "" if the ref opens none
	Start      session.Parent     // with Above: what started it there
}

// about writes the state that is shown above the messages.
func about(o *markup.Out, base string, s *State) {
	o.Lit(`<div id="about">`)
	started(o, base, s)
	compacted(o, &s.Compaction)
	if len(s.Children) > 0 {
		o.Lit(`<details class="card" id="children"><summary><span class="name">Sessions started by this one</span><span class="count">`)
		o.Text(itoa(len(s.Children)))
		if s.More {
			o.Lit(`+`)
		}
		o.Lit(`</span></summary><ul class="body">`)
		for _, c := range s.Children {
			child(o, base, s.Opens, c)
		}
		o.Lit(`</ul></details>`)
	}
	o.Lit(`</div>`)
}

// started writes the way back to what started a session.
func started(o *markup.Out, base string, s *State) {
	if s.Above == "" {
		return
	}
	to := base + s.Above
	if at := keyID(s.Start.Key); at != "" {
		to += "#" + at
	}
	o.Lit(`<p class="note" id="start">Started by <a`)
	o.Attr("href", to)
	o.Lit(`><code class="id">`)
	o.Text(s.Start.Session)
	o.Lit(`</code></a></p>`)
}

// child writes a session that was started by the page's.
func child(o *markup.Out, base, opens string, c *session.Listing) {
	o.Lit(`<li`)
	o.Attr("data-child", c.ID)
	if c.Parent.Key != "" {
		o.Attr("data-part", c.Parent.Key)
	}
	o.Lit(`>`)
	if opens != "" {
		o.Lit(`<a`)
		o.Attr("href", base+opens+c.ID)
		o.Lit(`><code class="id">`)
		o.Text(c.ID)
		o.Lit(`</code></a>`)
	} else {
		o.Element("code", "id", c.ID)
	}
	o.Lit(` <span class="meta">begun `)
	o.Time(c.Created)
	if at := keyID(c.Parent.Key); at != "" {
		o.Lit(` <a`)
		o.Attr("href", "#"+at)
		o.Lit(`>by this message</a>`)
	}
	o.Lit(`</span></li>`)
}

// keyID returns the element id of a message's key, or of a part's; "" for another.
func keyID(key string) string {
	k, err := session.ParseKey(key)
	switch {
	case key == "" || err != nil:
		return ""
	case k.Kind == session.KeyMessage:
		return messageID(k.Message)
	case k.Kind == session.KeyPart:
		return partID(partOf(key))
	}
	return ""
}

// compacted writes up to where a session is compacted: links to the message and to its summary.
func compacted(o *markup.Out, c *session.Compaction) {
	if !c.InForce() {
		return
	}
	o.Lit(`<p class="note" id="compacted"`)
	o.Attr("data-upto", strings.TrimPrefix(c.Upto, session.MessageKey("")))
	o.Lit(`>Compacted up to <a`)
	o.Attr("href", "#"+keyID(c.Upto))
	o.Lit(`>this message</a>: <a`)
	o.Attr("href", "#"+keyID(c.Summary))
	o.Lit(`>its summary</a> stands for what was said until there`)
	if c.At != 0 {
		o.Lit(`, since `)
		o.Time(c.At)
	}
	o.Lit(`</p>`)
}

// reverted writes, below the messages, that what came after them is hidden; may, that the page's ref may show it
// again.
func reverted(o *markup.Out, r *session.Revert, may bool) {
	if !r.InForce() {
		return
	}
	o.Lit(`<div class="note" id="reverted" role="note"><p>Reverted`)
	if by := markup.OneLine(r.Actor, markup.LabelBytes); by != "" {
		o.Lit(` by <bdi>`)
		o.Text(by)
		o.Lit(`</bdi>`)
	}
	o.Lit(`, `)
	o.Time(r.At)
	o.Lit(`. What came after this is hidden, and can be shown again until something new is said.</p>`)
	if may {
		o.Lit(`<button type="button" class="button script" data-act="unrevert">Show it again</button>`)
	}
	o.Lit(`</div>`)
}

// Share describes a public share besides its session.
type Share struct {
	Lacks   []Lack        // synced items that could not be stored
	Changed int64         // Unix ms of the last change
	Silence time.Duration // time since the last change
	Lease   time.Duration // how long a working agent may be silent
}

// Lack is a synced item that a share does not have.
type Lack struct{ Key, Why string } // Key is "" if unknown

// lacks writes the missing items.
func lacks(o *markup.Out, s *Share) {
	if s == nil || len(s.Lacks) == 0 {
		return
	}
	o.Lit(`<div class="note warn" id="lacks" role="note"><p>This share is incomplete. Its server could not take in all that was synced:</p><ul>`)
	for _, l := range s.Lacks {
		o.Lit(`<li>`)
		if l.Key != "" {
			o.Lit(`<code>`)
			o.Text(markup.OneLine(l.Key, markup.LabelBytes))
			o.Lit(`</code>: `)
		}
		o.Text(markup.OneLine(l.Why, markup.LabelBytes))
		o.Lit(`</li>`)
	}
	o.Lit(`</ul></div>`)
}

// silence writes the note that no change has come for longer than the lease, visible while works
// says that an agent should be sending: the script shows and hides it later.
func silence(o *markup.Out, s *Share, works bool) {
	if s == nil {
		return
	}
	o.Lit(`<p class="note warn" id="silent" role="status"`)
	o.Attr("data-silence", strconv.FormatInt(s.Silence.Milliseconds(), 10))
	o.Attr("data-lease", strconv.FormatInt(s.Lease.Milliseconds(), 10))
	if !works || s.Silence <= s.Lease {
		o.Lit(` hidden`)
	}
	o.Lit(`>No change since `)
	o.Time(s.Changed)
	o.Lit(`; what ran may have ended.</p>`)
}
