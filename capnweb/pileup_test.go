// What is given up, has failed or has ended is let go of: however often that happens, nothing piles up.

package capnweb

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// What a peer waited for and has released waits no more.
func TestReleasedAnswersDoNotPileUp(t *testing.T) {
	for name, messages := range map[string][]string{
		"reads":   {`["push",["pipeline",5,["x"]]]`, `["push",["pipeline",ID,["y"]]]`, `["release",ID,1]`, `["release",NEXT,1]`},
		"gets":    {`["push",["pipeline",5,["x"]]]`, `["pull",ID]`, `["release",ID,1]`},
		"pulls":   {`["push",["pipeline",5]]`, `["pull",ID]`, `["release",ID,1]`},
		"streams": {`["stream",["pipeline",5]]`, `["release",ID,1]`},
		"values":  {`["push",{"x":["pipeline",5,["x"]]}]`, `["pull",ID]`, `["release",ID,1]`, `["release",OURS,1]`},
	} {
		conn, hits := bare(t, Limits{Calls: 100, Exports: 100})
		f := conn.exports[5].node.(*future)
		for range 1000 {
			id := conn.nextPush
			for _, m := range messages {
				m = strings.NewReplacer("ID", strconv.Itoa(int(id)), "NEXT", strconv.Itoa(int(id+1)), "OURS", strconv.Itoa(int(conn.nextExport+1))).Replace(m)
				sayAll(t, conn, m)
			}
		}
		if f.lanes.waiting > 2*minSweep || len(f.inline.list) > 2*minSweep || conn.batch.pendingAnswers != 0 {
			t.Errorf("%s: %d and %d wait for the promise, and the peer for %d answers", name, f.lanes.waiting, len(f.inline.list), conn.batch.pendingAnswers)
		}
		if n := hits.Of(LimitCalls) + hits.Of(LimitExports); n > 0 {
			t.Errorf("%s: a limit was hit %d times", name, n)
		}
		ended(conn)
	}
}

// Calls that have failed for one of their arguments do not wait for the others, nor do values that they were given.
func TestFailedCallsDoNotPileUp(t *testing.T) {
	const pending, failed = 4, 6
	text := strings.Repeat("x", 10_000)
	call := func(arg, id int) []string {
		return []string{fmt.Sprintf(`["push",["pipeline",0,["echo"],[[[["pipeline",%d],["pipeline",%d]]]]]]`, arg, failed),
			fmt.Sprintf(`["release",%d,1]`, id)}
	}
	for name, round := range map[string]func(id int) []string{
		"a promise": func(id int) []string { return call(pending, id) },
		"a property of it": func(id int) []string {
			return []string{fmt.Sprintf(`["push",["pipeline",0,["echo"],[[[["pipeline",%d,["x"]],["pipeline",%d]]]]]]`, pending, failed),
				fmt.Sprintf(`["release",%d,1]`, id)}
		},
		"a value with it": func(id int) []string {
			value := fmt.Sprintf(`["push",{"x":["pipeline",%d],"t":"%s"}]`, pending, text)
			return append(append([]string{value}, call(id, id+1)...), fmt.Sprintf(`["release",%d,1]`, id))
		},
	} {
		conn, _ := bare(t, Limits{})
		sayAll(t, conn, `["push",["pipeline",0,["none"],[]]]`)
		held := conn.callBytes
		for range 1000 {
			sayAll(t, conn, round(int(conn.nextPush))...)
		}
		f := conn.exports[pending].node.(*future)
		if len(f.inline.list) > 2*minSweep || f.lanes.waiting > 2*minSweep {
			t.Errorf("%s: %d and %d wait", name, len(f.inline.list), f.lanes.waiting)
		}
		if conn.calls > 2+2*minSweep || conn.callBytes > held+2*minSweep*100 { // two are of hold
			t.Errorf("%s: %d calls are unanswered; they hold %d, and before %d", name, conn.calls, conn.callBytes, held)
		}
		ended(conn)
	}
}

// Connections that have ended leave little behind in what others hold: a promise that takes long, an Orderer.
func TestEndedConnectionsDoNotPileUp(t *testing.T) {
	const mine, theirs = 100, 2 * minSweep
	there, open := NewPromise()
	defer open(1, nil)
	l := &lists{}
	line := NewStub(l)
	defer line.Release()
	first := line.Call(t.Context(), "note", there.Get()) // all others are behind it
	defer first.Release()
	for range mine {
		a, _ := Pipe()
		conn := NewConn(a, Config{Main: NewMethods(map[string]any{
			"there": func() any { return there.Get() },
			"part":  func() any { return []any{there.Get("x")} },
			"line":  func() any { return line.Dup() },
			"take":  func(any) {},
		})})
		sayAll(t, conn,
			`["push",["pipeline",0,["there"],[]]]`, `["pull",1]`, // an answer
			`["push",["pipeline",0,["take"],[["pipeline",1]]]]`, // an argument
			`["push",["pipeline",1,["x"],[]]]`, `["push",["pipeline",1,["x"]]]`, `["push",["remap",1,[],[],[1]]]`,
			`["push",["pipeline",0,["line"],[]]]`, `["push",["pipeline",6,["note"],[1]]]`,
			`["push",["pipeline",0,["part"],[]]]`, `["push",["pipeline",0,["take"],[["pipeline",8]]]]`, `["pull",8]`,
			`["push",["pipeline",4,["note"],[]]]`, `["push",["pipeline",4,["z"]]]`) // of what is read
		ended(conn)
	}
	f, n := there.node.(*future), line.node.(*localNode)
	if len(f.inline.list) > theirs || f.lanes.waiting > theirs || len(f.lanes.byConn) > theirs || len(n.pending.calls) > theirs {
		t.Errorf("of %d connections %d and %d wait for the promise, over %d, and %d for the object", mine, len(f.inline.list),
			f.lanes.waiting, len(f.lanes.byConn), len(n.pending.calls))
	}
	if refs := f.refs.Load(); refs > 4*theirs {
		t.Errorf("%d references to the promise", refs)
	}
	if refs := n.refs.Load(); refs > 2*theirs {
		t.Errorf("%d references to the object", refs)
	}
}

// lists is an Orderer.
type lists struct{}

func (*lists) KeepsOrder() bool { return true }
func (*lists) Serve(c *Call)    { c.Return(nil) }

// What a connection has read of a promise, and somebody else was given, does not end with it; nor is it swept out.
func TestReadsOutliveTheirConnection(t *testing.T) {
	for _, swept := range []bool{false, true} {
		there, open := NewPromise()
		var kept *Stub
		var got []any
		obj := NewMethods(map[string]any{
			"later": func() any { return there.Get() },
			"keep":  func(s *Stub) { kept = s.Dup() },
			"kept":  func() any { return kept },
		})
		conn := func() *Conn {
			a, _ := Pipe()
			return NewConn(a, Config{Main: obj})
		}
		a, b := conn(), conn()
		sayAll(t, a, `["push",["pipeline",0,["later"],[]]]`, `["push",["pipeline",0,["keep"],[["import",1,["x"]]]]]`)
		ended(a)
		sayAll(t, b, `["push",["pipeline",0,["kept"],[]]]`, `["push",["pipeline",1,["note"],[1]]]`, `["pull",2]`,
			`["push",["pipeline",0,["later"],[]]]`)
		if swept {
			for id := b.nextPush; id < 5*minSweep; id++ {
				sayAll(t, b, `["push",["pipeline",3,["y"]]]`, fmt.Sprintf(`["release",%d,1]`, id))
			}
		}
		open(map[string]any{"x": NewMethods(map[string]any{"note": func(n any) { got = append(got, n) }})}, nil)
		for late := time.Now().Add(10 * time.Second); len(got) == 0 && time.Now().Before(late); time.Sleep(time.Millisecond) {
			sayAll(t, b, `["push",1]`) // delivers
		}
		if len(got) != 1 {
			t.Errorf("swept %v: %s", swept, saidBy(b))
		}
		ended(b)
	}
}

// Reads that wait behind a call whose handler takes long go when they are given up.
func TestReadsBehindASlowHandler(t *testing.T) {
	t.Parallel()
	const peers = 100
	there, open := NewPromise()
	f := there.node.(*future)
	a, b := Pipe()
	conn := NewConn(a, Config{Limits: Limits{Calls: peers, Exports: peers, PingInterval: 20 * time.Millisecond},
		Main: NewMethods(map[string]any{"later": func() any { return there.Get() }})})
	var ran sync.WaitGroup
	ran.Go(func() { _ = conn.Run(t.Context()) })
	ran.Go(func() { // hears everything
		for {
			if _, err := b.Read(t.Context()); err != nil {
				return
			}
		}
	})
	write := func(messages ...string) {
		for _, m := range messages {
			if err := b.Write(t.Context(), [][]byte{[]byte(m)}); err != nil {
				t.Error(err)
			}
		}
	}
	write(`["push",["pipeline",0,["later"],[]]]`, `["push",["pipeline",1,["slow"],[]]]`)
	for waits := 0; waits == 0; runtime.Gosched() {
		f.mu.Lock()
		waits = f.lanes.waiting
		f.mu.Unlock()
	}
	called, let := make(chan struct{}), make(chan struct{})
	open(NewMethods(map[string]any{"slow": func() { close(called); <-let }}), nil)
	<-called
	for id := 3; id < 20*peers; id++ {
		write(`["push",["pipeline",1,["x"]]]`, fmt.Sprintf(`["release",%d,1]`, id))
	}
	taken := func() bool {
		conn.mu.Lock()
		defer conn.mu.Unlock()
		return conn.nextPush == 20*peers
	}
	for late := time.Now().Add(time.Minute); !taken() && time.Now().Before(late); {
		time.Sleep(time.Millisecond)
	}
	f.mu.Lock()
	if n := len(f.lanes.byConn[conn]); n > 2*minSweep || !taken() {
		t.Errorf("%d reads are kept", n)
	}
	f.mu.Unlock()
	close(let)
	conn.Close("over")
	ran.Wait()
}
