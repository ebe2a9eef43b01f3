//go:build unix

// A follower of three servers (followers_test.go): its subscriptions over either wire or within the process, and what it
// has seen, held against the log.

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// onlooker is one subscription of a follower. It is its sink, over either wire.
type onlooker struct {
	c        *crowd
	of       *crowdRef
	keys     []string // asked for; nil: all
	from     uint64   // where it began
	leave    func()
	subbed   *rpc.Promise // over Cap'n Proto
	mu       sync.Mutex
	changed  chan struct{}
	got      []seenEvent
	hash     []byte // of the last one
	ended    *fault.Error
	left     bool
	holding  bool
	held     []func()
	unacked  int // bytes,
	unackedN int // in so many calls
	most     int // bytes that were unacked in several calls
}

type seenEvent struct {
	cursor      uint64
	hidden      bool
	method, key string
}

// subscribe follows over some wire at some server.
func (o *onlooker) subscribe(hash []byte) {
	s := pick(o.c, o.c.servers)
	switch n := o.c.rnd.IntN(10); {
	case n < 7:
		o.subscribePlain(s, hash)
	case n < 9:
		o.subscribeWeb(s)
	default:
		o.followInProcess(s, hash)
	}
}

func (o *onlooker) subscribePlain(s *crowdServer, hash []byte) {
	n := o.c.rnd.IntN(len(s.peers))
	at := placeOf{n, o.of.ref.ID}
	if s.sessions[at] == nil {
		s.sessions[at] = s.peers[n].restore(o.of.ref)
	}
	sink := rpc.NewLocal(o)
	defer sink.Release()
	o.subbed = s.sessions[at].Call(within(o.c.t), methods.SessionSubscribe.Method, methods.SessionSubscribe.Params, func(p capnp.Struct, caps *rpc.CapTable) error {
		to, err := wire.Session_subscribe_Params(p).NewOptions()
		if err != nil {
			return err
		}
		to.SetFrom(o.from)
		if err := to.SetHash(hash); err != nil {
			return err
		}
		features, err := to.NewUnderstands(1)
		if err == nil {
			err = features.Set(0, "keys")
		}
		if err != nil {
			return err
		}
		if o.keys != nil {
			list, err := to.NewKeys(int32(len(o.keys)))
			if err != nil {
				return err
			}
			for i, k := range o.keys {
				if err := list.Set(i, k); err != nil {
					return err
				}
			}
		}
		return caps.Set(p, 1, sink)
	})
	sub := o.subbed.Cap(0)
	o.leave = func() {
		sub.Release()
		o.subbed.Release()
	}
	o.c.t.Cleanup(sub.Release)
}

func (o *onlooker) subscribeWeb(s *crowdServer) {
	n := o.c.rnd.IntN(len(s.webs))
	w, at := s.webs[n], placeOf{n, o.of.ref.ID}
	if s.webSessions[at] == nil {
		s.webSessions[at] = w.restore(o.of.ref)
	}
	options := object{"from": float64(o.from), "understands": []any{"keys"}}
	if o.keys != nil {
		var list []any
		for _, k := range o.keys {
			list = append(list, k)
		}
		options["keys"] = list
	}
	sub, err := w.ask(s.webSessions[at], "subscribe", options, webOnlooker{o})
	if err != nil {
		o.c.t.Fatalf("subscribe over the web: %v", err)
		return
	}
	o.leave = func() { sub.(*capnweb.Stub).Release() }
}

func (o *onlooker) followInProcess(s *crowdServer, hash []byte) {
	live, err := s.server.Caller(o.c.t.Context(), "127.0.0.1:1").Restore(o.of.ref, "")
	if err != nil {
		o.c.t.Fatal(err)
	}
	keys, refused := session.SelectKeys(o.keys)
	if refused != nil {
		o.c.t.Fatal(refused)
	}
	after := fanout.Position{Cursor: o.from}
	copy(after.Hash[:], hash)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		err := live.Follow(ctx, after, keys, func(events []*session.Event) error {
			got, bytes := make([]seenEvent, len(events)), 0
			for i, e := range events {
				got[i], bytes = seenEvent{e.Cursor, e.Hidden, e.Method, e.Key}, bytes+len(e.Payload)
			}
			taken := make(chan struct{})
			o.take(got, events[len(events)-1].Hash[:], bytes, func() { close(taken) })
			select {
			case <-taken:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		var why *fault.Error
		if errors.As(err, &why) {
			o.end(why)
		}
	}()
	o.leave = func() {
		cancel()
		<-done
	}
	o.c.t.Cleanup(o.leave)
}

// Serve implements rpc.Object.
func (o *onlooker) Serve(c *rpc.Call) {
	s, _ := c.Params()
	done := func() { c.Return(batchtest.StructSize(0, 0), nil) }
	if c.Method().ID == methods.EventSinkEnded.ID {
		r, _ := wire.EventSink_ended_Params(s).Refusal()
		o.end(readRefusal(r))
		done()
		return
	}
	list, _ := wire.EventSink_events_Params(s).Events()
	got, bytes := make([]seenEvent, list.Len()), 0
	var hash []byte
	for i := range got {
		e := list.At(i)
		method, _ := e.Method()
		key, _ := e.Key()
		payload, _ := e.PayloadBytes()
		hash, _ = e.Hash()
		got[i], bytes = seenEvent{e.Cursor(), e.Hidden(), method, key}, bytes+len(payload)
	}
	o.take(got, slices.Clone(hash), bytes, done)
}

// webOnlooker is an onlooker that is called as a function.
type webOnlooker struct{ o *onlooker }

// Serve implements capnweb.Object.
func (w webOnlooker) Serve(c *capnweb.Call) {
	call := c.Args()[0].(object)
	if r, ended := call["ended"].(object); ended {
		w.o.end(&fault.Error{Code: fault.Code(number(r["code"])), At: number(r["at"])})
		c.Return(nil)
		return
	}
	var got []seenEvent
	bytes := 0
	for _, v := range call["events"].([]any) {
		e := v.(object)
		got = append(got, seenEvent{number(e["cursor"]), e["hidden"] == true, e["method"].(string), e["key"].(string)})
		bytes += len(e["payload"].(string))
	}
	w.o.take(got, nil, bytes, func() { c.Return(nil) })
}

// take keeps a delivery, and answers it now or later.
func (o *onlooker) take(got []seenEvent, hash []byte, bytes int, done func()) {
	o.mu.Lock()
	if !o.left {
		o.got, o.hash = append(o.got, got...), hash
	}
	o.unacked, o.unackedN = o.unacked+bytes, o.unackedN+1
	if o.unackedN > 1 {
		o.most = max(o.most, o.unacked)
	}
	answer := func() {
		o.mu.Lock()
		o.unacked, o.unackedN = o.unacked-bytes, o.unackedN-1
		o.mu.Unlock()
		done()
	}
	o.note()
	if o.holding {
		o.held = append(o.held, answer)
		o.mu.Unlock()
		return
	}
	o.mu.Unlock()
	answer()
}

func (o *onlooker) end(why *fault.Error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended != nil && !o.left {
		o.c.t.Errorf("told twice of the end: %v, %v", o.ended, why)
	}
	o.ended = why
	o.note()
}

// note wakes who waits for o. mu is held.
func (o *onlooker) note() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// hold has o answer nothing from now on, or all that it has not.
func (o *onlooker) hold(on bool) {
	o.mu.Lock()
	held := o.held
	if o.holding = on; on {
		held = nil
	} else {
		o.held = nil
	}
	o.mu.Unlock()
	for _, answer := range held {
		answer()
	}
}

// at is the last event that o has had, or is not shown. mu is held, or nothing comes any more.
func (o *onlooker) at() uint64 {
	at := max(o.from, max(o.of.grant.VisibleFrom, 1)-1)
	if n := len(o.got); n > 0 {
		at = o.got[n-1].cursor
	}
	return at
}

// until waits until o has all that it is to have.
func (o *onlooker) until(log []*session.Event) {
	deadline := time.After(patience)
	for {
		o.mu.Lock()
		done, changed := o.left || o.ended != nil || o.of.cut == 0 && o.at() >= uint64(len(log)), o.changed
		o.mu.Unlock()
		if done || o.refused() != nil {
			return
		}
		select {
		case <-changed:
		case <-time.After(50 * time.Millisecond): // a refused call tells no sink
		case <-deadline:
			o.c.t.Fatalf("a follower is at %d of %d, its cut at %d", o.at(), len(log), o.of.cut)
		}
	}
}

// refused is why o's call to subscribe was refused.
func (o *onlooker) refused() error {
	if o.subbed == nil {
		return nil
	}
	select {
	case <-o.subbed.Done():
		_, _, err := o.subbed.Wait(context.Background())
		return err
	default:
		return nil
	}
}

// check holds what o has seen against the log.
func (o *onlooker) check(i int, log []*session.Event) {
	o.mu.Lock()
	defer o.mu.Unlock()
	c, g := o.c, &o.of.grant
	asked := &capability.Grant{ReadKeys: o.keys}
	shows := func(key string) bool { return session.InScope(g, key) && session.InScope(asked, key) }
	at := max(o.from, max(g.VisibleFrom, 1)-1)
	for _, e := range o.got {
		what := fmt.Sprintf("subscription %d (%+v, keys %v, cut %d), at %d, was sent event %+v", i, *g, o.keys, o.of.cut, at, e)
		switch {
		case e.cursor <= at || e.cursor > uint64(len(log)) || !e.hidden && e.cursor != at+1:
			c.t.Fatalf("%s, which is not the next", what)
		case o.of.cut != 0 && e.cursor > o.of.cut:
			c.t.Errorf("%s, above the cut", what)
		case !e.hidden && (!shows(e.key) || e.key != log[e.cursor-1].Key || e.method != log[e.cursor-1].Method):
			c.t.Errorf("%s, which it is not shown", what)
		case e.hidden && slices.ContainsFunc(log[at:e.cursor], func(e *session.Event) bool { return shows(e.Key) }):
			c.t.Errorf("%s, which stands for one that it is shown", what)
		}
		at = e.cursor
	}
	refused := o.refused()
	switch {
	case o.left:
	case o.of.cut == 0 && (o.ended != nil || refused != nil):
		c.t.Errorf("subscription %d, whose ref lives, ended with %v, %v", i, o.ended, refused)
	case o.of.cut == 0:
	case refused != nil:
		if f, ok := fault.ParseReason(reasonOf(refused)); !ok || f.Code != o.of.why {
			c.t.Errorf("subscription %d was refused with %v, its ref is dead: %v", i, refused, o.of.why)
		}
	case o.ended == nil || o.ended.Code != o.of.why:
		c.t.Errorf("subscription %d ended with %v, its ref is dead: %v", i, o.ended, o.of.why)
	}
	if o.most > 1<<20 {
		c.t.Errorf("subscription %d had %d bytes unacked, its window is 1 MiB", i, o.most)
	}
}
