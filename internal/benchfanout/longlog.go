package main

// What a session of very many events costs, to followers from its end, beside one of few.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/mooring-rpc/mooring/capability"
)

// longLog is what followers from the end of a long log cost the server, in memory and in CPU, by turns with those of a short one.
type longLog struct {
	followers   int
	long, short int // events of the log
	events      int // of a round
}

func (l longLog) label() string {
	return fmt.Sprintf("%d followers from the end of %d events", l.followers, l.long)
}

func (l longLog) small() special {
	l.followers, l.long, l.events = l.followers/20, l.long/20, l.events/20
	return l
}

// logBatch and logPayloadBytes are those of the events of the logs, which are written quickly.
const logBatch, logPayloadBytes = 500, 40

func (l longLog) measure(ctx context.Context, b *bench, dir string) (_ []figure, err error) {
	rigs, memory, cpu := make([]*rig, 2), make([][]float64, 2), make([][]float64, 2)
	for i, length := range []int{l.long, l.short} {
		b.progress.Printf("%s: writing %d", l.label(), length)
		r, err := b.afterLog(ctx, filepath.Join(dir, fmt.Sprint(length)), length, benchCase{wire: wireCapnp, followers: l.followers, sessions: 1, events: l.events, batch: 1, replicas: 1})
		if err != nil {
			return nil, fmt.Errorf("a log of %d events: %w", length, err)
		}
		defer func() { err = errors.Join(err, r.close()) }()
		rigs[i] = r
	}
	for i, r := range rigs {
		each, err := r.m.follow(ctx, &following{Wire: wireCapnp, Addresses: r.m.addresses, Refs: r.w.refs, Last: r.w.last, FromEnd: true, Followers: l.followers, Dir: filepath.Join(r.dir, "followers")})
		if err != nil {
			return nil, err
		}
		memory[i] = []float64{each / 1024}
	}
	for round := range b.opts.rounds {
		b.progress.Printf("%s, round %d of %d", l.label(), round+1, b.opts.rounds)
		for i, r := range rigs {
			x, _, err := r.round(ctx, "")
			if err != nil {
				return nil, err
			}
			cpu[i] = append(cpu[i], x.server.Seconds()*1e6)
		}
		b.progress.Printf("%s: %.2f µs of the server's CPU, of %d events %.2f", l.label(), cpu[0][round], l.short, cpu[1][round])
	}
	short := fmt.Sprintf("of %d events", l.short)
	return []figure{
		compared("the server's memory of a follower, KB", short, memory[0], memory[1], 1, "ratio ≤ 1.1"),
		compared("the server's CPU of a delivery, µs", short, cpu[0], cpu[1], 2, "ratio ≤ 1.1"),
	}, nil
}

// afterLog has a session get its events, from a server that ends afterwards, so that nothing of their commits is left in the
// memory of the one that is measured.
func (b *bench) afterLog(ctx context.Context, dir string, events int, c benchCase) (_ *rig, err error) {
	at := serving{Kind: kindMooring, Dir: filepath.Join(dir, "server")}
	first := &side{}
	a, err := first.serve(ctx, at)
	if err != nil {
		return nil, errors.Join(err, first.stop())
	}
	w, err := newWriter(ctx, filepath.Join(dir, "log"), a.Owner, 1)
	if err == nil {
		w.payload = logPayloadBytes
		err = errors.Join(w.publish(ctx, benchCase{sessions: 1, events: events, batch: logBatch}), w.client.Close())
	}
	if err := errors.Join(err, first.stop()); err != nil {
		return nil, err
	}
	r := &rig{c: c, dir: dir, m: &side{}, plain: &side{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.close())
		}
	}()
	if _, err := r.m.serve(ctx, at); err != nil {
		return nil, err
	}
	if r.w, err = openWriter(ctx, filepath.Join(dir, "writer")); err != nil {
		return nil, err
	}
	ref, err := capability.ParseRef(w.refs[0])
	if err != nil {
		return nil, err
	}
	ref.Hosts = r.m.addresses
	s, err := r.w.client.Session(ctx, ref)
	if err != nil {
		return nil, err
	}
	r.w.sessions, r.w.refs, r.w.last = append(r.w.sessions, s), w.refs, w.last
	return r, nil
}
