// Fuzzing: programs of messages, and single expressions.

package capnweb

import (
	"math/rand/v2"
	"testing"

	"github.com/mooring-rpc/mooring/internal/peerconn"
)

func wildLimits() Limits {
	return Limits{MessageBytes: 1 << 16, Depth: 64, Calls: 200, CallBytes: 1 << 20, Exports: 500, Imports: 300, MapSteps: 2000,
		BlobBytes: 1 << 12, StreamBytes: 1 << 12, QueuedBytes: 1 << 20}
}

// TestWildPeer lets peers loose: some that keep to the rules, some that do not.
func TestWildPeer(t *testing.T) {
	for seed := range uint64(200) {
		wildRun(t, randomDice{rand.New(rand.NewPCG(seed, 1))}, int(seed%3)*30, 400, wildLimits())
		if t.Failed() {
			t.Fatal("seed", seed)
		}
	}
}

// FuzzPeer has the fuzzer decide what a peer says.
func FuzzPeer(f *testing.F) {
	for seed := range uint64(20) {
		r := rand.New(rand.NewPCG(seed, 2))
		b := make([]byte, 300)
		for i := range b {
			b[i] = byte(r.IntN(256))
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > 2000 {
			return
		}
		wildRun(t, &byteDice{b}, 40, 2000, wildLimits())
	})
}

// FuzzMessage has the fuzzer write messages, to a connection with something in its tables.
func FuzzMessage(f *testing.F) {
	for _, m := range []string{`["push",["pipeline",0,["echo"],[1]]]`, `["pull",1]`, `["release",1,1]`, `["resolve",-1,[[1]]]`,
		`["push",["remap",1,[],[["import",0]],[["pipeline",-1,["echo"],[["pipeline",0]]]]]]`, `["pipe"]`, `["abort",["error","a","b"]]`,
		`["push",["error","a","b",null,{"c":["export",-1]}]]`, `["stream",["pipeline",2,["write"],["x"]]]`,
		`["push",["request","u",{"headers":[["a","b"]],"body":["bytes","aGk="]}]]`} {
		f.Add([]byte(m))
	}
	f.Fuzz(func(t *testing.T, m []byte) {
		a, _ := Pipe()
		c := NewConn(a, Config{Main: Func(func(v any) any { return v }), Limits: wildLimits()})
		for _, first := range []string{`["push",[[1,["export",-1],["promise",-2]]]]`, `["pipe"]`, string(m)} {
			var b []peerconn.Task
			if err := c.receive([]byte(first), via{c: c, tasks: &b}); err != nil {
				c.loop.End(abortEnding(err))
				break
			}
			for _, t := range b {
				t.Run()
			}
		}
		c.Close("over")
		if s := c.Stats(); s.Exports != 0 || s.Imports != 0 || s.Calls != 0 {
			t.Errorf("after the end the tables hold %+v", s)
		}
	})
}
