package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/client"
)

// TestSomeKeysAcrossReverts: who reads or follows some keys of messages is sent what is about all messages, too, and what is
// about the message of a part.
func TestSomeKeysAcrossReverts(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "reader"))
	b := s.Batch()
	b.Put("message/a", object{})
	b.Put("part/a/1", object{})
	b.Put("message/b", object{})
	b.Compact("message/a", "message/b")
	b.Revert("message/b")
	b.Unrevert()
	b.Revert("message/b")
	b.Put("message/c", object{}) // settles it
	b.Put("todo/1", 1)
	b.Purge("message/a")
	applied(t, b)
	for keys, want := range map[string][]string{
		"message/b": {"put", "compact", "revert", "unrevert", "revert", "settle"},
		"part/a/":   {"put", "compact", "revert", "unrevert", "revert", "settle", "purge"},
		"todo/":     {"put"},
	} {
		page, err := s.EventsOf(t.Context(), client.Position{}, []string{keys}, 0)
		if err != nil {
			t.Fatalf("%s: %v", keys, err)
		}
		methods := func(events []client.Event) (list []string) {
			for _, e := range events {
				if !e.Hidden {
					list = append(list, e.Method)
				}
			}
			return list
		}
		if got := methods(page.Events); !slices.Equal(got, want) {
			t.Errorf("%s: %v, want %v", keys, got, want)
		}
		var live []client.Event
		ctx, stop := context.WithTimeout(t.Context(), time.Minute)
		defer stop()
		err = s.Subscribe(ctx, client.SubscribeOptions{Keys: []string{keys}}, func(e client.Event) error {
			if live = append(live, e); e.Cursor == page.Cursor {
				return errSeenEnough
			}
			return nil
		})
		if got := methods(live); !errors.Is(err, errSeenEnough) || !slices.Equal(got, want) {
			t.Errorf("following %s: %v, want %v: %v", keys, got, want, err)
		}
	}
}

var errSeenEnough = errors.New("seen enough")
