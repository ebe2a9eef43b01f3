package main

// The report: the tables, the aims, and the arithmetic of both.

import (
	"fmt"
	"io"
	"runtime"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/internal/measure"
)

// echoTable has the samples of one mode: of each contender, one a round.
type echoTable struct {
	mode    mode
	base    string // the name of whom the others are compared with
	word    string // and what the table calls it
	who     []contender
	samples [][]sample
}

func newEchoTable(m mode, base, word string, who []contender) *echoTable {
	return &echoTable{mode: m, base: base, word: word, who: who, samples: make([][]sample, len(who))}
}

// report gathers what was measured.
type report struct {
	echoes    []*echoTable
	idles     []idleRow
	idleCount int
	leftOut   []string
}

// of gives a contender's samples; nil if it was not measured.
func (t *echoTable) of(name string) []sample {
	for i, c := range t.who {
		if c.name == name {
			return t.samples[i]
		}
	}
	return nil
}

// ratio is the median of the rounds' ratios of a figure of two contenders, 0 without both.
func (t *echoTable) ratio(f func(sample) float64, name, to string) float64 {
	x, y := t.of(name), t.of(to)
	if len(x) == 0 || len(y) == 0 {
		return 0
	}
	list := make([]float64, len(x))
	for i := range x {
		list[i] = f(x[i]) / f(y[i])
	}
	return measure.Median(list)
}

// medianOf is the median of a figure over the rounds.
func medianOf(list []sample, f func(sample) float64) float64 {
	figures := make([]float64, len(list))
	for i, s := range list {
		figures[i] = f(s)
	}
	return measure.Median(figures)
}

// cpu is what a call took of both processes, in microseconds.
func cpu(s sample) float64 { return s.perCall(micros(s.Used.CPU + s.server.CPU)) }

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

func mallocsClient(s sample) float64 { return s.perCall(float64(s.Used.Mallocs)) }
func mallocsServer(s sample) float64 { return s.perCall(float64(s.server.Mallocs)) }

// write prints the tables in Markdown.
func (r *report) write(out io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s/%s, %d processors, %s\n", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version())
	for _, line := range r.leftOut {
		fmt.Fprintf(&b, "\nLeft out: %s\n", line)
	}
	for _, t := range r.echoes {
		t.write(&b)
	}
	if len(r.idles) > 0 {
		fmt.Fprintf(&b, "\nServer memory of an idle connection, %d of them (KB)\n\n"+
			"| | RSS | heap | stacks | goroutines | RSS of the process without and with |\n|---|---:|---:|---:|---:|---|\n", r.idleCount)
		for _, i := range r.idles {
			inside := "| – | – | – |"
			if i.goroutines != 0 {
				inside = fmt.Sprintf("| %.1f | %.1f | %.1f |", i.heap/1024, i.stacks/1024, i.goroutines)
			}
			fmt.Fprintf(&b, "| %s | %.1f %s %.1f MB, %.1f MB |\n", i.label, i.rss/1024, inside, mb(i.before), mb(i.after))
		}
	}
	r.writeAims(&b)
	_, err := io.WriteString(out, b.String())
	return err
}

func mb(n int64) float64 { return float64(n) / (1 << 20) }

func (t *echoTable) write(b *strings.Builder) {
	fmt.Fprintf(b, "\n%s (allocations and µs of CPU a call, client and server)\n\n"+
		"| | calls/s | of %s | p50 µs | p99 µs | allocs cl. | allocs srv. | CPU cl. | CPU srv. | CPU of %s |\n"+
		"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|\n", t.mode.title, t.word, t.word)
	for i, who := range t.who {
		of := func(f func(sample) float64) float64 { return medianOf(t.samples[i], f) }
		ofBase := func(f func(sample) float64) string {
			if x := t.ratio(f, who.name, t.base); x > 0 {
				return fmt.Sprintf("%.2f", x)
			}
			return "–"
		}
		fmt.Fprintf(b, "| %s | %.0f | %s | %.1f | %.1f | %s | %s | %.2f | %.2f | %s |\n",
			who.label, of(sample.rate), ofBase(sample.rate),
			of(func(s sample) float64 { return micros(s.P50) }), of(func(s sample) float64 { return micros(s.P99) }),
			allocations(who.nodeClient, of(mallocsClient)), allocations(who.nodeServer, of(mallocsServer)),
			of(func(s sample) float64 { return s.perCall(micros(s.Used.CPU)) }),
			of(func(s sample) float64 { return s.perCall(micros(s.server.CPU)) }), ofBase(cpu))
	}
}

// allocations are not counted on Node.
func allocations(onNode bool, n float64) string {
	if onNode {
		return "–"
	}
	return fmt.Sprintf("%.1f", n)
}

// aim is a figure with what it should be at least, or at most.
type aim struct {
	text   string
	figure float64
	bound  float64
	most   bool
}

// aims are those whose figures were measured.
func (r *report) aims() []aim {
	var list []aim
	atLeast := func(t *echoTable, text, who, to string, bound float64) {
		if x := t.ratio(sample.rate, who, to); x > 0 {
			list = append(list, aim{text, x, bound, false})
		}
	}
	least := func(t *echoTable, text, to string, bound float64) { atLeast(t, text, contenderMooring, to, bound) }
	for _, t := range r.echoes {
		atLeast(t, "Cap'n Web, with the Node client, of Node's server, "+t.mode.name, contenderNpmOurs, contenderNpm, 1.5)
		atLeast(t, "Cap'n Web, ours to ours, of Node to Node, "+t.mode.name, contenderWeb, contenderNpm, 3)
		switch t.mode.name {
		case "flight":
			least(t, "64 in flight, of go-capnp", contenderGoCapnp, 6)
			least(t, "64 in flight, of gRPC", contenderGRPC, 4)
			least(t, "64 in flight, of raw", contenderRaw, 1)
		case "pinned":
			least(t, "one core, of raw", contenderRaw, 0.65)
			least(t, "one core, of go-capnp", contenderGoCapnp, 2)
		}
		if ours := t.of(contenderMooring); len(ours) > 0 {
			list = append(list, aim{"allocations a call, client, " + t.mode.name, medianOf(ours, mallocsClient), 12, true},
				aim{"allocations a call, server, " + t.mode.name, medianOf(ours, mallocsServer), 12, true})
		}
	}
	for _, i := range r.idles {
		if i.label == sessionContender.label {
			list = append(list, aim{"KB of an idle connection with a live session", i.rss / 1024, 24, true})
		}
	}
	return list
}

func (r *report) writeAims(b *strings.Builder) {
	list := r.aims()
	if len(list) == 0 {
		return
	}
	b.WriteString("\nAims (package rpc over WebSocket, frames merged)\n\n| | figure | aim | |\n|---|---:|---:|---|\n")
	for _, a := range list {
		sign, met := "≥", a.figure >= a.bound
		if a.most {
			sign, met = "≤", a.figure <= a.bound
		}
		verdict := "met"
		if !met {
			verdict = "not met"
		}
		fmt.Fprintf(b, "| %s | %.2f | %s %g | %s |\n", a.text, a.figure, sign, a.bound, verdict)
	}
}
