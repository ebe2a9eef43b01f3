package page

// Notes on a page of a public share: that synced items are missing, and that no change has come
// for long.

import (
	"strconv"
	"time"
)

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
func lacks(o *out, s *Share) {
	if s == nil || len(s.Lacks) == 0 {
		return
	}
	o.lit(`<div class="note warn" id="lacks" role="note"><p>This share is incomplete. Its server could not take in all that was synced:</p><ul>`)
	for _, l := range s.Lacks {
		o.lit(`<li>`)
		if l.Key != "" {
			o.lit(`<code>`)
			o.text(oneLine(l.Key, labelBytes))
			o.lit(`</code>: `)
		}
		o.text(oneLine(l.Why, labelBytes))
		o.lit(`</li>`)
	}
	o.lit(`</ul></div>`)
}

// silence writes the note that no change has come for longer than the lease, visible while works
// says that an agent should be sending: the script shows and hides it later.
func silence(o *out, s *Share, works bool) {
	if s == nil {
		return
	}
	o.lit(`<p class="note warn" id="silent" role="status"`)
	o.attr("data-silence", strconv.FormatInt(s.Silence.Milliseconds(), 10))
	o.attr("data-lease", strconv.FormatInt(s.Lease.Milliseconds(), 10))
	if !works || s.Silence <= s.Lease {
		o.lit(` hidden`)
	}
	o.lit(`>No change since `)
	o.time(s.Changed)
	o.lit(`; what ran may have ended.</p>`)
}

// unfinished reports whether a message is an unfinished answer.
func unfinished(p fields) bool {
	return role(p) == "assistant" && p.at("time", "completed").millis() == 0 && p.at("error").empty()
}

// running reports whether a part is an unfinished tool call.
func running(p fields) bool {
	status := p.at("state", "status").text()
	return p.at("type").text() == "tool" && (status == "running" || status == "pending")
}
