package membudget

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/internal/seed"
)

func TestLimits(t *testing.T) {
	t.Parallel()
	b := New(Config{Total: 100, PerKey: 60})
	one, two, other := b.Open("a"), b.Open("a"), b.Open("b")
	for _, step := range []struct {
		what string
		of   *Account
		grow int64
		want error
	}{
		{"within all", one, 50, nil},
		{"beyond what a key has", two, 11, ErrFull},
		{"up to it", two, 10, nil},
		{"beyond all", other, 41, ErrFull},
		{"up to all", other, 40, nil},
		{"more than a key can ever have", other, 61, ErrTooLarge},
		{"nothing", other, 0, nil},
	} {
		if err := step.of.Grow(t.Context(), step.grow); !errors.Is(err, step.want) {
			t.Errorf("%s: %v, want %v", step.what, err, step.want)
		}
	}
	one.Close()
	one.Close()
	if one.TryGrow(1) || one.Grow(t.Context(), 1) == nil {
		t.Error("a closed account grows")
	}
	one.Shrink(50)
	two.Shrink(5)
	if got := b.Stats(); got.Held != 45 || got.Peak != 100 || got.Total != 100 || got.Refused != 3 {
		t.Errorf("%+v", got)
	}
	two.Close()
	other.Close()
	if got := b.Stats(); got.Held != 0 || len(b.keys) != 0 {
		t.Errorf("%+v, and %d keys", got, len(b.keys))
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Total: 100 << 10, PerKey: 80 << 10, MaxWait: time.Second})
		holds, wants, full, small := b.Open("holds"), b.Open("wants"), b.Open("holds"), b.Open("small")
		if err := holds.Grow(t.Context(), 80<<10); err != nil {
			t.Fatal(err)
		}
		got := map[string]error{}
		var mu sync.Mutex
		start := func(what string, a *Account, ctx context.Context, n int64) {
			go func() {
				err := a.Grow(ctx, n)
				mu.Lock()
				defer mu.Unlock()
				got[what] = err
			}()
			synctest.Wait()
		}
		begun := time.Now()
		given, giveUp := context.WithCancel(t.Context())
		start("large", wants, t.Context(), 60<<10)
		start("later", full, t.Context(), 10<<10)
		start("given up", wants, given, 50<<10)
		start("small", small, t.Context(), 1<<10)
		start("behind", small, t.Context(), 10<<10)
		giveUp()
		synctest.Wait()
		mu.Lock()
		if len(got) != 2 || got["small"] != nil || !errors.Is(got["given up"], context.Canceled) {
			t.Errorf("%v: the small one goes past, and one is given up", got)
		}
		mu.Unlock()
		holds.Shrink(50 << 10)
		synctest.Wait()
		mu.Lock()
		if err, ok := got["large"]; !ok || err != nil || time.Since(begun) != 0 {
			t.Errorf("%v after %v: the oldest is let in once there is room", got, time.Since(begun))
		}
		mu.Unlock()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if len(got) != 5 || !errors.Is(got["later"], ErrFull) || !errors.Is(got["behind"], ErrFull) {
			t.Errorf("%v: the others' patience has ended", got)
		}
	})
}

func TestClosingEndsWaiting(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Total: 10, MaxWait: time.Hour})
		holds, wants := b.Open("a"), b.Open("b")
		if !holds.TryGrow(10) {
			t.Fatal("no room")
		}
		ended := make(chan error)
		go func() { ended <- wants.Grow(t.Context(), 5) }()
		synctest.Wait()
		wants.Close()
		if err := <-ended; !errors.Is(err, ErrFull) {
			t.Error(err)
		}
		holds.Close()
		if got := b.Stats(); got.Held != 0 {
			t.Errorf("%+v", got)
		}
	})
}

func TestMove(t *testing.T) {
	t.Parallel()
	from, to := New(Config{Total: 10}), New(Config{Total: 5})
	a := from.Open("address")
	if !a.TryGrow(8) {
		t.Fatal("no room")
	}
	a.MoveTo(to, "ref")
	if from.Stats().Held != 0 || to.Stats().Held != 8 || a.Held() != 8 {
		t.Errorf("%+v, %+v", from.Stats(), to.Stats())
	}
	if a.TryGrow(1) {
		t.Error("it grows beyond the other's limit")
	}
	a.Shrink(8)
	if !a.TryGrow(5) {
		t.Error("it does not grow in the other")
	}
	a.Close()
	if to.Stats().Held != 0 {
		t.Errorf("%+v", to.Stats())
	}
	a.MoveTo(from, "closed")
}

func TestReader(t *testing.T) {
	t.Parallel()
	b := New(Config{Total: 10})
	a := b.Open("a")
	defer a.Close()
	if got, err := io.ReadAll(a.Reader(t.Context(), strings.NewReader("0123456789"))); err != nil || len(got) != 10 || a.Held() != 10 {
		t.Errorf("%q, %v, %d held", got, err, a.Held())
	}
	if _, err := io.ReadAll(a.Reader(t.Context(), strings.NewReader("0"))); !errors.Is(err, ErrFull) {
		t.Errorf("%v", err)
	}
}

// Whatever many do at once, no limit is passed, and in the end nothing is held.
func TestManyAtOnce(t *testing.T) {
	t.Parallel()
	const total, perKey = 1000, 400
	b, other := New(Config{Total: total, PerKey: perKey, MaxWait: time.Millisecond}), New(Config{Total: total})
	seeds := seed.Of(t)
	var all sync.WaitGroup
	for g := range 8 {
		all.Go(func() {
			random := rand.New(rand.NewPCG(seeds, uint64(g)))
			for range 300 {
				a := b.Open(string(rune('a' + random.IntN(3))))
				for range 5 {
					n := random.Int64N(200)
					if random.IntN(2) == 0 && a.Grow(t.Context(), n) != nil || random.IntN(3) == 0 {
						a.Shrink(n)
					}
					if s := b.Stats(); s.Held < 0 || s.Held > total {
						t.Errorf("%d are held", s.Held)
					}
				}
				if random.IntN(4) == 0 {
					a.MoveTo(other, "")
				}
				a.Close()
			}
		})
	}
	all.Wait()
	if b.Stats().Held != 0 || other.Stats().Held != 0 || len(b.keys)+len(other.keys)+len(b.waiting) != 0 {
		t.Errorf("%+v, %+v", b.Stats(), other.Stats())
	}
}

// Other limits hold from now on: who waits is let in by more, and nobody loses anything by less.
func TestSetLimits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := New(Config{Total: 100, PerKey: 60, MaxWait: time.Hour})
		one, two := b.Open("a"), b.Open("a")
		if !one.TryGrow(60) {
			t.Fatal("there is room")
		}
		got := make(chan error, 1)
		go func() { got <- two.Grow(t.Context(), 30) }()
		synctest.Wait()
		b.SetLimits(100, 0)
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		b.SetLimits(50, 40)
		if held := b.Stats(); held.Held != 90 || held.Total != 50 || two.TryGrow(1) || b.Open("b").Grow(t.Context(), 41) != ErrTooLarge {
			t.Errorf("after less: %+v", held)
		}
		one.Close()
		if !two.TryGrow(10) || two.TryGrow(1) {
			t.Error("the new limit of a key is not what holds")
		}
	})
}
