package main

// What connections cost the server that follow a session to which nothing happens.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// atRest is the memory of connections that follow a session and rest, on both wires beside those of a bare server: by how
// much the resident memory of a server's process grows from none to all of them, as it is some time after the last event
// has come. Nothing asks the process to collect garbage or to give memory back but what it does itself (package gctune).
type atRest struct {
	connections int
	rest        time.Duration
}

// restSpan is what package gctune needs to see that a process rests, and to collect four times.
const restSpan = 25 * time.Second

// warmed are connections that come and go before, so that what is made once does not count; initial are the events that
// each gets.
const warmed, initial = 50, 20

func (l atRest) label() string {
	return fmt.Sprintf("%d connections at rest that follow a session", l.connections)
}

func (l atRest) small() special {
	l.connections, l.rest = l.connections/20, l.rest/20
	return l
}

func (l atRest) measure(ctx context.Context, b *bench, dir string) (_ []figure, err error) {
	b.progress.Printf("%s: warming", l.label())
	wires := []string{wireCapnp, wireCapnweb, wireBare}
	sides, how := make([]*side, len(wires)), make([]following, len(wires))
	for i, wire := range wires {
		s := &side{}
		sides[i], how[i] = s, following{Wire: wire, Dir: filepath.Join(dir, wire+" followers")}
		defer func() { err = errors.Join(err, s.stop()) }()
		if wire == wireBare {
			if _, err := s.serve(ctx, serving{Kind: kindBare}); err != nil {
				return nil, err
			}
			how[i].Topics = 1
		} else {
			a, err := s.serve(ctx, serving{Kind: kindMooring, Dir: filepath.Join(dir, wire)})
			if err != nil {
				return nil, err
			}
			w, err := newWriter(ctx, filepath.Join(dir, wire+" writer"), a.Owner, 1)
			if err != nil {
				return nil, err
			}
			if err := errors.Join(w.put(ctx, 0, initial), w.client.Close()); err != nil {
				return nil, err
			}
			how[i].Refs, how[i].Last = w.refs, w.last
		}
		how[i].Addresses = s.addresses
		some := how[i]
		some.Followers = min(warmed, l.connections)
		if _, err := s.follow(ctx, &some); err != nil {
			return nil, err
		}
		if err := s.followers.Stop(); err != nil {
			return nil, err
		}
		s.followers = process{}
	}
	before, err := l.rested(ctx, b, sides, "none")
	if err != nil {
		return nil, err
	}
	for i, s := range sides {
		b.progress.Printf("%s: connecting, %s", l.label(), wires[i])
		if s.followers, err = startProcess(ctx); err != nil {
			return nil, err
		}
		how[i].Followers = l.connections
		if _, err := s.followers.ask(request{Follow: &how[i]}); err != nil {
			return nil, err
		}
	}
	after, err := l.rested(ctx, b, sides, "all")
	if err != nil {
		return nil, err
	}
	each := make([][]float64, len(sides))
	for i := range sides {
		each[i] = []float64{float64(after[i]-before[i]) / 1024 / float64(l.connections)}
	}
	return []figure{
		compared("the server's memory, capnp, KB each", "a bare server", each[0], each[2], 1, "≤ 16"),
		compared("the server's memory, capnweb, KB each", "a bare server", each[1], each[2], 1, "≤ 24"),
	}, nil
}

// rested is the memory of the servers when they have rested.
func (l atRest) rested(ctx context.Context, b *bench, sides []*side, connected string) (rss []int64, err error) {
	b.progress.Printf("%s: resting, %s connected", l.label(), connected)
	select {
	case <-time.After(l.rest):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	for _, s := range sides {
		a, err := s.servers[0].ask(request{Resident: true})
		if err != nil {
			return nil, err
		}
		rss = append(rss, a.Usage.RSS)
	}
	return rss, nil
}
