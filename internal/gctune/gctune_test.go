package gctune

import (
	"context"
	"runtime"
	"runtime/debug"
	"testing"
	"testing/synctest"
	"time"
)

// These tests change and look at what the whole process has: none may run beside another.

// forced is how many collections somebody has asked for.
func forced() uint32 {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return s.NumForcedGC
}

// asUsual puts back what a test changes.
func asUsual(t *testing.T) {
	t.Helper()
	debug.SetGCPercent(defaultPercent)
	t.Cleanup(func() { debug.SetGCPercent(defaultPercent) })
}

func TestTend(t *testing.T) {
	for _, c := range []struct {
		gogc  string
		paces bool
	}{{"", true}, {"100", false}} {
		t.Run("GOGC="+c.gogc, func(t *testing.T) {
			asUsual(t)
			t.Setenv("GOGC", c.gogc)
			runtime.GC()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan struct{})
				go func() { Run(ctx); close(ended) }()
				for range 2 {
					garbage := make([]byte, 2*minBusyBytes)
					runtime.KeepAlive(garbage)
					runtime.GC()
					time.Sleep(paceInterval)
					synctest.Wait()
				}
				if got := read(percent) > defaultPercent; got != c.paces {
					t.Errorf("it collects at %d%%", read(percent))
				}
				garbage := make([]byte, minGarbageBytes)
				runtime.KeepAlive(garbage)
				before := forced()
				time.Sleep(2 * idleInterval)
				synctest.Wait()
				if read(percent) != defaultPercent {
					t.Errorf("at rest it collects at %d%%", read(percent))
				}
				if forced() == before {
					t.Error("a process at rest keeps its garbage")
				}
				cancel()
				<-ended
			})
		})
	}
}

func TestBoundHeedsGOMEMLIMIT(t *testing.T) {
	before := debug.SetMemoryLimit(3 << 30)
	defer debug.SetMemoryLimit(before)
	t.Setenv("GOMEMLIMIT", "3GiB")
	if got := applyMemoryLimit(); got != 3<<30 {
		t.Errorf("%d bytes", got)
	}
	if got := debug.SetMemoryLimit(-1); got != 3<<30 {
		t.Errorf("the limit is %d now", got)
	}
}
