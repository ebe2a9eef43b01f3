package page

// Formatting of numbers for people.

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// bytesText formats a size in binary units.
func bytesText(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " bytes"
	case n < 1<<20:
		return strconv.FormatFloat(math.Round(float64(n)/1024*10)/10, 'f', -1, 64) + " KiB"
	}
	return strconv.FormatFloat(math.Round(float64(n)/(1<<20)*10)/10, 'f', -1, 64) + " MiB"
}

// countText formats a count with thousands separators.
func countText(n float64) string {
	if n < 0 || n >= 1e15 {
		return strconv.FormatFloat(n, 'g', 4, 64)
	}
	s := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// costText formats an amount of dollars; "" for none.
func costText(n float64) string {
	switch {
	case n == 0:
		return ""
	case math.Abs(n) >= 1e9:
		return "$" + strconv.FormatFloat(n, 'g', 4, 64)
	case math.Abs(n) < 0.0001:
		return "<$0.0001"
	case math.Abs(n) < 0.1:
		return "$" + strconv.FormatFloat(n, 'f', 4, 64)
	}
	return "$" + strconv.FormatFloat(n, 'f', 2, 64)
}

// spanText formats the duration between two times, Unix ms; "" if either is unknown.
func spanText(from, to int64) string {
	if from == 0 || to < from {
		return ""
	}
	d := time.Duration(min(to-from, 1<<40)) * time.Millisecond
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + " ms"
	case d < time.Minute:
		tenths := (d.Milliseconds() + 50) / 100
		return strconv.FormatInt(tenths/10, 10) + "." + strconv.FormatInt(tenths%10, 10) + " s"
	case d < time.Hour:
		return fmt.Sprintf("%d min %d s", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%d h %d min", int(d.Hours()), int(d.Minutes())%60)
}

// time writes a time, Unix ms, in UTC; the script converts it to the reader's time zone.
func (o *out) time(ms int64) {
	timeAs(o, ms, "", "2 Jan 2006, 15:04 UTC")
}

// clock writes a time without its date, which is in the title.
func (o *out) clock(ms int64) { timeAs(o, ms, "clock", "15:04:05 UTC") }

func timeAs(o *out, ms int64, class, layout string) {
	if ms == 0 {
		return
	}
	t := time.UnixMilli(ms).UTC()
	o.lit(`<time`)
	if class != "" {
		o.attr("class", class)
	}
	o.attr("datetime", t.Format("2006-01-02T15:04:05.000Z"))
	o.attr("title", t.Format("2 January 2006, 15:04:05 UTC"))
	o.lit(`>`)
	o.text(t.Format(layout))
	o.lit(`</time>`)
}

// tokens are the token counts of a message or step.
type tokens struct{ in, out, reasoning, read, write float64 }

func tokensOf(p fields) tokens {
	t := p.at("tokens")
	return tokens{t.at("input").number(), t.at("output").number(), t.at("reasoning").number(),
		t.at("cache", "read").number(), t.at("cache", "write").number()}
}

func (t tokens) any() bool { return t != tokens{} }

// detail formats the token counts.
func (t tokens) detail() string {
	s := countText(t.in) + " in, " + countText(t.out) + " out"
	for _, more := range []struct {
		n    float64
		what string
	}{{t.reasoning, " reasoning"}, {t.read, " read from cache"}, {t.write, " written to cache"}} {
		if more.n != 0 {
			s += ", " + countText(more.n) + more.what
		}
	}
	return s
}

// totals are the sums of a session's page, collected while it is written.
type totals struct {
	messages, turns, parts, tools int
	tokens                        tokens
	cost                          float64
	first, last                   int64 // Unix ms
	left                          int   // parts left out, of which tools has none
}

func (t *totals) message(p fields) {
	t.messages++
	if role(p) == "user" {
		t.turns++
	}
	k := tokensOf(p)
	t.tokens.in += k.in
	t.tokens.out += k.out
	t.tokens.reasoning += k.reasoning
	t.tokens.read += k.read
	t.tokens.write += k.write
	t.cost += p.at("cost").number()
	if at := p.at("time", "created").millis(); at != 0 && (t.first == 0 || at < t.first) {
		t.first = at
	}
	t.last = max(t.last, p.at("time", "created").millis(), p.at("time", "completed").millis())
}

func (t *totals) part(p fields) {
	t.parts++
	if p.at("type").text() == "tool" {
		t.tools++
	}
}

// plainNumber formats a number for the script.
func plainNumber(n float64) string { return strconv.FormatFloat(n, 'g', 15, 64) }
