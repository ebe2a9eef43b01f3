package intake

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/internal/membudget"
)

var errLarge, errFull = errors.New("too large"), errors.New("no memory")

// budgets are small ones, with patience of a second.
func budgets() *Config {
	return &Config{
		Strangers:        membudget.New(membudget.Config{Total: 100 << 10, PerKey: 80 << 10, MaxWait: time.Second}),
		Known:            membudget.New(membudget.Config{Total: 1 << 20, PerKey: 600 << 10, MaxWait: time.Second}),
		MaxStrangerBytes: 50 << 10, MaxWait: time.Second, TooLarge: errLarge, Overloaded: errFull,
	}
}

// holds says what is charged to each budget.
func (c *Config) holds(t *testing.T, what string, strangers, known int64) {
	t.Helper()
	if s, k := c.Strangers.Stats().Held, c.Known.Stats().Held; s != strangers || k != known {
		t.Errorf("%s: %d bytes are held of strangers and %d of others, want %d and %d", what, s, k, strangers, known)
	}
}

// What is read and held is charged, goes along when a ref is shown, and is given back.
func TestHeldMemoryIsCharged(t *testing.T) {
	t.Parallel()
	c := budgets()
	p := c.Open("address")
	for _, n := range []int{10_000, 30_000, 20_000} {
		if err := p.ReserveRead(n, nil); err != nil {
			t.Fatal(err)
		}
		c.holds(t, "the message that is read", int64(n), 0)
	}
	if !p.TryGrow(1) || !p.TryGrow(4<<10) {
		t.Fatal("there is room")
	}
	c.holds(t, "and others", 20_000+8<<10, 0)
	if p.TryGrow(60 << 10) {
		t.Error("more than an address may")
	}
	p.Trust("ref")
	p.Trust("another")
	c.holds(t, "a ref was shown", 0, 20_000+8<<10)
	if err := p.ReserveRead(200_000, nil); err != nil {
		t.Fatal(err)
	}
	if err := p.Grow(300_000); err != nil {
		t.Fatal(err)
	}
	if err := p.ReserveRead(0, nil); err != nil {
		t.Fatal(err)
	}
	p.Shrink(300_000 + 4<<10 + 1)
	c.holds(t, "all is let go of", 0, 0)
	if !p.TryGrow(1) {
		t.Error("there is room")
	}
	p.Close()
	c.holds(t, "it is closed", 0, 0)
}

// What there is no room for is refused: for good where there never could be.
func TestOpsBeyondTheQuota(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := budgets()
		p, other := c.Open("address"), c.Open("other")
		defer p.Close()
		defer other.Close()
		if err := other.ReserveRead(50<<10, nil); err != nil || !other.TryGrow(20<<10) {
			t.Fatal(err)
		}
		begun := time.Now()
		for what, grow := range map[string]func(n int) error{
			"read": func(n int) error { return p.ReserveRead(n, nil) }, "held": p.Grow,
		} {
			if err := grow(40 << 10); err != errFull {
				t.Errorf("%s beside another's: %v", what, err)
			}
		}
		if waited := time.Since(begun); waited != 2*c.MaxWait {
			t.Errorf("they waited for %v", waited)
		}
		if err := p.Grow(90 << 10); err != errLarge {
			t.Errorf("more than an address may have: %v", err)
		}
		c.holds(t, "what was refused", 70<<10, 0)
		if err := p.ReserveRead(60<<10, nil); err != errLarge {
			t.Errorf("more than is kept of a stranger, which has asked for nothing: %v", err)
		}
		settled := errors.New("it came to nothing")
		p.Bind(nil, func(context.Context) error { return settled })
		if err := p.ReserveRead(60<<10, nil); err != settled {
			t.Errorf("behind a restore: %v", err)
		}
		p.Bind(nil, func(context.Context) error { p.Trust("ref"); return nil })
		if err := p.ReserveRead(60<<10, nil); err != nil {
			t.Errorf("behind a restore that succeeds: %v", err)
		}
		c.holds(t, "a ref was shown", 70<<10, 60<<10)
	})
}
