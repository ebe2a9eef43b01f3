// What the verbs that ask a server directly leave behind on the connection: nothing.

package client_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/until"
)

func TestDirectVerbsLeaveNothing(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	public, withKey := sealKey(t)
	s := r.newSession(t, r.open(t, "owner"))
	b := s.Batch()
	b.Put(message(1), object{})
	sealed, _ := b.Share(client.ShareOptions{Rights: capability.Read, Seal: public, Actor: "owner/sealed"})
	applied(t, b)

	c := r.open(t, "reader", withKey, func(c *client.Config) { c.Offline = true }) // without a sender, and its streams
	sp := r.space(t, c)
	mine, err := c.Session(t.Context(), s.Ref())
	if err != nil {
		t.Fatal(err)
	}
	enough := errors.New("enough")
	for name, verb := range map[string]func() error{
		"Redeem":   func() error { _, err := c.Redeem(t.Context(), sealed); return err },
		"Describe": func() error { _, err := mine.Describe(t.Context()); return err },
		"Events":   func() error { _, err := mine.Events(t.Context(), 0, 0); return err },
		"Snapshot": func() error { _, err := mine.Snapshot(t.Context()); return err },
		"Verify":   func() error { _, err := mine.Verify(t.Context(), nil); return err },
		"Audit":    func() error { _, err := mine.Audit(t.Context(), 0, 0); return err },
		"Save":     func() error { _, err := mine.Save(t.Context()); return err },
		"Share": func() error {
			_, err := sp.Share(t.Context(), client.ShareOptions{Rights: capability.List})
			return err
		},
		"a refusal": func() error {
			if _, err := mine.SnapshotAt(t.Context(), 1000); err == nil {
				return errors.New("a state that never was is there")
			}
			return nil
		},
		"a widening": func() error { return widened(t, c, sealed) },
		"Refs": func() error {
			for _, err := range mine.Refs(t.Context(), "") {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"List": func() error {
			for _, err := range sp.List(t.Context(), client.ListOptions{}) {
				if err != nil {
					return err
				}
			}
			return nil
		},
		"Subscribe": func() error {
			err := mine.Subscribe(t.Context(), client.SubscribeOptions{}, func(client.Event) error { return enough })
			if errors.Is(err, enough) {
				return nil
			}
			return fmt.Errorf("it ended with %w", err)
		},
		"Attenuate": func() error {
			live, err := mine.Attenuate(t.Context(), client.AttenuateOptions{})
			if err != nil {
				return err
			}
			defer live.Release()
			narrow, err := live.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.Read})
			if err != nil {
				return err
			}
			defer narrow.Release()
			_, err = narrow.Snapshot(t.Context())
			return err
		},
	} {
		if err := verb(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		c.ReleaseCached()
		until.True(t, name+" leaves nothing", func() bool {
			st := c.ConnStats()[0]
			return st.Imports == 1 && st.Exports+st.Questions+st.Answers == 0 // the bootstrap object stays
		})
	}
}

// widened asks for more than a ref has.
func widened(t *testing.T, c *client.Client, ref capability.Ref) error {
	s, err := c.Session(t.Context(), ref)
	if err != nil {
		return err
	}
	if _, err = s.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.Append}); errors.Is(err, fault.Widening) {
		return nil
	}
	return fmt.Errorf("it ended with %w", err)
}
