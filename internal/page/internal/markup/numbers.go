package markup

// Numbers and times for people.

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// BytesText formats a size in binary units.
func BytesText(n int) string {
	switch {
	case n < 1<<10:
		return strconv.Itoa(n) + " bytes"
	case n < 1<<20:
		return strconv.FormatFloat(math.Round(float64(n)/1024*10)/10, 'f', -1, 64) + " KiB"
	}
	return strconv.FormatFloat(math.Round(float64(n)/(1<<20)*10)/10, 'f', -1, 64) + " MiB"
}

// CountText formats a count with thousands separators.
func CountText(n float64) string {
	if n < 0 || n >= 1e15 {
		return strconv.FormatFloat(n, 'g', 4, 64)
	}
	s := strconv.FormatFloat(math.Round(n), 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// CostText formats an amount of dollars; "" for none.
func CostText(n float64) string {
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

// SpanText formats the duration between two times, Unix ms; "" if either is unknown.
func SpanText(from, to int64) string {
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

// Time writes a time, Unix ms, in UTC; the script converts it to the reader's time zone.
func (o *Out) Time(ms int64) {
	timeAs(o, ms, "", "2 Jan 2006, 15:04 UTC")
}

// Clock writes a time without its date, which is in the title.
func (o *Out) Clock(ms int64) { timeAs(o, ms, "clock", "15:04:05 UTC") }

func timeAs(o *Out, ms int64, class, layout string) {
	if ms == 0 {
		return
	}
	t := time.UnixMilli(ms).UTC()
	o.Lit(`<time`)
	if class != "" {
		o.Attr("class", class)
	}
	o.Attr("datetime", t.Format("2006-01-02T15:04:05.000Z"))
	o.Attr("title", t.Format("2 January 2006, 15:04:05 UTC"))
	o.Lit(`>`)
	o.Text(t.Format(layout))
	o.Lit(`</time>`)
}

// PlainNumber formats a number for the script.
func PlainNumber(n float64) string { return strconv.FormatFloat(n, 'g', 15, 64) }

// Plural returns a number of things, in words.
func Plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return strconv.Itoa(n) + " " + what + "s"
}
