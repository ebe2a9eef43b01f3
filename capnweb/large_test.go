//go:build !race

// Tests of sizes, which the race detector multiplies: make test-slow runs them without it.

package capnweb

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb/internal/jsontext"
	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
)

// jsontext.DecodedBytes is no less than what decoding takes, and not much more.
func TestDecodedBytes(t *testing.T) {
	const size = 1 << 20
	for _, unit := range []string{`0,`, `1.5,`, `[],`, `[[]],`, `[0],`, `{},`, `{"":{}},`, `{"":{},"a":0},`, `{"a":0,"b":1,"c":2,"d":3,"e":4,"f":5,"g":6,"h":7,"i":8},`,
		`"",`, `"abcdefgh",`, `"abcdefghijklmnopqrstuvwxyz0123456789",`, `"\u0000\"\\",`, `true,`, `["export",-1],`} {
		msg := []byte(`[` + strings.Repeat(unit, size/len(unit)) + `"` + strings.Repeat("x", 100) + `"]`)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		v, err := jsontext.Parse(msg, 100)
		if err != nil {
			t.Fatal(unit, err)
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		took, said := int(after.HeapAlloc)-int(before.HeapAlloc), jsontext.DecodedBytes(msg)
		runtime.KeepAlive(v)
		runtime.KeepAlive(msg)
		if said < took || said > 12*took+2*len(msg) {
			t.Errorf("%s: it takes %d bytes, %d are charged", unit, took, said)
		}
	}
}

// What is not charged for is not kept either: what came with calls that are answered, reads and answers that are given
// up, and connections that have ended, however many of others wait for the same.
func TestUnchargedMemoryIsFreed(t *testing.T) {
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
			tr := transport.NewBatch(strings.NewReader(body), 8*size, "")
			c := NewConn(tr, Config{Main: main})
			c.batch.responseOnly, tr.OnInputDone = true, func() { c.batchInputDone(); goAway() }
			_ = c.Run(ctx)
			_, _ = tr.Finish()
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
