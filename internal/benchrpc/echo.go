package main

// The echo: every contender in every mode, in turns.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"time"
)

// mode is how the calls are made.
type mode struct {
	name    string
	title   string
	flight  int
	oneCore bool
}

var modes = []mode{
	{name: "sequential", title: "One call after the other", flight: 1},
	{name: "pinned", title: "One call after the other, client and server on one core", flight: 1, oneCore: true},
	{name: "flight", title: "64 calls in flight", flight: 64},
}

// sample is one measurement, with what it took of both processes.
type sample struct {
	measurement
	server usage
}

func (s sample) rate() float64 { return float64(s.Calls) / s.Elapsed.Seconds() }

// perCall is a share of something counted over all calls.
func (s sample) perCall(n float64) float64 { return n / float64(s.Calls) }

// echo measures the contenders of --contenders.
func (b *bench) echo(ctx context.Context, r *report) error {
	return b.echoes(ctx, r, contenderRaw, "raw", b.opts.contenders)
}

// web measures those over Cap'n Web.
func (b *bench) web(ctx context.Context, r *report) error {
	if err := installNode(ctx); err != nil {
		return err
	}
	return b.echoes(ctx, r, contenderNpm, "Node", npmContenders)
}

// echoes measures rounds of contenders and keeps their samples; base is whom they are compared with, in a word.
func (b *bench) echoes(ctx context.Context, r *report, base, word string, contenders []contender) error {
	var tables []*echoTable
	for _, m := range modes {
		if m.oneCore && !canBind {
			r.leftOut = append(r.leftOut, m.title+": "+runtime.GOOS+" cannot bind a process to a core")
			continue
		}
		tables = append(tables, newEchoTable(m, base, word, contenders))
	}
	r.echoes = append(r.echoes, tables...)
	cells, done := len(tables)*len(contenders)*b.opts.rounds, 0
	for range b.opts.rounds {
		for _, table := range tables {
			for i, who := range contenders {
				done++
				b.progress.Printf("echo %d of %d: %s, %s", done, cells, table.mode.name, who.label)
				s, err := b.measureEcho(ctx, who, table.mode)
				if err != nil {
					return fmt.Errorf("%s, %s: %w", who.label, table.mode.name, err)
				}
				table.samples[i] = append(table.samples[i], s)
			}
		}
	}
	return nil
}

// warmUp is how much of a measurement's length both sides run before it.
const warmUp = 0.3

// measureEcho is one measurement with processes of its own.
func (b *bench) measureEcho(ctx context.Context, who contender, m mode) (s sample, err error) {
	p, err := startPair(ctx, who, m.oneCore)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.connect(1); err != nil {
		return s, err
	}
	_, err = p.client.ask(request{Measure: time.Duration(warmUp * float64(b.opts.duration)), Flight: m.flight})
	if err != nil {
		return s, err
	}
	before, err := p.server.ask(request{Usage: true})
	if err != nil {
		return s, err
	}
	answer, err := p.client.ask(request{Measure: b.opts.duration, Flight: m.flight})
	if err != nil {
		return s, err
	}
	after, err := p.server.ask(request{Usage: true})
	return sample{answer.Measured, after.Used.minus(before.Used)}, err
}

// profileEchoes runs one contender's measurements once more for each kind of profile, where it was measured.
func (b *bench) profileEchoes(ctx context.Context, r *report) error {
	who, err := contenderByName(b.opts.profiled)
	if err != nil {
		return err
	}
	for _, table := range r.echoes {
		m := table.mode
		if table.of(who.name) == nil {
			continue
		}
		if b.opts.cpuProfile != "" {
			b.progress.Printf("CPU profile: %s, %s", m.name, who.label)
			if err := b.profileEcho(ctx, who, m, b.opts.cpuProfile, false); err != nil {
				return err
			}
		}
		if b.opts.memProfile != "" {
			b.progress.Printf("allocations: %s, %s", m.name, who.label)
			if err := b.profileEcho(ctx, who, m, b.opts.memProfile, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// everyAllocation has a child record all of its allocations from its start.
const everyAllocation = "GODEBUG=memprofilerate=1"

func (b *bench) profileEcho(ctx context.Context, who contender, m mode, file string, allocations bool) (err error) {
	var env []string
	if allocations {
		env = []string{everyAllocation}
	}
	p, err := startPair(ctx, who, m.oneCore, env...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.connect(1); err != nil {
		return err
	}
	sides := map[string]*process{"server": p.server, "client": p.client}
	if who.nodeServer { // no profile of Go
		delete(sides, "server")
	}
	if who.nodeClient {
		delete(sides, "client")
	}
	file += "." + m.name + "."
	if !allocations {
		for name, side := range sides {
			if _, err := side.ask(request{CPUProfile: file + name}); err != nil {
				return err
			}
		}
	}
	answer, err := p.client.ask(request{Measure: b.opts.duration, Flight: m.flight})
	if err != nil {
		return err
	}
	for name, side := range sides {
		last := request{EndProfile: true}
		if allocations {
			last = request{MemProfile: file + name}
		}
		if _, err := side.ask(last); err != nil {
			return err
		}
	}
	b.progress.Printf("%d calls profiled into %sclient and %sserver", answer.Measured.Calls, file, file)
	return nil
}
