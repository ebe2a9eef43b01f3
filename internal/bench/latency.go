package main

// The time that one writer waits for one append, against what it cannot do without:
// a commit to the outbox, a commit to the server's database, a message there and
// back. All four are measured in turns, one at a time.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/rpc"
)

// latencyRow is one line of the table. Sum is that of an outbox commit, a
// server commit and an echo, made one after the other.
type latencyRow struct {
	db                   string
	append, sum          quantiles
	outbox, commit, echo quantiles
}

func (b *bench) latency(ctx context.Context, db string, r *report) (err error) {
	rig, err := b.newRig(ctx, db, "path")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	s, err := rig.takeSample(ctx, 1)
	if err != nil {
		return err
	}
	w, err := rig.newWriter(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.client.Close()) }()
	parts, err := b.newParts(ctx, db, s, b.opts.rounds*b.opts.appends+warmUp)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, parts.close(ctx)) }()
	echo, err := dialEcho(ctx, rig.owner)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, echo.close()) }()

	row := latencyRow{db: db}
	var appends, sums, outbox, commit, echoes []time.Duration
	for i := range b.opts.rounds*b.opts.appends + warmUp {
		a, err := timed(func() error {
			t, err := w.commit(ctx, 1)
			if err != nil {
				return err
			}
			return applied(ctx, t)
		})
		if err != nil {
			return err
		}
		o, err := timed(func() error { return parts.outbox.write(ctx, &parts.chunks[i]) })
		if err != nil {
			return err
		}
		c, err := timed(func() error { return parts.server.write(ctx, &parts.chunks[i]) })
		if err != nil {
			return err
		}
		e, err := timed(func() error { return echo.call(ctx) })
		if err != nil {
			return err
		}
		if i < warmUp {
			continue
		}
		appends, outbox, commit, echoes = append(appends, a), append(outbox, o), append(commit, c), append(echoes, e)
		sums = append(sums, o+c+e)
		if i%b.opts.appends == 0 {
			b.progress.Printf("%s, latency: %d of %d appends", db, i, b.opts.rounds*b.opts.appends)
		}
	}
	row.append, row.sum = quantilesOf(appends), quantilesOf(sums)
	row.outbox, row.commit, row.echo = quantilesOf(outbox), quantilesOf(commit), quantilesOf(echoes)
	r.latency = append(r.latency, row)
	err = b.profiled(db+"-latency", func() error {
		for range b.opts.appends {
			t, err := w.commit(ctx, 1)
			if err == nil {
				err = applied(ctx, t)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
	return errors.Join(err, w.settled(ctx))
}

// warmUp is how many appends do not count.
const warmUp = 20

func timed(f func() error) (time.Duration, error) {
	start := time.Now()
	err := f()
	return time.Since(start), err
}

// parts are the two bare commits: one op's rows each.
type parts struct {
	target         bareTarget
	outbox, server sink
	chunks         []chunk
}

func (b *bench) newParts(ctx context.Context, db string, s *sample, n int) (*parts, error) {
	target, err := b.bareTarget(ctx, db)
	if err != nil {
		return nil, err
	}
	p := &parts{target: target}
	rows := s.repeat(1, n)
	p.chunks = rows[0].cut(1)
	for i := range p.chunks {
		p.chunks[i].acked = nil // marking comes after the answer
	}
	t := technique{batches: 1, conns: 1, bulk: map[string]string{"postgres": "arrays", "sqlite": "rows"}[db]}
	err = target.prepare(ctx, rows)
	var clients, servers []share
	if err == nil {
		clients, err = target.clients(ctx, rows, t)
	}
	if err == nil {
		servers, err = target.servers(ctx, rows, t)
	}
	if err != nil {
		return nil, errors.Join(err, target.close(ctx))
	}
	p.outbox, p.server = clients[0].sink, servers[0].sink
	return p, nil
}

func (p *parts) close(ctx context.Context) error {
	return errors.Join(p.outbox.close(), p.server.close(), p.target.close(ctx))
}

// echo is a connection to the server, over which nothing is asked but hello,
// which it answers without its database.
type echo struct {
	conn    *rpc.Conn
	gateway *rpc.Ref
	ended   chan error
}

func dialEcho(ctx context.Context, ref capability.Ref) (*echo, error) {
	t, err := rpc.Dial(ctx, ref.URLs()[0], rpc.DialOptions{})
	if err != nil {
		return nil, err
	}
	e := &echo{conn: rpc.NewConn(t, rpc.Config{}), ended: make(chan error, 1)}
	go func() { e.ended <- e.conn.Run(context.WithoutCancel(ctx)) }()
	e.gateway = e.conn.Bootstrap(ctx)
	return e, nil
}

// call sends about as much as an append does and waits for the answer.
func (e *echo) call(ctx context.Context) error {
	p := e.gateway.Call(ctx, rpc.Method{Interface: wire.Gateway_TypeID, ID: 0, Name: "Gateway.hello"},
		capnp.ObjectSize{DataSize: 8, PointerCount: 1}, func(s capnp.Struct, _ *rpc.CapTable) error {
			h := wire.Gateway_hello_Params(s)
			h.SetVersion(wire.ProtocolVersion)
			return h.SetAgent(prose[:payloadBytes])
		})
	defer p.Release()
	results, _, err := p.Wait(ctx)
	if err != nil {
		return fmt.Errorf("hello: %w", err)
	}
	if wire.Gateway_hello_Results(results).Version() == 0 {
		return errors.New("hello: no version in the answer")
	}
	return nil
}

func (e *echo) close() error {
	e.gateway.Release()
	e.conn.Close("done")
	return <-e.ended
}
