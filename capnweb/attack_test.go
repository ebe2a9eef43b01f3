// What a hostile peer may do to have more held or done for it than it pays for: each is bounded.

package capnweb

import (
	"fmt"
	"strings"
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
	return string(c.out.Bytes)
}

func ended(c *Conn) {
	c.Close("over")
	c.failUnanswered()
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
			f.state.Store(stateDrained)
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
		{"a chain to follow", func(f *future) bool { return leadsTo(chain(maxLinkedNodes/2), f) }, false},
		{"a long chain to follow", func(f *future) bool { return leadsTo(chain(maxLinkedNodes), f) }, true},
		{"a chain to look at", func(f *future) bool { return refersBackTo(nil, chain(maxLinkedNodes/2), f) }, false},
		{"a long chain to look at", func(f *future) bool { return refersBackTo(nil, chain(maxLinkedNodes), f) }, true},
		{"some references", func(f *future) bool { return refersBackTo(wide(maxLinkedNodes/2), nil, f) }, false},
		{"many references", func(f *future) bool { return refersBackTo(wide(maxLinkedReferences), nil, f) }, true},
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

// Properties that are too large are left out of a few errors, but not of thousands in one message: each is written up to the limit first.
func TestLargePropertiesOfManyErrors(t *testing.T) {
	conn, _ := bare(t, Limits{MessageBytes: 1 << 20})
	sayAll(t, conn, `["push","`+strings.Repeat("x", 1<<18)+`"]`, `["push",["error","Error","x",null,{"a":[[`+strings.Repeat(`["pipeline",6],`, 4)+`1]]}]]`)
	for i := range 15 {
		sayAll(t, conn, fmt.Sprintf(`["push",[[["pipeline",%d],["pipeline",%[1]d]]]]`, 7+i))
	}
	sayAll(t, conn, `["pull",22]`)
	if said := saidBy(conn); !strings.HasSuffix(said, `["reject",22,["error","RangeError","the message is too large"]]`) {
		t.Errorf("%.200s", said[strings.LastIndex(said, `["re`):])
	}
	ended(conn)
}

// A property that is too large is left out of an error, which arrives.
func TestLargePropertyOfAnError(t *testing.T) {
	conn, _ := bare(t, Limits{MessageBytes: 1 << 16})
	sayAll(t, conn, `["push","`+strings.Repeat("x", 1<<15)+`"]`,
		`["push",["error","Error","x",null,{"a":[[["pipeline",6],["pipeline",6],1]],"b":1}]]`, `["pull",7]`)
	if said := saidBy(conn); !strings.HasSuffix(said, `["resolve",7,["error","Error","x",null,{"b":1}]]`) {
		t.Errorf("%.200s", said[strings.LastIndex(said, `["re`):])
	}
	ended(conn)
}

// The size of a value counts what errors, requests and responses in it hold.
func TestSizesCountErrors(t *testing.T) {
	e := &Error{Message: strings.Repeat("x", 1000)}
	for _, v := range []any{e, &Error{Stack: e.Message}, &Error{Props: map[string]any{"a": e}}, &Request{Body: e.Message}, &Response{Body: e.Message},
		URL(e.Message), Headers{{"a", e.Message}}} {
		if n := sizeOf(v); n < 1000 || n > 1200 {
			t.Errorf("a %T has %d bytes", v, n)
		}
	}
	for range 25 {
		e = &Error{Props: map[string]any{"a": e, "b": e}}
	}
	if left := maxSettledBytes; fits(e, &left, 0) {
		t.Error("2^25 errors fit")
	}
}
