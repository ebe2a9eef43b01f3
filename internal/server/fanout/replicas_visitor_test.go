//go:build unix

// A follower of three replicas (replicas_property_test.go), which holds every call it gets against the log.

package fanout

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// visitor is a follower, over all of its subscriptions.
type visitor struct {
	c    *cluster
	name string
	dice *dice

	mu    sync.Mutex
	visit *visit
}

// visit is one subscription of a follower; it is its sink.
type visit struct {
	f    *visitor
	l    *commonLog
	ref  string
	keys []string // asked for; nil: all
	pace int      // one of the paces
	sub  *Subscription

	mu    sync.Mutex
	at    Position      // the last event that it has had
	held  []func(error) // answers that it does not give
	calls int           // not answered,
	bytes int           // and what they had
	began bool
	left  bool
	over  bool
	why   *fault.Error
}

// The paces at which a follower answers.
const (
	atOnce  = iota
	soon    // within 40 ms
	slowly  // within 5 s
	never   // until all is calm
	busy    // its connection blocks at times
	failing // its sink breaks at times
	paces
)

// begin has f follow a session under a ref that lives.
func (f *visitor) begin() {
	l := oneOf(f.dice, f.c.logs...)
	l.mu.Lock()
	ref := oneOf(f.dice, l.refs...)
	l.mu.Unlock()
	row, g, _ := l.now(ref)
	v := &visit{f: f, l: l, ref: ref, pace: oneOf(f.dice, atOnce, atOnce, atOnce, soon, soon, slowly, never, busy, failing)}
	if f.dice.chance(20) {
		v.keys = oneOf(f.dice, []string{"todo/"}, []string{"part/", "todo/2"}, []string{"message/msg_1", "note/"})
	}
	if f.dice.chance(50) {
		v.at.Cursor = uint64(f.dice.n(int(row.Cursor) + 1))
	} else {
		v.at.Cursor = row.Cursor
	}
	if e := l.event(v.at.Cursor); e != nil && f.dice.chance(50) {
		v.at.Hash = clusterKey.Mask(g, e.Hash)
	}
	f.subscribe(v)
}

// subscribe begins a visit at some replica.
func (f *visitor) subscribe(v *visit) {
	r := oneOf(f.dice, f.c.replicas...)
	conns := r.conns
	if v.pace == never {
		conns = r.stopped
	}
	keys, refused := session.SelectKeys(v.keys)
	if refused != nil {
		f.c.fault("%v", refused)
	}
	v.sub = NewSubscription(SubscriptionConfig{Authority: &testAuthority{session: v.l.id, ref: v.ref}, Conn: oneOf(f.dice, conns...), Sink: v, Keys: keys,
		Window: oneOf(f.dice, MinWindow, 16<<10, 1<<20), MaxDelivery: oneOf(f.dice, 0, 0, 2000), After: v.at, OnStart: v.started})
	if g := v.grant(); v.at.Cursor+1 < g.VisibleFrom { // what comes before is not even hidden from it
		v.at = Position{Cursor: g.VisibleFrom - 1}
	}
	f.mu.Lock()
	f.visit = v
	f.mu.Unlock()
	if refused := r.hub.Subscribe(v.l.id, v.sub, nil); refused != nil {
		f.c.fault("%s is refused: %v", f.name, refused)
	}
}

func (f *visitor) current() *visit {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.visit
}

func (v *visit) grant() *capability.Grant {
	_, g, _ := v.l.now(v.ref)
	return g
}

// leave has f drop its connection, and come back: as a peer does whose link was cut, from its position and at any
// replica, or as another one if it was told its end.
func (f *visitor) leave(v *visit) {
	v.mu.Lock()
	over, left := v.over, v.left
	v.left = true
	again := &visit{f: f, l: v.l, ref: v.ref, keys: v.keys, pace: f.dice.n(paces), at: v.at}
	v.mu.Unlock()
	switch {
	case left:
	case over:
		f.begin()
	default:
		v.sub.End(nil)
		f.c.count(&f.c.returns, 1)
		f.subscribe(again)
	}
}

// goOn has f answer all that it has not, and come back if it has failed.
func (f *visitor) goOn() {
	v := f.current()
	v.mu.Lock()
	held := v.held
	v.held = nil
	broken := v.over && v.why != nil && v.why.Code == fault.Canceled
	again := &visit{f: f, l: v.l, ref: v.ref, keys: v.keys, at: v.at}
	v.mu.Unlock()
	for _, done := range held {
		done(nil)
	}
	if broken {
		f.subscribe(again)
	}
}

func (v *visit) started(_ string, refused *fault.Error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.began {
		v.f.c.fault("%s is told twice that it has begun", v.f.name)
	}
	v.began = true
	if refused != nil {
		v.over, v.why = true, refused
		if v.left {
			return
		}
		v.f.c.count(&v.f.c.refused, 1)
		v.judge(refused)
	}
}

// Events implements Sink.
func (v *visit) Events(shown *session.Shown, done func(error)) {
	f := v.f
	v.mu.Lock()
	switch {
	case v.left:
		v.mu.Unlock()
		done(nil)
		return
	case v.over, !v.began:
		f.c.fault("%s is sent events after its end (%v) or before its begin (%v)", f.name, v.over, v.began)
	}
	calm := f.c.isCalm()
	if v.pace == busy && f.dice.chance(20) && !calm {
		v.mu.Unlock()
		done(ErrWouldBlock)
		return
	}
	bytes := v.take(shown)
	if v.calls, v.bytes = v.calls+1, v.bytes+bytes; v.calls > 1 && v.bytes > v.sub.windowMax {
		f.c.fault("%s is sent %d bytes in %d deliveries, its window is %d", f.name, v.bytes, v.calls, v.sub.windowMax)
	}
	answer := func(err error) {
		v.mu.Lock()
		v.calls, v.bytes = v.calls-1, v.bytes-bytes
		v.mu.Unlock()
		done(err)
	}
	var err error
	switch {
	case calm:
	case v.pace == failing && f.dice.chance(5):
		err = errors.New("the sink is broken")
	case v.pace == soon:
		answer = after(time.Duration(f.dice.n(40))*time.Millisecond, answer)
	case v.pace == slowly:
		answer = after(time.Duration(f.dice.n(5000))*time.Millisecond, answer)
	case v.pace == never:
		v.held, answer = append(v.held, answer), func(error) {}
	}
	v.mu.Unlock()
	answer(err)
}

// after gives an answer later.
func after(wait time.Duration, answer func(error)) func(error) {
	return func(err error) { time.AfterFunc(wait, func() { answer(err) }) }
}

// take holds a delivery against the log, and returns its size. mu is held.
func (v *visit) take(shown *session.Shown) (bytes int) {
	f, l := v.f, v.l
	_, g, cut := l.now(v.ref)
	wrong := func(e *session.Event, format string, args ...any) {
		f.c.fault("%s (ref %+v, keys %v, cut %d), at %d, is sent event %d (%s, hidden %v): %s", f.name, *g, v.keys, cut, v.at.Cursor, e.Cursor, e.Key, e.Hidden, fmt.Sprintf(format, args...))
	}
	for _, e := range shown.Events {
		real := l.event(e.Cursor)
		if real == nil {
			wrong(e, "there is no such event")
			return bytes
		}
		if cut != 0 && e.Cursor > cut {
			wrong(e, "it is above the cut")
		}
		if e.Cursor < g.VisibleFrom {
			wrong(e, "it comes before the first that the ref shows")
		}
		if e.Session != l.id || e.Hash != clusterKey.Mask(g, real.Hash) {
			wrong(e, "it is another session's, or has another hash")
		}
		switch {
		case !e.Hidden && e.Cursor != v.at.Cursor+1, e.Cursor <= v.at.Cursor:
			wrong(e, "it is not the next")
		case !e.Hidden && (e.Key != real.Key || e.Method != real.Method || e.Method == session.MethodPut && e.Sum != real.Sum):
			wrong(e, "the log has %s", real.Key)
		case !e.Hidden && !v.shows(g, e):
			wrong(e, "the ref does not show it, or it was not asked for")
		case !e.Hidden && e.Method == session.MethodFinalize:
			var has, all embedded
			if json.Unmarshal(e.Payload, &has) != nil || json.Unmarshal(real.Payload, &all) != nil {
				wrong(e, "its payload is %s", e.Payload)
			}
			for i := len(all.Entries) - 1; i >= 0; i-- {
				if in := all.Entries[i]; !v.sees(g, in.Key) || in.Since < g.VisibleFrom && g.VisibleFrom > 1 {
					all.Entries = slices.Delete(all.Entries, i, i+1)
				}
			}
			if !slices.Equal(has.Entries, all.Entries) {
				wrong(e, "it embeds %v, its follower may see %v", has.Entries, all.Entries)
			}
		case e.Hidden && (e.Key != "" || e.Payload != nil):
			wrong(e, "it is not hidden")
		case e.Hidden:
			for cursor := v.at.Cursor + 1; cursor <= e.Cursor; cursor++ {
				if hidden := l.event(cursor); v.shows(g, hidden) {
					wrong(e, "the mark stands for %s at %d too", hidden.Key, cursor)
				}
			}
		}
		v.at = Position{e.Cursor, e.Hash}
		if !e.Hidden {
			bytes += real.Bytes()
		}
	}
	f.c.count(&f.c.events, len(shown.Events))
	if shown.Encoded(func([]*session.Event) any { return v }) != any(v) {
		f.c.count(&f.c.shared, 1)
	}
	return bytes
}

// shows says whether f is shown an event: one of a key that it sees, and the end of a turn of which it may see a part.
func (v *visit) shows(g *capability.Grant, e *session.Event) bool {
	_, message, _ := strings.Cut(e.Key, "/")
	prefix := "part/" + message + "/"
	touched := func(list []string) bool {
		return list == nil || slices.ContainsFunc(list, func(k string) bool {
			return strings.HasPrefix(k, prefix) || strings.HasSuffix(k, "/") && strings.HasPrefix(prefix, k)
		})
	}
	either := func(list []string) bool {
		return listed(list, e.Key) || e.Method == session.MethodFinalize && touched(list)
	}
	return ofMessage(g, e.Key) && either(g.ReadKeys) && either(v.keys)
}

// sees says whether f is shown a key, in words of its own.
func (v *visit) sees(g *capability.Grant, key string) bool {
	return ofMessage(g, key) && listed(g.ReadKeys, key) && listed(v.keys, key)
}

func ofMessage(g *capability.Grant, key string) bool {
	return g.Message == "" || key == "message/"+g.Message || strings.HasPrefix(key, "part/"+g.Message+"/")
}

func listed(list []string, key string) bool {
	return list == nil || slices.ContainsFunc(list, func(k string) bool { return key == k || strings.HasSuffix(k, "/") && strings.HasPrefix(key, k) })
}

// Ended implements Sink.
func (v *visit) Ended(why *fault.Error) bool {
	if v.pace == busy && v.f.dice.chance(50) && why != nil && !v.f.c.isCalm() {
		return false
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	switch {
	case v.left || v.over && why == nil: // it has left, or was refused
	case v.over:
		v.f.c.fault("%s is told its end twice: %v, %v", v.f.name, v.why, why)
	default:
		v.f.c.count(&v.f.c.ends, 1)
		v.judge(why)
	}
	if v.over, v.why = true, why; !v.left && !v.f.c.isCalm() { // another comes in its place
		time.AfterFunc(time.Duration(v.f.dice.n(300))*time.Millisecond, func() { v.f.leave(v) })
	}
	return true
}

// judge says whether this is a reason for the end. mu is held.
func (v *visit) judge(why *fault.Error) {
	row, g, cut := v.l.now(v.ref)
	switch {
	case why == nil:
	case why.Code == fault.Revoked && g.Revoked != 0, why.Code == fault.StaleEpoch && cut != 0:
		if v.f.c.count(&v.f.c.deadEnds, 1); row.Cursor > cut {
			v.f.c.count(&v.f.c.wentOn, 1)
		}
		return
	case why.Code == fault.Canceled && v.pace == failing, why.Code == fault.Draining:
		return
	}
	v.f.c.fault("%s, at %d of a ref that is cut at %d, is told %v", v.f.name, v.at.Cursor, cut, why)
}

// promises holds a follower that has answered everything against its log.
func (f *visitor) promises() {
	v := f.current()
	v.mu.Lock()
	defer v.mu.Unlock()
	row, g, cut := v.l.now(v.ref)
	if cut == 0 {
		f.c.count(&f.c.living, 1)
	}
	switch {
	case !v.began:
		f.c.fault("%s was not told whether it may follow", f.name)
	case cut != 0 && !v.over:
		f.c.fault("%s, at %d, was not told that its ref was cut at %d", f.name, v.at.Cursor, cut)
	case cut == 0 && v.over:
		f.c.fault("%s, whose ref lives, is over: %v", f.name, v.why)
	case cut == 0 && v.at.Cursor != max(row.Cursor, max(g.VisibleFrom, 1)-1):
		f.c.fault("%s is at %d of %d", f.name, v.at.Cursor, row.Cursor)
	}
}
