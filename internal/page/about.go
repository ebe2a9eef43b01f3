package page

// A session's state as a whole, beside its messages: that it is reverted or compacted, and the sessions that
// were started by it. And what the page's ref may do with it, for the script (src/console.js), which has the
// buttons; the server refuses what is not allowed whether there is a button or not.

import (
	"strings"

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
func about(o *out, base string, s *State) {
	o.lit(`<div id="about">`)
	started(o, base, s)
	compacted(o, &s.Compaction)
	if len(s.Children) > 0 {
		o.lit(`<details class="card" id="children"><summary><span class="name">Sessions started by this one</span><span class="count">`)
		o.text(itoa(len(s.Children)))
		if s.More {
			o.lit(`+`)
		}
		o.lit(`</span></summary><ul class="body">`)
		for _, c := range s.Children {
			child(o, base, s.Opens, c)
		}
		o.lit(`</ul></details>`)
	}
	o.lit(`</div>`)
}

// started writes the way back to what started a session.
func started(o *out, base string, s *State) {
	if s.Above == "" {
		return
	}
	to := base + s.Above
	if at := keyID(s.Start.Key); at != "" {
		to += "#" + at
	}
	o.lit(`<p class="note" id="start">Started by <a`)
	o.attr("href", to)
	o.lit(`><code class="id">`)
	o.text(s.Start.Session)
	o.lit(`</code></a></p>`)
}

// child writes a session that was started by the page's.
func child(o *out, base, opens string, c *session.Listing) {
	o.lit(`<li`)
	o.attr("data-child", c.ID)
	if c.Parent.Key != "" {
		o.attr("data-part", c.Parent.Key)
	}
	o.lit(`>`)
	if opens != "" {
		o.lit(`<a`)
		o.attr("href", base+opens+c.ID)
		o.lit(`><code class="id">`)
		o.text(c.ID)
		o.lit(`</code></a>`)
	} else {
		o.element("code", "id", c.ID)
	}
	o.lit(` <span class="meta">begun `)
	o.time(c.Created)
	if at := keyID(c.Parent.Key); at != "" {
		o.lit(` <a`)
		o.attr("href", "#"+at)
		o.lit(`>by this message</a>`)
	}
	o.lit(`</span></li>`)
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
func compacted(o *out, c *session.Compaction) {
	if !c.InForce() {
		return
	}
	o.lit(`<p class="note" id="compacted"`)
	o.attr("data-upto", strings.TrimPrefix(c.Upto, session.MessageKey("")))
	o.lit(`>Compacted up to <a`)
	o.attr("href", "#"+keyID(c.Upto))
	o.lit(`>this message</a>: <a`)
	o.attr("href", "#"+keyID(c.Summary))
	o.lit(`>its summary</a> stands for what was said until there`)
	if c.At != 0 {
		o.lit(`, since `)
		o.time(c.At)
	}
	o.lit(`</p>`)
}

// reverted writes, below the messages, that what came after them is hidden; may, that the page's ref may show it
// again.
func reverted(o *out, r *session.Revert, may bool) {
	if !r.InForce() {
		return
	}
	o.lit(`<div class="note" id="reverted" role="note"><p>Reverted`)
	if by := oneLine(r.Actor, labelBytes); by != "" {
		o.lit(` by <bdi>`)
		o.text(by)
		o.lit(`</bdi>`)
	}
	o.lit(`, `)
	o.time(r.At)
	o.lit(`. What came after this is hidden, and can be shown again until something new is said.</p>`)
	if may {
		o.lit(`<button type="button" class="button script" data-act="unrevert">Show it again</button>`)
	}
	o.lit(`</div>`)
}
