package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// A lifetime counts from when the server makes the ref, by its own clock, whatever this
// machine's clock shows and however long the op has waited.
func TestALifetimeBeginsWhereItApplies(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	const hour = time.Hour
	b := s.Batch()
	b.Share(client.ShareOptions{Rights: capability.Read, Lifetime: hour})
	raw := s.Ref().New(s.ID())
	slow := time.Now().Add(-hour).UnixMilli() // a clock that is two hours slow
	b.Do(session.MethodShare, client.Arg{Name: "ref", Value: raw.ID}, client.Arg{Name: "hash", Value: raw.Secret.HashText()},
		client.Arg{Name: "rights", Value: []string{"read"}}, client.Arg{Name: "expires_at", Value: slow}, client.Arg{Name: "expires_in", Value: hour.Milliseconds()})
	gone, refused := b.Share(client.ShareOptions{Rights: capability.Read, Expires: time.Now().Add(-hour)})
	ticket, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	results, err := ticket.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o, err := results.Of(refused); err != nil || o.Reason != fault.BadArgument {
		t.Errorf("an expiry that is past by the time it applies: %+v", o)
	}
	if _, err := r.open(t, "gone").Redeem(t.Context(), gone); !errors.Is(err, fault.NotYetKnown) {
		t.Errorf("the ref that was refused: %v", err)
	}
	page, err := s.Events(t.Context(), 1, 10)
	if err != nil || len(page.Events) != 2 {
		t.Fatalf("%d events: %v", len(page.Events), err)
	}
	for _, e := range page.Events {
		var p struct {
			Expires int64 `json:"expires_at"`
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil || p.Expires != e.At.Add(hour).UnixMilli() {
			t.Errorf("the ref made at %v expires at %d: %v", e.At, p.Expires, err)
		}
	}
	live, err := s.Attenuate(t.Context(), client.AttenuateOptions{Lifetime: hour})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Release()
	d, err := live.Describe(t.Context())
	if left := d.Grant.Expires.Sub(d.Now); err != nil || left > hour || left < hour-time.Minute {
		t.Errorf("the live capability lasts for %v: %v", left, err)
	}
	for _, wrong := range []client.AttenuateOptions{{Lifetime: -1}, {Lifetime: time.Microsecond}, {Lifetime: hour, Expires: time.Now().Add(hour)}} {
		if _, err := s.Attenuate(context.Background(), wrong); !errors.Is(err, fault.BadArgument) {
			t.Errorf("%+v: %v", wrong, err)
		}
	}
	if _, err := s.Attenuate(t.Context(), client.AttenuateOptions{Expires: time.Now().Add(-hour)}); !errors.Is(err, fault.BadArgument) {
		t.Errorf("a live capability that was over before it began: %v", err)
	}
}
