package txn

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

// TestDoors: one at a time is in, sessions have nothing to do with each other, and nothing
// is left of those who have gone.
func TestDoors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var d sessionLocks
		enter := func(id string) func() {
			leave, err := d.Acquire(t.Context(), id)
			if err != nil {
				t.Fatal(err)
			}
			return leave
		}
		in, most := 0, 0
		leave := enter("ses_A")
		for range 5 {
			go func() {
				defer enter("ses_A")()
				in++ // guarded by the door
				most = max(most, in)
				time.Sleep(time.Second)
				in--
			}()
		}
		enter("ses_B")()
		for want, give := range map[fault.Code]func() (context.Context, context.CancelFunc){
			fault.Unavailable: func() (context.Context, context.CancelFunc) { return context.WithTimeout(t.Context(), time.Second) },
			fault.Canceled: func() (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				return ctx, cancel
			},
		} {
			ctx, cancel := give()
			if _, err := d.Acquire(ctx, "ses_A"); fault.CodeOf(err) != want || !errors.Is(err, ctx.Err()) {
				t.Errorf("who did not get in is told %v, want %v", err, want)
			}
			cancel()
		}
		synctest.Wait()
		if most != 0 {
			t.Error("somebody is in beside the first")
		}
		leave()
		time.Sleep(time.Minute)
		synctest.Wait()
		if in != 0 || most != 1 || len(d.byID) != 0 {
			t.Errorf("%d are in, %d were at once, %d doors are left", in, most, len(d.byID))
		}
	})
}
