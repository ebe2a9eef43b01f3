// What a call costs whose results hold no capabilities. The rules are told in testdata/nofinish.txt.

package rpc

import (
	"testing"

	"github.com/mooring-rpc/mooring/rpc/internal/table"
)

// A plain call is a Call and a Return.
func TestPlainCallIsTwoMessages(t *testing.T) {
	t.Parallel()
	eachTransport(t, Limits{}, func(t *testing.T, v *vats) {
		boot := v.a.Bootstrap(testContext(t))
		defer boot.Release()
		echo := func(i uint64) {
			_, p, err := ask(t, boot, mEcho, i, "", nil)
			if err != nil {
				t.Fatal(err)
			}
			p.Release()
		}
		echo(0) // the bootstrap is returned and finished
		const calls = 50
		asked, answered := v.a.Stats().MessagesOut, v.b.Stats().MessagesOut
		for i := range uint64(calls) {
			echo(i)
		}
		if n := v.a.Stats().MessagesOut - asked; n != calls {
			t.Errorf("the caller said %d messages for %d calls", n, calls)
		}
		if n := v.b.Stats().MessagesOut - answered; n != calls {
			t.Errorf("the callee said %d messages for %d calls", n, calls)
		}
	})
}

// A peer that finishes nothing it need not finish holds nothing by it: its connection is as idle as it looks.
func TestUnneededFinishHoldsNothing(t *testing.T) {
	t.Parallel()
	h := newHostile(t, newTestObject("boot"), Limits{})
	holds := func(want bool) {
		t.Helper()
		h.c.mu.Lock()
		defer h.c.mu.Unlock()
		h.c.out.TakeMessages() // it is written
		if got := !(*codec)(h.c).IsUnused(); got != want {
			t.Errorf("it holds something: %v, want %v", got, want)
		}
	}
	h.say("bootstrap q=0")
	holds(true)
	h.say("finish q=0 keepcaps")
	holds(false)
	for q := range table.IDSetSize {
		h.say("call q=%d to=cap:0 echo", q)
		holds(false)
	}
	h.say("call q=%d to=cap:0 echo", table.IDSetSize)
	holds(true)
	h.say("finish q=%d", table.IDSetSize)
	holds(false)
	h.say("call q=1 to=cap:0 hold")
	holds(true)
	if h.abort != "" {
		t.Errorf("aborted with %q", h.abort)
	}
}
