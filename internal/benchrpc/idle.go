package main

// Idle connections: what each costs the server in memory.

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"time"
)

// warmConnections come and go before memory is read the first time, so that
// code and what is made once are not counted.
const warmConnections = 50

// idleNames are the contenders whose idle connections differ.
var idleNames = []string{contenderRaw, contenderMooring, "mooring-stream", contenderGoCapnp, contenderGRPC}

// idleRow is what connections cost, each.
type idleRow struct {
	label         string
	rss           float64
	heap, stacks  float64 // 0 for a process that does not tell
	goroutines    float64
	before, after int64 // RSS of the whole process
}

func (b *bench) idle(ctx context.Context, r *report) error {
	count := b.opts.connections
	if most := int(openFiles()) - 200; count > most {
		count = max(most, 1)
		r.leftOut = append(r.leftOut, fmt.Sprintf("idle: %d connections instead of %d: no more open files are allowed (ulimit -Hn)",
			count, b.opts.connections))
	}
	r.idleCount = count
	for _, who := range b.opts.contenders {
		if !slices.Contains(idleNames, who.name) {
			continue
		}
		row, err := b.idleOf(ctx, who, count, "")
		if err == nil && who.name == b.opts.profiled && b.opts.memProfile != "" {
			_, err = b.idleOf(ctx, who, count, b.opts.memProfile+".idle.server") // slower and larger: only the profile counts
		}
		if err != nil {
			return fmt.Errorf("%s: %w", who.label, err)
		}
		r.idles = append(r.idles, row)
	}
	if !slices.ContainsFunc(b.opts.contenders, func(c contender) bool { return c.name == contenderMooring }) {
		return nil
	}
	if rss, err := residentBytes("self"); err != nil || rss == 0 {
		r.leftOut = append(r.leftOut, "idle connections with a session: "+runtime.GOOS+" does not tell the memory of a process")
		return err
	}
	row, err := b.idleSessions(ctx, count)
	if err != nil {
		return fmt.Errorf("%s: %w", sessionContender.label, err)
	}
	r.idles = append(r.idles, row)
	return nil
}

// comeAndGo makes the warm connections and closes them.
func (p *pair) comeAndGo(ctx context.Context) error {
	if err := p.connect(warmConnections); err != nil {
		return err
	}
	if _, err := p.client.ask(request{Disconnect: true}); err != nil {
		return err
	}
	return pause(ctx, time.Second)
}

// idleOf measures an echo server of this program, and writes a profile of its
// heap if a file is named.
func (b *bench) idleOf(ctx context.Context, who contender, count int, profile string) (row idleRow, err error) {
	b.progress.Printf("idle: %d connections, %s", count, who.label)
	var env []string
	if profile != "" {
		env = []string{everyAllocation}
	}
	p, err := startPair(ctx, who, false, env...)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.comeAndGo(ctx); err != nil {
		return row, err
	}
	before, err := p.server.ask(request{Memory: true})
	if err != nil {
		return row, err
	}
	if err := p.connect(count); err != nil {
		return row, err
	}
	if err := pause(ctx, b.opts.settle); err != nil {
		return row, err
	}
	after, err := p.server.ask(request{Memory: true})
	if err != nil {
		return row, err
	}
	if profile != "" {
		if _, err := p.server.ask(request{MemProfile: profile, Heap: true}); err != nil {
			return row, err
		}
	}
	x, y := before.Memory, after.Memory
	each := func(from, to int64) float64 { return float64(to-from) / float64(count) }
	return idleRow{
		label: who.label, rss: each(x.RSS, y.RSS), before: x.RSS, after: y.RSS,
		heap: each(x.Heap, y.Heap), stacks: each(x.Stacks, y.Stacks), goroutines: each(int64(x.Goroutines), int64(y.Goroutines)),
	}, nil
}

// idleSessions measures the real server from outside: it collects no garbage
// for the benchmark's sake.
func (b *bench) idleSessions(ctx context.Context, count int) (row idleRow, err error) {
	b.progress.Printf("idle: building mooring")
	s, err := b.startServe(ctx)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, s.Stop()) }()
	p := &pair{who: sessionContender, address: s.ref}
	if p.client, err = startProcess(ctx, false, false); err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, p.stop()) }()
	if err := p.comeAndGo(ctx); err != nil {
		return row, err
	}
	b.progress.Printf("idle: waiting for the server to settle")
	row.label = sessionContender.label
	if row.before, err = s.settled(ctx); err != nil {
		return row, err
	}
	b.progress.Printf("idle: %d connections, %s", count, row.label)
	if err := p.connect(count); err != nil {
		return row, err
	}
	if err := pause(ctx, b.opts.settle); err != nil {
		return row, err
	}
	b.progress.Printf("idle: waiting for the server to settle")
	row.after, err = s.settled(ctx)
	row.rss = float64(row.after-row.before) / float64(count)
	return row, err
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
