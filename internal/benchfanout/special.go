package main

// The lines of the second table: what is not deliveries beside those of a bare server.

import (
	"context"
	"fmt"
	"strings"

	"github.com/mooring-rpc/mooring/internal/measure"
)

// special is one such line: it gives one figure or several.
type special interface {
	label() string
	small() special // for a smoke test
	measure(ctx context.Context, b *bench, dir string) ([]figure, error)
}

// specials are all of them.
func specials(old string) []special {
	return []special{
		writersBeside{followers: 1000, events: 800, writers: 4, quiet: quietSpan},
		stoppedReader{followers: 200, events: 300, rate: 40_000, rounds: 5, stopped: 50, burst: 3000},
		oldClients{commit: old, followers: 100, events: 2000},
		longLog{followers: 1000, long: 1_000_000, short: 1000, events: 400},
		turnStream{followers: 200, rate: 10_000, paced: 150, fast: 1000},
		atRest{connections: 5000, rest: restSpan},
	}
}

// figure is what one line gives of one thing.
type figure struct {
	line     string
	what     string
	of       float64   // median of the rounds,
	against  string    // what that is compared with,
	than     float64   // how much that is,
	ratio    float64   // and the median of the rounds' ratios
	ratios   []float64 // of all rounds
	decimals int
	aim      string
}

// compared makes a figure of the rounds of two sides.
func compared(what, against string, of, than []float64, decimals int, aim string) figure {
	f := figure{what: what, against: against, of: measure.Median(of), than: measure.Median(than), decimals: decimals, aim: aim}
	for i := range of {
		f.ratios = append(f.ratios, of[i]/than[i])
	}
	f.ratio = measure.Median(f.ratios)
	return f
}

// writeFigures prints the table in Markdown.
func writeFigures(b *strings.Builder, figures []figure) {
	b.WriteString("\n| | | measured | compared with | which is | ratio | of each round | aim |\n|---|---|---:|---|---:|---:|---|---|\n")
	for _, f := range figures {
		rounds := make([]string, len(f.ratios))
		for i, r := range f.ratios {
			rounds[i] = fmt.Sprintf("%.2f", r)
		}
		than, ratio := "–", "–"
		if f.against != "" {
			than, ratio = fmt.Sprintf("%.*f", f.decimals, f.than), fmt.Sprintf("%.2f", f.ratio)
		}
		text := func(s string) string {
			if s == "" {
				return "–"
			}
			return s
		}
		fmt.Fprintf(b, "| %s | %s | %.*f | %s | %s | %s | %s | %s |\n", f.line, f.what, f.decimals, f.of, text(f.against), than, ratio, text(strings.Join(rounds, ", ")), text(f.aim))
	}
}
