package postgres

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store"
)

// TestACommitTakesAsLongAsItsCallerAllows: a long log is deleted by whoever has the time for it.
func TestACommitTakesAsLongAsItsCallerAllows(t *testing.T) {
	t.Parallel()
	b := bare(t, pgtest.URL(t), nil)
	b.endTimeout = time.Nanosecond // which every commit takes longer than
	s := store.New(b)
	minute, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, ctx := range map[string]context.Context{"a minute": minute, "no deadline": context.Background()} {
		if err := s.AddUses(ctx, capability.IdempotencyKey{Writer: name, Seq: 1}, []capability.RefUses{{Ref: "ses_A.o1", Count: 1}}); err != nil {
			t.Errorf("a commit with %s for it: %v", name, err)
		}
	}
}

// TestPatience: what is on its way is given up when its caller's time is over, but not at once.
func TestPatience(t *testing.T) {
	t.Parallel()
	const least = 10 * time.Second
	for name, c := range map[string]struct {
		deadline, canceled, want time.Duration // 0: never
	}{
		"more time than least":           {deadline: time.Minute, want: time.Minute},
		"less time":                      {deadline: time.Second, want: least},
		"canceled before its deadline":   {deadline: time.Minute, canceled: time.Second, want: time.Minute},
		"canceled, without a deadline":   {canceled: time.Minute, want: time.Minute + least},
		"never canceled, nor a deadline": {},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(context.Background())
				defer cancel()
				if c.deadline > 0 {
					ctx, cancel = context.WithTimeout(ctx, c.deadline)
					defer cancel()
				}
				if c.canceled > 0 {
					time.AfterFunc(c.canceled, cancel)
				}
				begun, hour := time.Now(), time.NewTimer(time.Hour)
				patient, end := commitContext(ctx, least)
				select {
				case <-patient.Done():
					if took := time.Since(begun); took != c.want {
						t.Errorf("given up after %v, want %v", took, c.want)
					}
				case <-hour.C:
					if c.want > 0 {
						t.Errorf("never given up, want after %v", c.want)
					}
				}
				if end(); patient.Err() == nil {
					t.Error("it goes on after its end")
				}
			})
		})
	}
}
