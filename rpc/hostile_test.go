// What a peer may make this vat hold, and what it may not: each test here is a way in which it once held more.

package rpc

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"runtime"
	"strings"
	"testing"
	"unicode/utf8"

	"capnproto.org/go/capnp/v3"
	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// hostile is a peer that says what it likes to a vat without goroutines. Nothing it is told is kept.
type hostile struct {
	testing.TB
	c     *Conn
	abort string // why the vat ended the connection
	said  []string
}

func newHostile(t testing.TB, boot Object, lim Limits) *hostile {
	h := &hostile{TB: t}
	h.c = NewConn(quiet{}, Config{Bootstrap: boot, Limits: lim, Trace: func(dir string, m rpccp.Message) {
		if dir == "out" {
			h.said = append(h.said, formatMessage(m))
		}
	}})
	h.c.loop.Manual = true
	t.Cleanup(h.end)
	return h
}

func (h *hostile) say(line string, args ...any) { h.sendRaw(frameOf(h, fmt.Sprintf(line, args...))) }

func (h *hostile) sendRaw(frame []byte) {
	h.c.mu.Lock()
	if h.c.ended == nil {
		if err := h.c.handle(frame); err != nil {
			h.abort = err.Error()
			h.c.loop.EndLocked(abortEnding(err))
		}
	}
	h.c.out.TakeMessages()
	h.c.unlockAndRun()
	h.deliver()
}

func (h *hostile) deliver() {
	h.c.loop.Deliver()
}

func (h *hostile) end() {
	h.c.Close("over")
	h.c.failOrphans()
	h.deliver()
}

// heard is whether the vat has said something that begins so, and forgets what it said.
func (h *hostile) heard(start string) bool {
	h.Helper()
	said := h.said
	h.said = nil
	for _, line := range said {
		if strings.HasPrefix(line, start) {
			return true
		}
	}
	h.Logf("it said %q", said)
	return false
}

// held is how much more memory is in use after f.
func held(f func()) int64 {
	before := heap()
	f()
	return int64(heap()) - int64(before)
}

// A table of capabilities that are none takes no room in a message; here it must not take any either.
func TestLargeTablesInSmallMessages(t *testing.T) {
	obj := &holdingObject{}
	h := newHostile(t, obj, Limits{})
	h.say("bootstrap q=0")
	used := held(func() {
		for q := 1; q <= 200 && h.abort == ""; q++ {
			h.sendRaw(emptyTable(t, uint32(q), 65000))
		}
	})
	if used > 1<<20 || !strings.Contains(h.abort, "65000 capabilities in a message of") {
		t.Errorf("200 small messages hold %d bytes; aborted with %q", used, h.abort)
	}
}

// emptyTable is a call with a table of n capabilities that take no bytes at all.
func emptyTable(t testing.TB, q uint32, n int32) []byte {
	msg, seg, err := capnp.NewMessage(capnp.SingleSegment(nil))
	if err != nil {
		t.Fatal(err)
	}
	var m must
	root := need[rpccp.Message](&m)(rpccp.NewRootMessage(seg))
	call := need[rpccp.Call](&m)(root.NewCall())
	call.SetQuestionId(q)
	call.SetMethodId(mHold.ID)
	m.ok(writeTestTarget(need[rpccp.MessageTarget](&m)(call.NewTarget()), "answer:0"))
	params := need[rpccp.Payload](&m)(call.NewParams())
	list := need[capnp.List](&m)(capnp.NewCompositeList(seg, capnp.ObjectSize{}, n))
	m.ok(params.SetCapTable(rpccp.CapDescriptor_List(list)))
	b, err := msg.Marshal()
	if m.ok(err); m.err != nil {
		t.Fatal(m.err)
	}
	return b
}

// What a table costs is counted with what the call holds.
func TestTablesCount(t *testing.T) {
	obj := &holdingObject{}
	h := newHostile(t, obj, Limits{AnswerBytes: 150 << 10})
	h.say("bootstrap q=0")
	table := strings.TrimSuffix(strings.Repeat("hosted:1,", 1000), ",")
	for q := 1; q <= 3; q++ {
		h.say("call q=%d to=answer:0 hold n=1 cap=%s", q, table)
	}
	if !h.heard("return a=3 exception overloaded") || len(obj.calls) != 2 {
		t.Errorf("%d calls hold %d capabilities", len(obj.calls), 1000*len(obj.calls))
	}
}

// A call that is returned and not finished holds its parameters no more.
func TestReturnedCallsHoldNoParameters(t *testing.T) {
	h := newHostile(t, newTestObject("boot"), Limits{})
	h.say("bootstrap q=0")
	text := strings.Repeat("x", 1<<20)
	used := held(func() {
		for q := 1; q <= 50; q++ {
			h.say("call q=%d to=answer:0 99 text=%s", q, text)
			h.said = nil
		}
	})
	if used > 5<<20 {
		t.Errorf("50 returned calls hold %d bytes", used)
	}
}

// Disembargoes that wait for an embargo of ours, which only the peer can lift, are bounded.
func TestWaitingDisembargoes(t *testing.T) {
	boot := newTestObject("boot")
	h := newHostile(t, boot, Limits{Answers: 100})
	h.say("bootstrap q=0")
	h.say("call q=1 to=answer:0 keep cap=promise:5")
	h.say("call q=2 to=answer:0 call cap=receiver:0") // a question number of ours, so that the model is simple
	boot.mu.Lock()
	kept := boot.kept.AddRef()
	boot.mu.Unlock()
	defer kept.Release()
	kept.Call(context.Background(), mEcho, testSize, nil).Release()
	h.say("call q=3 to=answer:0 kept") // the peer's promise, in an answer it may name
	h.say("resolve p=5 cap=receiver:0")
	if !h.heard("return a=0") || h.c.Stats().Embargoes != 1 {
		t.Fatalf("no embargo: %+v", h.c.Stats())
	}
	for i := 0; i < 1000 && h.abort == ""; i++ {
		h.say("disembargo sender=%d to=answer:3.1", i)
	}
	if !strings.Contains(h.abort, "100 disembargoes wait") {
		t.Errorf("aborted with %q", h.abort)
	}
}

// Results of our calls that turn out to be ours, while calls on them are on their way, without the disembargoes ever coming
// back.
func TestEmbargoesNeverLifted(t *testing.T) {
	h := newHostile(t, newTestObject("boot"), Limits{Imports: 100})
	h.say("bootstrap q=0")
	boot := h.c.Bootstrap(context.Background())
	defer boot.Release()
	for range 200 {
		p := boot.Call(context.Background(), mEcho, testSize, nil)
		x := p.Cap(1)
		x.Call(context.Background(), mEcho, testSize, nil).Release()
		h.say("return a=%d results cap=receiver:0", p.q.id)
		x.Release()
		p.Release()
		if n := h.c.Stats().Embargoes; n > 100 {
			t.Fatalf("%d embargoes", n)
		}
	}
	if err := h.c.Err(); err == nil || !strings.Contains(err.Error(), "100 disembargoes have not come back") {
		t.Errorf("ended with %v", err)
	}
}

// callFunc is an object that a function serves.
type callFunc func(*Call)

func (f callFunc) Serve(c *Call) { f(c) }

// A connection that ends while the calls held back by a lifted embargo are handed over, and a handler of theirs that calls
// on the same reference once more: nothing is left in the tables.
func TestEndWhileAnEmbargoDrains(t *testing.T) {
	var h *hostile
	var x *Ref
	call := func() {
		p := x.Call(context.Background(), mEcho, testSize, nil)
		t.Cleanup(p.Release)
	}
	served := 0
	h = newHostile(t, callFunc(func(c *Call) {
		served++
		if served == 1 {
			h.c.Close("in the middle")
			call()
			if n := h.c.Stats().QueuedCalls; n != 0 {
				t.Errorf("%d calls are queued on a connection that has ended", n)
			}
		}
		c.Return(capnp.ObjectSize{}, nil)
	}), Limits{})
	h.say("bootstrap q=0")
	boot := h.c.Bootstrap(context.Background())
	defer boot.Release()
	p := boot.Call(context.Background(), mEcho, testSize, nil)
	defer p.Release()
	x = p.Cap(1)
	defer x.Release()
	call()
	h.say("return a=%d results cap=receiver:0", p.q.id)
	call()
	if s := h.c.Stats(); s.Embargoes != 1 || s.QueuedCalls != 1 {
		t.Fatalf("no call is held back: %+v", s)
	}
	h.say("disembargo receiver=0 to=cap:0")
	if s := h.c.Stats(); served != 2 || s.QueuedCalls != 0 {
		t.Errorf("%d calls were served, %+v", served, s)
	}
}

// A promise of the peer that becomes another of its promises, and that yet another, without an end: the chain is bounded,
// and it is let go of one link after the other, not each within the one before.
func TestChainsOfPromises(t *testing.T) {
	obj := &holdingObject{}
	h := newHostile(t, obj, Limits{Imports: 1000})
	deepest, trace := 0, h.c.trace
	h.c.trace = func(dir string, m rpccp.Message) {
		deepest = max(deepest, runtime.Callers(0, make([]uintptr, 2000)))
		trace(dir, m)
	}
	chain := func(q, links int) {
		h.say("call q=%d to=answer:0 hold cap=promise:0", q)
		for i := range links {
			h.say("resolve p=%d cap=promise:%d", i%2, (i+1)%2)
		}
	}
	h.say("bootstrap q=0")
	chain(1, 1000)
	h.said = nil
	obj.calls[0].Fail(errCanceled)
	if !h.heard("release id=0") || h.c.Stats().Imports != 0 || deepest > 100 {
		t.Errorf("%d promises are held, and the last was let go of %d calls deep: %+v", h.c.resolvedImports, deepest, h.c.Stats())
	}
	if chain(2, 1000); h.abort != "" {
		t.Errorf("what was let go of counts still: %s", h.abort)
	}
	h.say("resolve p=0 cap=promise:1")
	if h.abort != "1000 promises that have resolved are held, the limit is 1000" {
		t.Errorf("aborted with %q", h.abort)
	}
}

// Promises of answers to come, passed back to this vat, are bounded over all answers.
func TestPromisesOfAnswers(t *testing.T) {
	obj := &holdingObject{}
	h := newHostile(t, obj, Limits{Answers: 50, QueuedCalls: 40})
	h.say("bootstrap q=0")
	for q := 1; q <= 10; q++ {
		h.say("call q=%d to=answer:0 hold", q)
	}
	for q := 1; q <= 10; q++ {
		for i := range 30 {
			h.say("call q=%d to=answer:0 hold cap=answer:%d.%d", 11, q, i)
			obj.calls[len(obj.calls)-1].Fail(errCanceled)
			h.say("finish q=11")
		}
	}
	pipes := 0
	for _, ans := range h.c.answers {
		pipes += len(ans.pipelined)
	}
	if pipes > 50 {
		t.Errorf("%d promises wait", pipes)
	}
	for _, call := range obj.calls {
		call.Fail(errCanceled)
	}
}

// A promise that stays open keeps nothing of a peer that has released it, or gone: no notices, no calls.
func TestOpenPromiseForgetsPeers(t *testing.T) {
	promise, resolve := NewPromise()
	defer promise.Release()
	defer resolve(nil, errCanceled)
	giver := objectFunc(func(call *Call) { call.Return(testSize, fill(0, "", promise)) })
	p := promise.node.(*promiseCap)
	lanes := func() (lanes, hooks, calls int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, l := range p.lanes {
			hooks += len(l.hooks)
			calls += len(l.queue)
		}
		return len(p.lanes), hooks, calls
	}
	for range 10 {
		h := newHostile(t, giver, Limits{})
		h.say("bootstrap q=0")
		for range 10 {
			h.say("call q=1 to=answer:0 echo")
			h.say("finish q=1")
		}
		if _, hooks, _ := lanes(); hooks != 0 {
			t.Fatalf("%d notices for a peer that has released the promise", hooks)
		}
		h.say("call q=1 to=answer:0 echo")
		h.say("call q=2 to=answer:1.1 echo")
		if _, hooks, calls := lanes(); hooks != 1 || calls != 1 {
			t.Fatalf("%d notices and %d calls wait, want one each", hooks, calls)
		}
		h.end()
		if n, hooks, calls := lanes(); n+hooks+calls != 0 {
			t.Fatalf("%d notices and %d calls in %d lanes of a peer that is gone", hooks, calls, n)
		}
	}
}

type objectFunc func(call *Call)

func (f objectFunc) Serve(call *Call) { f(call) }

// A call whose parts lie one on the other is passed on to another peer with what we wrote, not with what then lies there:
// else one peer could have us break the protocol towards another.
func TestOverlappingCallIsPassedOn(t *testing.T) {
	var third struct{ call, abort string }
	onward := NewConn(quiet{}, Config{Trace: func(dir string, m rpccp.Message) {
		if m.Which() == rpccp.Message_Which_call {
			third.call = formatMessage(m)
		}
	}})
	onward.loop.Manual = true
	boot := onward.Bootstrap(context.Background())
	defer onward.Close("over")
	defer boot.Release()
	giver := objectFunc(func(call *Call) { call.Return(testSize, fill(0, "", boot)) })
	h := newHostile(t, giver, Limits{})
	h.say("bootstrap q=0")
	h.say("call q=1 to=answer:0 echo")
	h.said = nil
	frame := overlappingCall()
	h.sendRaw(frame)
	if h.abort != "" {
		t.Fatalf("aborted: %s", h.abort)
	}
	if !strings.HasPrefix(third.call, "call q=1 to=answer:0 ") || !strings.HasSuffix(third.call, " cap=hosted:0") {
		t.Errorf("passed on as %q", third.call)
	}
}

// overlappingCall is a call on export 1 whose payload begins one word before it: its table of capabilities is described
// by the word that holds the question number.
func overlappingCall() []byte {
	words := []uint64{
		structPtr(0, 1, 1),      // 0: the root, at 1
		2,                       // 1: a call
		structPtr(0, 3, 3),      // 2: at 3
		0,                       // 3: question number and method, and a list pointer: see below
		testInterface,           // 4
		0,                       // 5
		structPtr(2, 1, 1),      // 6: the target, at 9
		structPtrTo(7, 2, 0, 2), // 7: the payload, at 2: its content is the call, its table the word 3
		0,                       // 8
		1,                       // 9: target: imported capability 1 (the tag is in bits 32 to 47)
		0,                       // 10
		1<<2 | 1<<32 | 1<<48,    // 11: tag of the table: one element of one data and one pointer word
		1 | 1<<32,               // 12: hosted by the sender, 1
		0,                       // 13
	}
	words[9] = 1 // union tag 0, id 1 in the low half
	// A list pointer to 11, of structs, two words long: the question number is its lower half, the method the upper.
	words[3] = uint64(1|(11-3-1)<<2) | uint64(7|2<<3)<<32
	b := make([]byte, 8+8*len(words))
	binary.LittleEndian.PutUint32(b[4:], uint32(len(words)))
	for i, w := range words {
		binary.LittleEndian.PutUint64(b[8+8*i:], w)
	}
	return b
}

func structPtr(offset, data, ptrs uint64) uint64 { return offset<<2 | data<<32 | ptrs<<48 }

func validText(s string) bool { return utf8.ValidString(s) }

func structPtrTo(from, to, data, ptrs int) uint64 {
	return uint64(uint32(int32(to-from-1)<<2)) | uint64(data)<<32 | uint64(ptrs)<<48
}

// A long reason is cut between characters, and what is no text does not get into texts.
func TestReasonsStayText(t *testing.T) {
	t.Parallel()
	for _, reason := range []string{strings.Repeat("ä", maxReasonBytes), "x" + strings.Repeat("€", maxReasonBytes), "\xff\xfe no text"} {
		h := newHostile(t, newTestObject("boot"), Limits{})
		p := h.c.Bootstrap(context.Background()).Call(context.Background(), mEcho, testSize, nil)
		h.say("return a=1 exception failed %s", reason)
		_, _, err := p.Wait(context.Background())
		if ex, ok := err.(*Exception); !ok || len(ex.Reason) > maxReasonBytes || !validText(ex.Reason) {
			t.Errorf("a reason of %d bytes came out as %d", len(reason), len(ex.Reason))
		}
		p.Release()
	}
}

// A chain of calls, each pipelined on the one before, as long as may be: it fails at one blow, and it is given up at one.
func TestLongestPipeline(t *testing.T) {
	for _, end := range []string{"fail", "finish"} {
		obj := &holdingObject{}
		h := newHostile(t, obj, Limits{})
		h.say("bootstrap q=0")
		h.say("call q=1 to=answer:0 hold")
		const n = 16000
		for q := 2; q <= n; q++ {
			h.say("call q=%d to=answer:%d.1 hold", q, q-1)
		}
		if s := h.c.Stats(); s.QueuedCalls != n-1 || h.abort != "" {
			t.Fatalf("%d calls wait: %s", s.QueuedCalls, h.abort)
		}
		h.said = nil
		if end == "fail" {
			obj.calls[0].Fail(Overloadedf("not today"))
		} else {
			for q := 1; q <= n; q++ {
				h.say("finish q=%d", q)
			}
			if obj.calls[0].Context().Err() == nil {
				t.Error("the first call is not cancelled")
			}
			obj.calls[0].Fail(errCanceled)
		}
		if s := h.c.Stats(); len(h.said) != n || s.QueuedCalls != 0 || len(obj.calls) != 1 {
			t.Errorf("%s: %d returns, %d calls wait, %d served", end, len(h.said), s.QueuedCalls, len(obj.calls))
		}
	}
}

// How often one thing is named is counted in numbers that do not overflow: of what the peer gives us most is given back in time,
// and a peer that never gives anything back is cut off.
func TestCountsDoNotOverflow(t *testing.T) {
	obj := &holdingObject{}
	h := newHostile(t, obj, Limits{})
	h.say("bootstrap q=0")
	h.say("call q=1 to=answer:0 hold cap=hosted:5")
	h.c.imports[5].wireRefs = maxWireRefs
	h.say("call q=2 to=answer:0 hold cap=hosted:5")
	if !h.heard(fmt.Sprintf("release id=5 n=%d", maxWireRefs)) {
		t.Error("most references are not given back")
	}
	h.say("call q=3 to=answer:0 hold cap=hosted:5")
	for _, call := range obj.calls {
		call.Fail(errCanceled)
	}
	if !h.heard("release id=5 n=2") {
		t.Error("the last are not given back")
	}

	again := NewLocal(obj)
	defer again.Release()
	give := func(q int) {
		h.say("call q=%d to=answer:0 hold", q)
		obj.calls[len(obj.calls)-1].Return(testSize, fill(0, "", again))
	}
	give(4)
	h.c.exports.Get(1).wireRefs = math.MaxUint32 - 2
	give(5)
	if h.c.ended != nil {
		t.Fatal("ended before the count is full")
	}
	give(6)
	if h.c.ended == nil || !strings.Contains(h.c.ended.Reason, "export 1 was never released") {
		t.Errorf("ended with %v", h.c.ended)
	}
}
