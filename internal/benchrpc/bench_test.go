package main

import (
	"context"
	"io"
	"os"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/measure"
)

// TestMain lets the test's program be the child processes too.
func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		childMain()
		return
	}
	os.Exit(m.Run())
}

func TestEveryContender(t *testing.T) {
	opts, err := parse([]string{"--duration", "20ms", "--rounds", "1"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	b := &bench{opts: opts, dir: t.TempDir(), progress: measure.NewProgress(io.Discard)}
	for _, who := range append(everyContender, webContender) {
		for _, m := range modes {
			if m.oneCore && !canBind {
				continue
			}
			t.Run(who.name+"/"+m.name, func(t *testing.T) {
				s, err := b.measureEcho(ctx, who, m)
				if err != nil {
					t.Fatal(err)
				}
				if s.Calls == 0 || s.P50 <= 0 || s.P99 < s.P50 || s.Used.CPU <= 0 || s.server.CPU <= 0 {
					t.Errorf("measured %+v", s)
				}
			})
		}
	}
}

func TestIdleConnections(t *testing.T) {
	opts, err := parse([]string{"--connections", "8", "--settle", "0s"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	b := &bench{opts: opts, dir: t.TempDir(), progress: measure.NewProgress(io.Discard)}
	for _, who := range everyContender {
		t.Run(who.name, func(t *testing.T) {
			row, err := b.idleOf(ctx, who, opts.connections, "")
			if err != nil {
				t.Fatal(err)
			}
			if row.goroutines < 1 {
				t.Errorf("measured %+v: are there connections?", row)
			}
		})
	}
	t.Run(sessionContender.name, func(t *testing.T) {
		s, err := b.startServe(ctx)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Stop(); err != nil {
				t.Error(err)
			}
		})
		l, err := dialSession(ctx, s.ref)
		if err != nil {
			t.Fatal(err)
		}
		if err := l.echo(); err != nil {
			t.Error(err)
		}
		if err := l.close(); err != nil {
			t.Error(err)
		}
	})
}

func TestHistogram(t *testing.T) {
	for _, d := range []time.Duration{1, 63, 127, 128, 1000, 12345, time.Millisecond, time.Second} {
		var h histogram
		h.add(d)
		if got := h.quantile(0.5); got < d-d/64-1 || got > d+d/64+1 {
			t.Errorf("the median of %d is %d", d, got)
		}
	}
	var h histogram
	for d := range time.Duration(100) {
		h.add(d)
	}
	if p50, p99 := h.quantile(0.50), h.quantile(0.99); p50 != 50 || p99 != 99 || h.count() != 100 {
		t.Errorf("of 0 to 99: p50 %d, p99 %d, count %d", p50, p99, h.count())
	}
}

func TestReportWithoutContenders(t *testing.T) {
	opts, err := parse([]string{"--contenders", "grpc"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	table := newEchoTable(modes[0], contenderRaw, "raw", opts.contenders)
	table.samples[0] = []sample{{measurement: measurement{Calls: 10, Elapsed: time.Second}}}
	r := report{echoes: []*echoTable{table}}
	if err := r.write(io.Discard); err != nil {
		t.Error(err)
	}
	if aims := r.aims(); len(aims) != 0 {
		t.Errorf("aims without Mooring: %+v", aims)
	}
}

func TestBadCommandLine(t *testing.T) {
	for _, args := range [][]string{
		{"--parts", "eco"}, {"--contenders", "nobody"}, {"--rounds", "0"}, {"--profiled", "me"}, {"x"},
	} {
		if _, err := parse(args, io.Discard); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
}
