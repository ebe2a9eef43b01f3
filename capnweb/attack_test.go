// What a hostile peer may do to have more held or done for it than it pays for: each is bounded.

package capnweb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// sayAll says messages until the connection is over.
func sayAll(t *testing.T, c *Conn, messages ...string) {
	t.Helper()
	for _, m := range messages {
		if err := say(c, m); err != nil {
			t.Fatalf("%.100s: %v", m, err)
		}
	}
}

func saidBy(c *Conn) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return string(c.out.b)
}

func ended(c *Conn) {
	c.Close("over")
	c.sweep()
}

// Values that refer to each other are paid for as long as they are there, whether the peer still names them or not.
func TestChainsAreCharged(t *testing.T) {
	for name, link := range map[string]func(i int) []string{
		"values": func(i int) []string {
			return []string{fmt.Sprintf(`["push",[[["import",%d]]]]`, 5+i), fmt.Sprintf(`["release",%d,1]`, 5+i)}
		},
		"results": func(i int) []string {
			return []string{fmt.Sprintf(`["push",["pipeline",0,["echo"],[["import",%d]]]]`, 5+i), fmt.Sprintf(`["release",%d,1]`, 5+i)}
		},
		"promises": func(i int) []string {
			return []string{fmt.Sprintf(`["resolve",-%d,["promise",-%d]]`, 2+i, 3+i)}
		},
		"promised": func(i int) []string {
			return []string{fmt.Sprintf(`["resolve",-%d,[[["promise",-%d]]]]`, 2+i, 3+i)}
		},
	} {
		conn, hits := bare(t, Limits{CallBytes: 100_000})
		if strings.HasPrefix(name, "prom") {
			sayAll(t, conn, `["push",["promise",-7]]`)
		} else {
			sayAll(t, conn, `["push",1]`, `["release",1,1]`)
		}
		for i := 0; i < 2000 && hits.Of(LimitCallBytes) == 0; i++ {
			if strings.HasPrefix(name, "prom") {
				if i > 4 {
					sayAll(t, conn, link(i)...)
				}
				continue
			}
			sayAll(t, conn, link(i+1)...)
		}
		if hits.Of(LimitCallBytes) == 0 {
			t.Errorf("%s: a chain of 2000 costs %d", name, conn.callBytes)
		}
		ended(conn)
	}
}

// What is pushed, resolved or collected is held against the peer, and refused when it is too much.
func TestValuesAreCharged(t *testing.T) {
	text := strings.Repeat("x", 10_000)
	for name, more := range map[string]func(i int) []string{
		"pushed": func(i int) []string { return []string{`["push","` + text + `"]`} },
		"resolved": func(i int) []string {
			return []string{fmt.Sprintf(`["push",["promise",-%d]]`, i+10), fmt.Sprintf(`["resolve",-%d,"%s"]`, i+10, text)}
		},
		"blobs": nil,
	} {
		conn, hits := bare(t, Limits{CallBytes: 100_000})
		for i := 0; i < 40 && hits.Of(LimitCallBytes) == 0; i++ {
			if name == "blobs" {
				id := conn.nextPush
				sayAll(t, conn, `["pipe"]`, fmt.Sprintf(`["push",["blob","",["readable",%d]]]`, id),
					fmt.Sprintf(`["stream",["pipeline",%d,["write"],[["bytes","%s"]]]]`, id, strings.Repeat("A", 10_000)))
				continue
			}
			sayAll(t, conn, more(i)...)
		}
		if hits.Of(LimitCallBytes) == 0 {
			t.Errorf("%s: 40 times 10,000 bytes cost %d", name, conn.callBytes)
		}
		ended(conn)
	}
}

// A call that is given up at once goes on to count while its handler runs.
func TestReleasedCallsCount(t *testing.T) {
	conn, hits := bare(t, Limits{Calls: 10})
	for i := range 15 {
		sayAll(t, conn, `["push",["pipeline",0,["hold"],[1]]]`, fmt.Sprintf(`["release",%d,1]`, 6+i))
	}
	if hits.Of(LimitCalls) == 0 {
		t.Errorf("15 handlers run, and %d count", conn.calls)
	}
	ended(conn)
	if s := conn.Stats(); s.Calls != 0 {
		t.Errorf("%+v", s)
	}
}

// So does one that was pipelined on a promise, once that has turned out to be something.
func TestPipelinedCallsCount(t *testing.T) {
	conn, _ := bare(t, Limits{Calls: 100})
	sayAll(t, conn, `["push",["promise",-10]]`)
	for range 20 {
		sayAll(t, conn, `["push",["pipeline",6,["hold"],[1]]]`)
	}
	sayAll(t, conn, `["resolve",-10,["import",0]]`)
	if conn.calls < 22 {
		t.Errorf("22 handlers run, and %d count", conn.calls)
	}
	ended(conn)
}

// A blob that nobody waits for is not collected any further.
func TestForgottenBlob(t *testing.T) {
	conn, _ := bare(t, Limits{})
	sayAll(t, conn, `["push",["blob","",["readable",2]]]`, `["release",6,1]`, `["stream",["pipeline",2,["write"],[["bytes","AAAA"]]]]`)
	if said := saidBy(conn); !strings.Contains(said, `["reject",7`) {
		t.Error("it is:", said)
	}
	ended(conn)
}

// What came with the last chunk that a blob was made of is given back with the others'.
func TestBlobGivesChunksBack(t *testing.T) {
	conn, _ := bare(t, Limits{})
	sayAll(t, conn, `["stream",["pipeline",2,["write"],[["bytes","AAAA"],["export",-70]]]]`,
		`["push",["blob","",["readable",2]]]`, `["stream",["pipeline",2,["close"],[]]]`, `["pull",7]`)
	if said := saidBy(conn); !strings.Contains(said, `["release",-70,1]`) || !strings.Contains(said, `["resolve",7`) {
		t.Error("it says:", said)
	}
	ended(conn)
}

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
		if f.lanes.waiting > 2*leastSwept || len(f.quick.list) > 2*leastSwept || conn.batch.asked != 0 {
			t.Errorf("%s: %d and %d wait for the promise, and the peer for %d answers", name, f.lanes.waiting, len(f.quick.list), conn.batch.asked)
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
		if len(f.quick.list) > 2*leastSwept || f.lanes.waiting > 2*leastSwept {
			t.Errorf("%s: %d and %d wait", name, len(f.quick.list), f.lanes.waiting)
		}
		if conn.calls > 2+2*leastSwept || conn.callBytes > held+2*leastSwept*100 { // two are of hold
			t.Errorf("%s: %d calls are unanswered; they hold %d, and before %d", name, conn.calls, conn.callBytes, held)
		}
		ended(conn)
	}
}

// Connections that have ended leave little behind in what others hold: a promise that takes long, an Orderer.
func TestEndedConnectionsDoNotPileUp(t *testing.T) {
	const mine, theirs = 100, 2 * leastSwept
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
	if len(f.quick.list) > theirs || f.lanes.waiting > theirs || len(f.lanes.of) > theirs || len(n.line.calls) > theirs {
		t.Errorf("of %d connections %d and %d wait for the promise, over %d, and %d for the object", mine, len(f.quick.list),
			f.lanes.waiting, len(f.lanes.of), len(n.line.calls))
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
			for id := b.nextPush; id < 5*leastSwept; id++ {
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

// An argument is asked for while its call ends, and a value is read while its promises are asked for.
func TestAskingWhileItEnds(t *testing.T) {
	t.Parallel()
	s := NewStub(NewMethods(map[string]any{"take": func(any) {}}))
	defer s.Release()
	for range 200 {
		pending, open := NewPromise()
		failing, fail := NewPromise()
		args := []any{failing.Get()}
		for range 50 {
			args = append(args, pending.Get("x"))
		}
		go fail(nil, errors.New("no"))
		p := s.Call(t.Context(), "take", args...)
		if _, err := p.Await(t.Context()); err == nil {
			t.Error("the call did not fail")
		}
		p.Release()
		value, give := NewPromise()
		give(map[string]any{"x": pending.Get("p"), "y": pending.Get("q"), "z": []any{}}, nil)
		read := make(chan struct{})
		go func() {
			z := value.Get("z")
			z.target() // reads it
			z.Release()
			close(read)
		}()
		taken := s.Call(t.Context(), "take", value)
		<-read
		open(map[string]any{}, nil)
		if _, err := taken.Await(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// What a promise came to is told nobody before the calls that waited for it, over whatever connection, have their place:
// not while another connection's lock is held, as it is while something large is written.
func TestToldOnceInOrder(t *testing.T) {
	for _, kind := range []string{"a promise", "a stub", "an answer"} {
		there, open := NewPromise()
		f := there.node.(*future)
		var got []string
		obj := func() *Conn {
			a, _ := Pipe()
			return NewConn(a, Config{Main: NewMethods(map[string]any{
				"later": func() any { return there.Get() },
				"give": func() any {
					if kind == "a stub" {
						return []any{there.Stub()}
					}
					return []any{there.Get()}
				},
			})})
		}
		busy, conn := obj(), obj()
		sayAll(t, busy, `["push",["pipeline",0,["later"],[]]]`, `["push",["pipeline",1,["other"],[]]]`)
		sayAll(t, conn, `["push",["pipeline",0,["later"],[]]]`, `["push",["pipeline",1,["note"],["first"]]]`)
		busy.mu.Lock()
		opened, told := make(chan struct{}), make(chan struct{})
		go func() {
			open(NewMethods(map[string]any{"note": func(s string) { got = append(got, s) }, "other": func() {}}), nil)
			close(opened)
		}()
		for !f.is(bound) {
			runtime.Gosched()
		}
		go func() {
			defer close(told)
			if kind == "an answer" {
				_ = say(conn, `["pull",1]`)
			} else {
				_ = say(conn, `["push",["pipeline",0,["give"],[]]]`)
				_ = say(conn, `["pull",3]`)
			}
			_ = say(conn, `["push",["pipeline",-1,["note"],["second"]]]`)
		}()
		select {
		case <-told:
		case <-time.After(50 * time.Millisecond):
		}
		busy.mu.Unlock()
		<-opened
		<-told
		sayAll(t, conn, `["push",1]`) // delivers
		if !slices.Equal(got, []string{"first", "second"}) {
			t.Errorf("%s: %v, said %s", kind, got, saidBy(conn))
		}
		ended(conn)
		ended(busy)
	}
}

// A call that is given the peer's own promise, which turns out to be one of ours, comes behind the calls on that.
func TestPeersPromiseOfOurs(t *testing.T) {
	a, _ := Pipe()
	var got []string
	there, open := NewPromise()
	conn := NewConn(a, Config{Main: NewMethods(map[string]any{
		"later": func() any { return there },
		"take":  func(any) { got = append(got, "take") },
	})})
	sayAll(t, conn, `["push",["pipeline",0,["later"],[]]]`, `["push",["pipeline",1,["note"],[]]]`,
		`["push",["pipeline",0,["take"],[["promise",-1]]]]`, `["resolve",-1,["pipeline",1]]`)
	open(NewMethods(map[string]any{"note": func() { got = append(got, "note") }}), nil)
	sayAll(t, conn, `["push",1]`) // delivers
	if !slices.Equal(got, []string{"note", "take"}) {
		t.Error(got)
	}
	ended(conn)
}

// What is said in the place of a tag may be a secret.
func TestNoSecretsInReasons(t *testing.T) {
	for _, m := range []string{`["push",["mooring://h/ses_1#SECRET"]]`, `["mooring://h/ses_1#SECRET",1]`,
		`["push",["bytes","","ses_1#SECRET"]]`} {
		conn, _ := bare(t, Limits{})
		if err := say(conn, m); err == nil || strings.Contains(err.Error(), "SECRET") {
			t.Errorf("%s: %v", m, err)
		}
		ended(conn)
	}
}

// A result that is larger than a message is found out once.
func TestTooLargeOnce(t *testing.T) {
	conn, _ := bare(t, Limits{MessageBytes: 1 << 20})
	sayAll(t, conn, `["push",[[`+strings.Repeat("1e20,", 100_000)+`0]]]`)
	pull := func(i int) time.Duration {
		began := time.Now()
		sayAll(t, conn, `["push",["pipeline",6]]`, fmt.Sprintf(`["pull",%d]`, 7+i))
		return time.Since(began)
	}
	first, others := pull(0), time.Duration(0)
	for i := range 200 {
		others += pull(1 + i)
	}
	if others > 50*first {
		t.Errorf("one refusal took %v, 200 more %v", first, others)
	}
	ended(conn)
}

// Looking for circles gives up where there is too much to look at.
func TestCirclesCostLittle(t *testing.T) {
	chain := func(length int) node {
		var n node = newFuture()
		for range length {
			f := newFuture()
			f.next = n // as resolve does, which would look at the whole chain each time
			f.state.Store(ready)
			n = f
		}
		return n
	}
	wide := func(refs int) *payload {
		p := &payload{}
		for range refs {
			p.refs = append(p.refs, stubRef{&Stub{node: newFuture()}})
		}
		return p
	}
	for _, c := range []struct {
		what    string
		gaveUp  func(*future) bool
		tooMuch bool
	}{
		{"a chain to follow", func(f *future) bool { return leadsTo(chain(mostEntangled/2), f) }, false},
		{"a long chain to follow", func(f *future) bool { return leadsTo(chain(mostEntangled), f) }, true},
		{"a chain to look at", func(f *future) bool { return holds(nil, chain(mostEntangled/2), f) }, false},
		{"a long chain to look at", func(f *future) bool { return holds(nil, chain(mostEntangled), f) }, true},
		{"some references", func(f *future) bool { return holds(wide(mostEntangled/2), nil, f) }, false},
		{"many references", func(f *future) bool { return holds(wide(mostReferences), nil, f) }, true},
	} {
		if got := c.gaveUp(newFuture()); got != c.tooMuch {
			t.Errorf("%s: gave up %v", c.what, got)
		}
	}
}

// Promises that come to values within values do not make one that nests deeper than any other may.
func TestDepthThroughPromises(t *testing.T) {
	conn, _ := bare(t, Limits{})
	sayAll(t, conn, `["push",["promise",-10]]`)
	for i := range 300 {
		sayAll(t, conn, fmt.Sprintf(`["push",[[["pipeline",%d]]]]`, 6+i))
	}
	sayAll(t, conn, `["resolve",-10,1]`, `["push",["pipeline",0,["hold"],[["pipeline",306]]]]`)
	if conn.exports[307].node.(*future).err == nil {
		t.Error("a value nests 300 deep")
	}
	ended(conn)
}

// What is not charged for is not kept either: what came with calls that are answered, reads and answers that are given
// up, and connections that have ended, however many of others wait for the same.
func TestWhatIsOverIsNotKept(t *testing.T) {
	const rounds, size, kept = 60, 1 << 17, 60 << 17 / 3
	heap := func() int {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	text := func(i int) string { return strings.Repeat(string(rune('a'+i%26)), size) }
	for name, round := range map[string]func(c *Conn, main any, i int){
		"arguments of an answered call": func(c *Conn, _ any, i int) {
			sayAll(t, c, fmt.Sprintf(`["push",["pipeline",0,["take"],["%s"]]]`, text(i)))
		},
		"the name of an answered call": func(c *Conn, _ any, i int) {
			sayAll(t, c, fmt.Sprintf(`["push",["pipeline",0,["%s"],[]]]`, text(i)))
		},
		"a read that is given up": func(c *Conn, _ any, i int) {
			id := c.nextPush
			sayAll(t, c, fmt.Sprintf(`["push",["pipeline",1,["%s"]]]`, text(i)), fmt.Sprintf(`["release",%d,1]`, id))
		},
		"an answer that is given up": func(c *Conn, _ any, i int) {
			id := c.nextPush
			sayAll(t, c, fmt.Sprintf(`["push",["pipeline",0,["later"],["%s"]]]`, text(i)), fmt.Sprintf(`["pull",%d]`, id),
				fmt.Sprintf(`["release",%d,1]`, id))
		},
		"a connection": func(_ *Conn, main any, i int) {
			a, _ := Pipe()
			c := NewConn(a, Config{Main: main})
			sayAll(t, c, `["push",["pipeline",0,["later"],[]]]`, `["pull",1]`, `["push",["pipeline",1,["x"]]]`,
				fmt.Sprintf(`["push",["pipeline",1,["x"],["%s"]]]`, text(i)), `["push",["pipeline",0,["line"],[]]]`,
				fmt.Sprintf(`["push",["pipeline",4,["x"],["%s"]]]`, text(i)))
			ended(c)
		},
		"a batch": func(_ *Conn, main any, i int) {
			ctx, goAway := context.WithCancel(t.Context())
			body := fmt.Sprintf(`["push",["pipeline",0,["later"],[]]]
["pull",1]
["push",["pipeline",0,["echo"],["%s"]]]
["pull",2]`, text(i))
			tr := newBatchTransport([]byte(body), 8*size, "")
			c := NewConn(tr, Config{Main: main})
			c.batch.deaf, tr.all = true, func() { c.batchTaken(); goAway() }
			_ = c.Run(ctx)
			_, _ = tr.finish()
		},
	} {
		there, open := NewPromise()
		line := NewStub(&lists{})
		first := line.Call(t.Context(), "x", there.Get())
		main := NewMethods(map[string]any{
			"later": func(...any) any { return there.Get() },
			"take":  func(any) {},
			"echo":  func(v any) any { return v },
			"line":  func() any { return line.Dup() },
		})
		a, _ := Pipe()
		c := NewConn(a, Config{Main: main})
		sayAll(t, c, `["push",["pipeline",0,["later"],[]]]`)
		for range 2 * rounds { // others, that do not go away
			id := c.nextPush
			sayAll(t, c, `["push",["pipeline",1,["x"]]]`, `["push",["pipeline",0,["later"],[]]]`, fmt.Sprintf(`["pull",%d]`, id+1))
		}
		before, charged := heap(), c.callBytes
		for i := range rounds {
			round(c, main, i)
		}
		if more := heap() - before - (c.callBytes - charged); more > kept {
			t.Errorf("%s: %d KB are kept, and nobody is charged", name, more>>10)
		}
		open(nil, errors.New("no"))
		ended(c)
		first.Release()
		line.Release()
		runtime.KeepAlive(c)
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
	if n := len(f.lanes.of[conn]); n > 2*leastSwept || !taken() {
		t.Errorf("%d reads are kept", n)
	}
	f.mu.Unlock()
	close(let)
	conn.Close("over")
	ran.Wait()
}
