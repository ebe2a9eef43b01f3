package decide_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// ordered is the state as it is read: its keys in the session's order, each message with
// its parts.
func (o *writer) ordered() string {
	entries, _ := o.w.store.State(o.session)
	session.SortDocument(entries, func(e *session.Entry) *session.Entry { return e })
	var keys []string
	for _, e := range entries {
		keys = append(keys, e.Key[strings.IndexByte(e.Key, '/')+1:])
	}
	return strings.Join(keys, " ")
}

func TestTheOrderIsTheLogs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	for _, n := range []int{1, 2, 3, 9, 10, 11} {
		o.apply(put(fmt.Sprint("message/msg_", n)))
	}
	mustEqual(t, "first puts", o.ordered(), "msg_1 msg_2 msg_3 msg_9 msg_10 msg_11")
	o.apply(op("put", "key", "message/msg_2", "payload", raw(`{"again":1}`)))
	mustEqual(t, "a later put", o.ordered(), "msg_1 msg_2 msg_3 msg_9 msg_10 msg_11")
	o.apply(op("remove", "key", "message/msg_2"))
	o.apply(op("purge", "key", "message/msg_3"))
	o.apply(put("message/msg_3"))
	o.apply(put("message/msg_2"))
	mustEqual(t, "put again after a remove and a purge", o.ordered(), "msg_1 msg_9 msg_10 msg_11 msg_3 msg_2")
	// The same within one group, in which the first put and the last are one row.
	o.apply(op("begin", "message", "msg_9", "payload", raw(`{"begun":1}`)))
	w.commit(o.batch(false, op("remove", "key", "message/msg_1"), put("message/msg_1")))
	mustEqual(t, "in one group", o.ordered(), "msg_9 msg_10 msg_11 msg_3 msg_2 msg_1")
	mustEqual(t, "a put that is undone", func() string {
		w.commit(o.batch(true, op("remove", "key", "message/msg_10"), put("message/msg_10"), put("ref/x")))
		return o.ordered()
	}(), "msg_9 msg_10 msg_11 msg_3 msg_2 msg_1")
}

// The values of one event have its order: those of a turn's end by key, those of a
// fork in its source's.
func TestTheOrderWithinAnEvent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	o.apply(put("part/m/z"))
	o.apply(op("finalize", "message", "m", "status", "completed", "parts", raw(`[{"id":"y","payload":{}},{"id":"a","payload":{}},{"id":"z","payload":{"n":1}}]`)))
	o.apply(put("message/l"))
	mustEqual(t, "a turn's end", o.ordered(), "m m/z m/a m/y l")
	for _, at := range []any{nil, w.store.Session(o.session).Cursor - 1} {
		f := w.newWriter()
		f.with = []string{o.ref}
		args := []any{"source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)}
		want := "m m/z m/a m/y l"
		if at != nil {
			args, want = append(args, "at", at), "m m/z m/a m/y"
		}
		f.apply(op("fork", args...))
		mustEqual(t, "a fork", f.ordered(), want)
		f.apply(put("message/a"))
		mustEqual(t, "a fork that goes on", f.ordered(), want+" a")
	}
}

// opencode's ids at a time: their clock has 36 bits.
func opencodeID(kind string, ms int64, n int) string {
	return fmt.Sprintf("%s_%012xAAAAAAAAAAAAAA", kind, (ms<<12+int64(n))&(1<<48-1))
}

func TestAnOrderOfTimes(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	const wrap = 26 << 36 // 2026-08-14T11:19:55.136Z: from then on ids begin anew
	w.store.Now = wrap + 3_600_000
	o := w.create("order", "time")
	mustEqual(t, "the row's", w.store.Session(o.session).Order, session.ByTime)
	var want []string
	var puts []anOp
	for i, at := range []int64{-3600_000, -60_000, -1, 0, 1_000, 60_000} {
		m := opencodeID("msg", wrap+at, i)
		p1, p2 := opencodeID("prt", wrap+at+1, i), opencodeID("prt", wrap+at+2, i)
		want = append(want, m, m+"/"+p1, m+"/"+p2)
		puts = append(puts, op("put", "key", "message/"+m, "payload", raw(`{"time":{"created":%d}}`, wrap+at)), put("part/"+m+"/"+p2), put("part/"+m+"/"+p1))
	}
	for _, i := range []int{15, 16, 17, 0, 1, 2, 9, 10, 11, 3, 4, 5, 12, 13, 14, 6, 7, 8} { // as an outage brings them
		o.apply(puts[i])
	}
	mustEqual(t, "over the instant at which ids begin anew", o.ordered(), strings.Join(want, " "))
	// It is fixed at the first put.
	o.apply(op("put", "key", "message/"+want[0], "payload", raw(`{"time":{"created":%d}}`, int64(wrap+9_000_000))))
	mustEqual(t, "another time", o.ordered(), strings.Join(want, " "))
	f := w.newWriter()
	f.with = []string{o.ref}
	f.apply(op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref)))
	mustEqual(t, "a fork of it", f.ordered(), strings.Join(want, " "))
	o.apply(put("message/mine"))
	mustEqual(t, "a message without a time", o.ordered(), strings.Join(want, " ")+" mine")
	p := w.newWriter()
	p.refuse(ledger.Rejected, fault.BadArgument, op("create", "ref", p.ref, "hash", sha(p.ref), "order", "size"))
}

// OrdTracker come to what a Fold has, of any log.
func TestPlacesAreAFolds(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.stamped()
	s.begin("m1")
	s.put("m1", "a")
	s.put("m1", "b")
	s.grow("m1", "a")
	s.purge("part/m1/b")
	s.put("m1", "b")
	s.finalize("m1", "c")
	s.apply(op("remove", "key", "part/m1/a"))
	s.put("m1", "a")
	places := session.NewOrdTracker()
	for _, e := range w.store.Events(s.session) {
		places.Add(e)
	}
	for _, e := range w.folds[s.session].Entries() {
		if ord, since := places.Of(e.Key); ord != e.Ord || since != e.Since {
			t.Errorf("%s: %v since %d, the fold has %v since %d", e.Key, ord, since, e.Ord, e.Since)
		}
	}
	if ord, _ := places.Of("message/none"); ord != (session.Ord{}) {
		t.Errorf("none has %v", ord)
	}
}
