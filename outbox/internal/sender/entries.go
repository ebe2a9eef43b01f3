package sender

// Rows as entries of the machine, with their routes, and routes as requests for a Link.

import (
	"bytes"
	"context"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"github.com/mooring-rpc/mooring/outbox/internal/machine"
	"github.com/mooring-rpc/mooring/outbox/internal/sqlstore"
)

// routedEntry returns a row with seqs as an entry with its route.
func (l *loop) routedEntry(r *sqlstore.BatchRow, bd *intent.Batch, pin uint64) *machine.Entry {
	e := r.Entry(bd, pin)
	l.setRoute(e)
	return e
}

// unsequencedEntry returns the entry of a batch for which a stream is to be opened. It has the
// ops that finding the route takes, not the batch: that is read when the stream is open, and
// very many streams may wait for a server that is away.
func (l *loop) unsequencedEntry(r *sqlstore.BatchRow, bd *intent.Batch) *machine.Entry {
	first := intent.Op{ID: bd.Ops[0].ID, Method: bd.Ops[0].Method}
	if intent.CreatesSession(first.Method) {
		for _, a := range bd.Ops[0].Args {
			if a.Ref == nil && (a.Name == "ref" || a.Name == "via") {
				first.Args = append(first.Args, ledger.Arg{Name: a.Name, JSON: bytes.Clone(a.JSON)})
			}
		}
	}
	e := &machine.Entry{Num: r.Num, ID: r.ID, Session: r.Session, Via: r.Via, Body: &intent.Batch{Ops: []intent.Op{first}}, Attempts: r.Attempts}
	l.setRoute(e)
	return e
}

// damagedEntry returns the entry of a row that cannot be read: its stream stops there.
func (l *loop) damagedEntry(r *sqlstore.BatchRow, err error) *machine.Entry {
	e := r.Entry(&intent.Batch{Ops: []intent.Op{{ID: r.ID, Method: ledger.MethodVoid}}}, 0)
	e.Damaged = true
	_, e.RouteErr = machine.ClassifyError(err)
	return e
}

// setRoute sets an entry's route, or the error that prevents one.
func (l *loop) setRoute(e *machine.Entry) {
	if e.Damaged {
		return
	}
	to, err := l.Refs.Resolver().RouteOf(l.ctx, e.Session, e.Via, e.Body)
	e.Route, e.RouteErr, e.RetryRoute = to, nil, false
	if err != nil {
		var what machine.ErrorClass
		what, e.RouteErr = machine.ClassifyError(err)
		e.RetryRoute = what == machine.RetryHost || what == machine.RetryStream
	}
}

// deferRoute holds an entry back until its route is looked up again, in an event of its own.
func (l *loop) deferRoute(e *machine.Entry) {
	e.Route.Rotating = true
	l.postAsync(func(now time.Time) {
		l.setRoute(e)
		if s := l.m.Streams[e.Session]; s != nil {
			l.m.Step(s, now)
		}
	})
}

// rerouteAll looks up again the routes of all entries that are not in flight. An entry in
// flight keeps its route until it is answered or sent again.
func (l *loop) rerouteAll(now time.Time) {
	for _, s := range l.m.Streams {
		l.rerouteStream(s, now)
	}
}

func (l *loop) rerouteStream(s *machine.Stream, now time.Time) {
	for _, e := range s.Queue {
		l.setRoute(e)
	}
	if s.Unsequenced != nil {
		l.setRoute(s.Unsequenced)
	}
	l.m.Step(s, now)
}

// pinSeqOf returns the lowest seq of its own stream that an unfinished batch refers to.
func (l *loop) pinSeqOf(session string, bd *intent.Batch) (pin uint64, err error) {
	needs := bd.ExternalRefs()
	if len(needs) == 0 {
		return 0, nil
	}
	err = l.W.DB.Read(l.ctx, func(q sqlstore.Querier) error {
		for _, id := range needs {
			f, err := l.T.FindOp(l.ctx, q, id, "")
			switch {
			case f.Row == nil && err != nil:
				return err
			case f.Row == nil || f.Row.Session != session:
				continue
			}
			if seq := f.Seq(); seq > 0 && (pin == 0 || seq < pin) {
				pin = seq
			}
		}
		return nil
	})
	return pin, err
}

// Request turns a route into a StreamRequest.
func (s *Sender) Request(ctx context.Context, session string, to machine.Route, incarnation int64) (StreamRequest, error) {
	secret, err := s.streamSecret(ctx, session)
	if err != nil {
		return StreamRequest{}, err
	}
	req := StreamRequest{Session: session, Outbox: s.Outbox, Secret: secret, Incarnation: uint64(incarnation),
		Redemptions: make(map[string]string)}
	get := func(id string) (capability.Ref, error) {
		r, err := s.Refs.Resolver().Ref(ctx, id)
		if err == nil {
			req.Redemptions[id] = r.Redemption
		}
		return r.Ref, err
	}
	own, err := get(to.Ref)
	if to.Space == "" {
		req.Ref = own
		return req, err
	}
	space, err2 := get(to.Space)
	if err2 != nil {
		return req, err2
	}
	if err != nil {
		own = space.With(to.Ref, capability.Secret{}) // the batch mints it, wherever its secret is stored
	}
	req.Ref, req.SpaceRef, req.OwnerRef = own, &space, to.Ref
	if to.ForkVia != "" {
		with, err := get(to.ForkVia)
		if err != nil {
			return req, err
		}
		req.LiveRefs = []capability.Ref{with}
	}
	return req, nil
}

// streamSecret returns the secret by which the session's server knows the outbox.
func (s *Sender) streamSecret(ctx context.Context, session string) (capability.Secret, error) {
	var old bool
	var life string
	err := s.Read(ctx, "open the stream", func(ctx context.Context, q sqlstore.Querier) (err error) {
		old, life, err = s.T.StreamSecretOf(ctx, q, session)
		return err
	})
	switch {
	case old && !s.OldSecret.IsZero():
		return s.OldSecret, err
	case life != "":
		return s.Secret.StreamSecret(session + "\x00" + life), err // no session id has a zero byte
	}
	return s.Secret.StreamSecret(session), err
}
