package page

// What is said of a session that an agent syncs here, and that nobody leads from here:
// that something of it is missing, and that nothing has come for long.

import (
	"strconv"
	"time"
)

// Share is what is known of a public share beside its session.
type Share struct {
	Lacks   []Lack        // what was synced and could not be stored
	Changed int64         // Unix ms: the last change
	Silence time.Duration // since then
	Lease   time.Duration // so long may whoever is at work be silent
}

// Lack is something that a share has not.
type Lack struct{ Key, Why string } // Key is "" where it is not known

// lacks says what is missing.
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

// silence is where the page says that nothing has come for long, where something is at
// work that would have to send: the script shows and hides it from then on.
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

// unfinished says whether a message is an answer that has not come to its end.
func unfinished(p fields) bool {
	return role(p) == "assistant" && p.at("time", "completed").millis() == 0 && p.at("error").empty()
}

// running says whether a part is a tool call that has not come to its end.
func running(p fields) bool {
	status := p.at("state", "status").text()
	return p.at("type").text() == "tool" && (status == "running" || status == "pending")
}
