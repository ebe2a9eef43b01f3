package e2e

// A scripted agent that uses everything else: a long turn streamed over a cut
// link beside a second writer, every end state, a lapsed lease, fork, remove,
// conflict, atomic batches.

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rpctrace"
	"github.com/mooring-rpc/mooring/internal/session"
)

const deltaBatch = 20 // deltas in one batch

// writer is a client in this process that keeps what it committed.
type writer struct {
	t       *testing.T
	c       *client.Client
	acks    *acks // that c got
	ref     capability.Ref
	space   capability.Ref
	batches []planBatch
	results map[string][]client.Outcome
	known   *uint64           // the highest cursor that a result told of; of several writers together
	floors  map[string]uint64 // batch → known when it was committed
}

func newWriter(t *testing.T, ref, space capability.Ref) *writer {
	seenAcks := &acks{}
	c := openClientIn(rpctrace.With(t.Context(), seenAcks.see), t, client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir())})
	return &writer{t: t, c: c, acks: seenAcks, ref: ref, space: space, results: map[string][]client.Outcome{}, known: new(uint64), floors: map[string]uint64{}}
}

// beside is a writer under another ref, whose batches are told apart in time from w's.
func (w *writer) beside(ref capability.Ref) *writer {
	other := newWriter(w.t, ref, w.space)
	other.results, other.known, other.floors = w.results, w.known, w.floors
	return other
}

// send commits batches and gives their tickets.
func (w *writer) send(batches ...planBatch) []client.Ticket {
	w.t.Helper()
	p := plan{Space: w.space.Text(), Batches: batches}
	tickets, err := p.commit(bounded(w.t), w.c)
	if err != nil {
		w.t.Fatal(err)
	}
	w.batches = append(w.batches, batches...)
	for _, b := range batches {
		w.floors[b.ID] = *w.known
	}
	return tickets
}

// wait gives the outcomes of tickets, in order.
func (w *writer) wait(tickets ...client.Ticket) []client.Outcome {
	w.t.Helper()
	var all []client.Outcome
	for _, t := range tickets {
		got, err := t.Wait(bounded(w.t))
		if err != nil {
			w.t.Fatal(err)
		}
		w.results[t.Batch] = got
		for _, o := range got {
			*w.known = max(*w.known, o.Cursor)
		}
		all = append(all, got...)
	}
	return all
}

// do sends one batch of ops and waits.
func (w *writer) do(ops ...planOp) []client.Outcome {
	w.t.Helper()
	return w.wait(w.send(batch(w.ref, ops...))...)
}

// steadily sends n batches, each when the one before is answered, in the
// background. The function it gives waits for the last and gives their tickets.
func (w *writer) steadily(n int, ops func(i int) []planOp) func() []client.Ticket {
	done := make(chan struct{})
	var tickets []client.Ticket
	var failed error
	go func() {
		defer close(done)
		for i := range n {
			p := plan{Batches: []planBatch{batch(w.ref, ops(i)...)}}
			w.batches = append(w.batches, p.Batches...)
			ctx := bounded(w.t) // for each: how long all take depends on the cuts
			t, err := p.commit(ctx, w.c)
			if err == nil {
				_, err = t[0].Wait(ctx)
			}
			if err != nil {
				failed = err
				return
			}
			tickets = append(tickets, t...)
		}
	}()
	return func() []client.Ticket {
		w.t.Helper()
		<-done
		if failed != nil {
			w.t.Fatal(failed)
		}
		return tickets
	}
}

// must is do for ops that must apply.
func (w *writer) must(ops ...planOp) []client.Outcome {
	w.t.Helper()
	got := w.do(ops...)
	if err := client.Results(got).Err(); err != nil {
		w.t.Fatal(err)
	}
	return got
}

// refusedWith is do for one op that must be recorded as refused.
func (w *writer) refusedWith(status client.OutcomeStatus, reason fault.Code, o planOp) client.Outcome {
	w.t.Helper()
	got := w.do(o)[0]
	if got.Status != status || got.Reason != reason {
		w.t.Errorf("%s %s: %s %s, want %s %s", o.Method, canonical(o.Args), got.Status, got.Reason, status, reason)
	}
	return got
}

func begin(message string, more map[string]any) planOp {
	payload := map[string]any{"id": message, "role": "assistant", "time": map[string]any{"created": 1}}
	for k, v := range more {
		payload[k] = v
	}
	return op("begin", arg("message", message), arg("payload", payload))
}

func finalize(message, status string, more ...planArg) planOp {
	return op("finalize", append([]planArg{arg("message", message), arg("status", status)}, more...)...)
}

func textPart(message, id string) planOp {
	return put("part/"+message+"/"+id, map[string]any{"id": id, "type": "text", "text": "", "time": map[string]any{"start": 1}})
}

// delta is one piece of streamed text at an offset; it gives the next offset.
func delta(key string, offset uint64, n int) (planOp, uint64) {
	text := fmt.Sprintf("%d ä🙂 and what else a model says at a time, ", n)
	return op("appendText", arg("key", key), arg("offset", offset), arg("text", text)), offset + uint64(len(text))
}

func TestScriptedAgent(t *testing.T) {
	onBoth(t, func(t *testing.T, db database) {
		scriptedAgent(t, db, 1000, 5) // 10,000 deltas: script_slow_test.go
	})
}

// scriptedAgent is the whole story, with a turn of so many deltas, compared at so
// many cursors, and some more.
func scriptedAgent(t *testing.T, db database, deltas, snapshots int) {
	t.Helper()
	r := newRand(t)
	url, count := db.url(t), meter(nil)
	if url != "" {
		url, count = throughMeter(t, url)
	}
	srv := startServer(t, serverConfig{URL: url, Args: []string{"--turn-lease", "2s"}})
	if count == nil {
		count = func() uint64 { return ioBytes(t, srv) }
	}
	space := srv.owner()
	a := newWriter(t, space.New(capability.SessionPrefix+ulid.Make().String()), space)
	share, reader := space.New(a.ref.Target()), space.New(a.ref.Target())
	if err := client.Results(a.wait(a.send(creating(a.ref,
		put("session", map[string]any{"id": "s", "title": "scripted"}),
		shareOp(share, "owner/second", "read", "append"), shareOp(reader, "", "read")))...)).Err(); err != nil {
		t.Fatal(err)
	}
	b := a.beside(share)

	streamLongTurn(t, r, srv, count, a, b, deltas)
	endEveryWay(t, a, b)
	refuseAndAbort(t, a)
	lapseAndResume(t, a)
	forked := fork(t, a, reader)

	w := newWorld()
	s := view(t, openClient(t), reader)
	log := readLog(t, s)
	w.logs[a.ref.Target()] = log
	w.watch(a.ref.Target(), someCursors(r, log, snapshots))
	checkLog(t, log, append(append([]planBatch(nil), a.batches...), b.batches...))
	w.replayMixed(t, a.ref.Target(), map[string][]planBatch{"a": batchesFor(a.batches, a.ref.Target()), "b": b.batches}, a.results, a.floors)
	checkState(t, w.session(a.ref.Target()), mustSnapshot(t, s, 0))
	for at, m := range w.seen {
		checkState(t, m, mustSnapshot(t, s, at))
	}
	if len(w.seen) < snapshots {
		t.Errorf("%d snapshots only", len(w.seen))
	}
	fs := view(t, openClient(t), forked)
	w.logs[fs.ID()] = readLog(t, fs)
	w.replay(t, batchesFor(a.batches, fs.ID()), "a", a.results)
	checkState(t, w.session(fs.ID()), mustSnapshot(t, fs, 0))
}

func shareOp(ref capability.Ref, actor string, rights ...string) planOp {
	o := op("share", arg("ref", ref.ID), arg("hash", hashText(ref.Secret.Hash())), arg("rights", rights))
	if actor != "" {
		o.Args = append(o.Args, arg("actor", actor))
	}
	return o
}

// streamLongTurn streams the deltas while the link is cut again and again and a
// second writer appends. What a delta costs the server is measured in quiet, at
// the beginning and at the end.
func streamLongTurn(t *testing.T, r *rand.Rand, srv *server, count meter, a, b *writer, deltas int) {
	t.Helper()
	a.must(begin("m1", nil), textPart("m1", "p1"),
		put("part/m1/p2", map[string]any{"type": "tool", "state": map[string]any{"status": "running", "time": map[string]any{"start": 5}}}),
		put("part/m1/p3", map[string]any{"type": "tool", "state": map[string]any{"status": "pending"}}))
	offset, n := uint64(0), 0
	piece := func(count, ahead int) {
		var tickets []client.Ticket
		for range count / deltaBatch {
			var ops []planOp
			for range deltaBatch {
				var o planOp
				o, offset = delta("part/m1/p1", offset, n)
				n++
				ops = append(ops, o)
			}
			tickets = append(tickets, a.send(batch(a.ref, ops...))...)
			if n := len(tickets); n > ahead { // as fast as it is answered, with a few ahead
				a.wait(tickets[n-1-ahead])
			}
		}
		if err := client.Results(a.wait(tickets...)).Err(); err != nil {
			t.Fatal(err)
		}
	}
	window := deltas / 10
	first := count.cost(func() { piece(window, 0) }) // one batch a transaction, so that there are as many each time

	link := cutAtRandom(t, r, srv.proxy, 150_000)
	second := b.steadily(100, func(i int) []planOp {
		return []planOp{put(fmt.Sprintf("message/b%d", i%7), map[string]any{"i": i}), put("session_diff", map[string]any{"diff": []any{i}})}
	})
	piece(deltas-2*window, 10)
	b.wait(second()...)
	link.end()
	_, repeatedA := a.acks.counts()
	_, repeatedB := b.acks.counts()
	t.Logf("%d cuts, answers swallowed before %d of them; %d and %d acks of what had been committed before", link.cuts, link.swallowed, repeatedA, repeatedB)
	if link.cuts < 4 {
		t.Errorf("the link was cut %d times only", link.cuts)
	}
	if link.swallowed == 0 || repeatedA+repeatedB == 0 {
		t.Errorf("answers were swallowed %d times, and %d acks told of duplicates", link.swallowed, repeatedA+repeatedB)
	}

	last := count.cost(func() { piece(window, 0) })
	t.Logf("the server read and wrote %d bytes for the first %d deltas and %d for the last", first, window, last)
	// Were the text so far handled with every batch, it would be many times as much.
	if n != deltas || last > 3*first {
		t.Errorf("%d deltas; the last %d cost %d bytes, the first %d: not flat", n, window, last, first)
	}
	late := finalize("m1", "completed", arg("usage", map[string]any{"output": deltas}),
		arg("parts", []any{map[string]any{"id": "p4", "payload": map[string]any{"type": "text", "text": "end"}}}))
	a.must(late)
	if got := a.must(late)[0]; !strings.Contains(string(got.Result), `"unchanged":true`) {
		t.Errorf("an equal finalize: %s", got.Result)
	}
	a.refusedWith(client.Rejected, fault.TurnEnded, finalize("m1", "failed"))
	a.must(put("part/m1/p9", map[string]any{"type": "late"}))
	o, _ := delta("part/m1/p1", offset, n)
	a.refusedWith(client.Rejected, fault.TurnEnded, o)
	a.refusedWith(client.Rejected, fault.TurnEnded, begin("m1", nil))
}

// endEveryWay ends turns in every state and by whoever may.
func endEveryWay(t *testing.T, a, b *writer) {
	t.Helper()
	d, end := delta("part/m2/p1", 0, 1)
	a.must(begin("m2", nil), textPart("m2", "p1"), d, finalize("m2", "failed", arg("error", map[string]any{"name": "Broken"})))
	a.must(begin("m3", map[string]any{"time": map[string]any{"completed": 7}}), textPart("m3", "p1"), finalize("m3", "aborted"))
	b.must(begin("m4", nil), textPart("m4", "p1"))
	a.refusedWith(client.Rejected, fault.NotYourTurn, finalize("m4", "completed"))
	d, _ = delta("part/m4/p1", 0, 1)
	a.refusedWith(client.Rejected, fault.NotYourTurn, d)
	b.refusedWith(client.Rejected, fault.WrongOffset, op("appendText", arg("key", "part/m4/p1"), arg("offset", end), arg("text", "x")))
	a.must(finalize("m4", "aborted", arg("completed", 99)))
	b.refusedWith(client.Rejected, fault.TurnEnded, d)
	b.refusedWith(client.Denied, fault.MissingRight, op("bumpEpoch"))
}

// refuseAndAbort does removes, conflicts and atomic batches.
func refuseAndAbort(t *testing.T, a *writer) {
	t.Helper()
	a.must(put("model/openai/x", map[string]any{"id": "x"}), put("message/gone", map[string]any{"a": 1}))
	at := a.must(op("remove", arg("key", "message/gone")), op("remove", arg("key", "message/gone")), op("remove", arg("key", "part/m2/p1")))[2].Cursor

	stale := put("session", map[string]any{"title": "stale"})
	old := arg("", at-1)
	stale.Expected = &old
	if got := a.refusedWith(client.Conflict, fault.Conflict, stale); got.Cursor != at {
		t.Errorf("the conflict names cursor %d, not %d", got.Cursor, at)
	}
	right := arg("", at)
	stale.Expected = &right
	a.must(stale)

	good := batch(a.ref, put("message/at1", map[string]any{"n": 1}), put("message/at2", map[string]any{"n": 2}))
	good.Atomic = true
	bad := batch(a.ref, put("message/at3", map[string]any{"n": 1}), op("appendText", arg("key", "part/none/p"), arg("offset", 0), arg("text", "x")), put("message/at4", map[string]any{"n": 2}))
	bad.Atomic = true
	for _, o := range a.wait(a.send(bad, good)...)[:3] {
		if o.Status != client.BatchAborted {
			t.Errorf("op of the atomic batch: %s", o.Status)
		}
	}
}

// lapseAndResume lets two turns lapse and goes on with them, once by an op that
// makes an event and once by one that does not.
func lapseAndResume(t *testing.T, a *writer) {
	t.Helper()
	s := view(t, a.c, a.ref)
	for _, m := range []string{"m5", "m6"} {
		d, next := delta("part/"+m+"/p1", 0, 1)
		a.must(begin(m, nil), textPart(m, "p1"), d)
		state := func() string {
			for _, turn := range mustSnapshot(t, s, 0).Turns {
				if turn.Message == m {
					return turn.Status
				}
			}
			return ""
		}
		eventually(t, m+" is interrupted", func() bool { return state() == client.Interrupted })
		if m == "m5" {
			d, _ = delta("part/m5/p1", next, 2)
			a.must(d)
		} else {
			a.must(op("remove", arg("key", "part/m6/none")))
		}
		if got := state(); got != client.Streaming {
			t.Errorf("%s is %s after its own stream came back", m, got)
		}
	}
	a.must(finalize("m5", "completed"))
	a.must(finalize("m6", "completed"))
}

// fork forks the session, read through a read-only ref, and goes on in the copy.
func fork(t *testing.T, a *writer, reader capability.Ref) (forked capability.Ref) {
	t.Helper()
	forked = a.space.New(capability.SessionPrefix + ulid.Make().String())
	b := forking(forked, reader, 0, put("message/fork", map[string]any{"n": 1}))
	if err := client.Results(a.wait(a.send(b)...)).Err(); err != nil {
		t.Fatal(err)
	}
	return forked
}

// someCursors gives n random cursors of a log, and with them those of its rarer events.
func someCursors(r *rand.Rand, log []session.Event, n int) []uint64 {
	var at []uint64
	for _, i := range r.Perm(len(log))[:n] {
		at = append(at, uint64(i)+1)
	}
	for _, e := range log {
		if e.Method == session.MethodInterrupted || e.Method == session.MethodResumed {
			at = append(at, e.Cursor)
		}
	}
	return at
}
