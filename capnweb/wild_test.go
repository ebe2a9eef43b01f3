// A wild peer: it says what the protocol allows in an order that nobody would, and at times what it does not allow.
// Fuzzing (fuzz_test.go) and the soak (soak_test.go) let it loose on a connection.

package capnweb

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb/internal/transport"
)

// dice decides. It says no more when it has run out.
type dice interface {
	roll(n int) int
	more() bool
}

type randomDice struct{ *rand.Rand }

func (d randomDice) roll(n int) int { return d.IntN(n) }
func (randomDice) more() bool       { return true }

// byteDice decides by a fuzzer's bytes.
type byteDice struct{ b []byte }

func (d *byteDice) roll(n int) int {
	if len(d.b) == 0 {
		return 0
	}
	x := int(d.b[0])
	d.b = d.b[1:]
	return x % n
}
func (d *byteDice) more() bool { return len(d.b) > 0 }

// defects fails the test for what a connection logs as its own fault.
type defects struct{ t *testing.T }

func (defects) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelError }
func (d defects) WithAttrs([]slog.Attr) slog.Handler         { return d }
func (d defects) WithGroup(string) slog.Handler              { return d }
func (d defects) Handle(_ context.Context, r slog.Record) error {
	meant := false
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		meant = meant || a.Value.String() == "wild"
		text += " " + a.String()
		return true
	})
	if !meant {
		d.t.Error(text)
	}
	return nil
}

// wildRun lets a peer loose on a connection for so many messages and gives how many it has taken in. All must be gone after.
func wildRun(t *testing.T, d dice, hostile, messages int, lim Limits) (processed int) {
	target := newWildTarget(&wildState{})
	alive := &target.alive
	a, b := Pipe()
	c := NewConn(a, Config{Main: target, Limits: lim, Logger: slog.New(defects{t})})
	var wg sync.WaitGroup
	wg.Go(func() { _ = c.Run(context.Background()) })
	p := newWildPeer(d, hostile)
	end := b.(*transport.End)
	over := false
	heard := func() {
		for {
			if end.Pending() == 0 {
				return
			}
			msg, err := b.Read(context.Background())
			if err != nil {
				over = true
				return
			}
			if err := p.hear(msg); err != nil {
				// Promises that wait for each other in a circle stay unanswered, until there are too many.
				if hostile == 0 && !strings.Contains(err.Error(), "too many calls") {
					t.Errorf("%v, to %q", err, p.out)
				}
				over = true
				return
			}
		}
	}
	for !over && p.said < messages && d.more() {
		p.out = p.out[:0]
		for range 1 + d.roll(8) {
			p.step()
		}
		raw := make([][]byte, len(p.out))
		for i, m := range p.out {
			raw[i] = []byte(m)
		}
		if b.Write(context.Background(), raw) != nil {
			break
		}
		if d.roll(4) == 0 {
			runtime.Gosched()
		}
		heard()
		select {
		case <-c.Done():
			over = true
		default:
		}
	}
	c.Close("over")
	wg.Wait()
	if s := c.Stats(); s.Exports != 0 || s.Imports != 0 || s.Calls != 0 || c.callBytes != 0 {
		t.Errorf("after the end the tables hold %+v, %d bytes", s, c.callBytes)
	}
	target.finish()
	for i := 0; i < 1e5 && alive.Load() != 0; i++ { // calls within the process are nobody's to wait for
		done := make(chan struct{})
		detached.Post(func() { close(done) })
		<-done
		target.finish()
		runtime.Gosched()
	}
	if n := alive.Load(); n != 0 {
		target.made.Range(func(o, line any) bool {
			releasers.mu.Lock()
			refs := int32(-1)
			if l := releasers.nodes[o.(*wildTarget)]; l != nil {
				refs = l.refs.Load()
			}
			releasers.mu.Unlock()
			t.Errorf("never released, with %d references: what was made in line %d", refs, line)
			return true
		})
	}
	return int(c.Stats().MessagesIn)
}
