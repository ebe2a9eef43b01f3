// Reads of single keys and of a prefix's, page by page.

package client_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func keysOf(entries []client.EntryInfo) (keys []string) {
	for _, e := range entries {
		keys = append(keys, e.Key)
	}
	return keys
}

// TestListOfAPrefix: any number of keys, in either order, with what the ref shows.
func TestListOfAPrefix(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	b := s.Batch()
	var byKey, byPut []string
	for i := range 2100 {
		key := fmt.Sprintf("part/m/%04d", i*7919%10_000)
		byPut = append(byPut, key)
		b.Put(key, object{"i": i})
		if i%300 == 299 {
			if _, err := b.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			b = s.Batch()
		}
	}
	b.Put("part/n/1", object{})
	if _, err := b.CommitWait(t.Context()); err != nil {
		t.Fatal(err)
	}
	byKey = slices.Sorted(slices.Values(byPut))
	for order, want := range map[client.KeyOrder][]string{"": byKey, client.ByKey: byKey, client.ByPut: byPut} {
		for _, values := range []bool{false, true} {
			var got []string
			for e, err := range s.List(t.Context(), client.KeyOptions{Prefix: "part/m/", Order: order, Values: values}) {
				if err != nil || (e.Payload != nil) != values || e.Bytes < 7 {
					t.Fatalf("%+v, %v", e, err)
				}
				got = append(got, e.Key)
			}
			if !slices.Equal(got, want) {
				t.Errorf("by %q: %d keys", order, len(got))
			}
		}
	}
	page, err := s.ListPage(t.Context(), client.KeyOptions{Prefix: "part/"}, "part/m/9999", 0)
	if err != nil || !slices.Equal(keysOf(page.Entries), []string{"part/n/1"}) || page.Next != "" || page.Cursor != 2102 {
		t.Errorf("%+v, %v", page, err)
	}
	if page, err = s.ListPage(t.Context(), client.KeyOptions{}, "", 0); err != nil || len(page.Entries) != session.DefaultListKeys || page.Next != page.Entries[99].Key {
		t.Errorf("without a limit: %d entries, next %s, %v", len(page.Entries), page.Next, err)
	}
	for range s.List(t.Context(), client.KeyOptions{}) {
		break // a caller who has enough ends it
	}
	for _, err := range s.List(t.Context(), client.KeyOptions{Prefix: "part"}) {
		if fault.CodeOf(err) != fault.BadArgument || !strings.Contains(err.Error(), "add one to list") {
			t.Errorf("a prefix without /: %v", err)
		}
	}

	// A ref of one message, and one that may not read.
	one, err := s.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.Read | capability.Share, Message: "n"})
	if err != nil {
		t.Fatal(err)
	}
	defer one.Release()
	ref, err := one.Share(t.Context(), s.Ref(), client.ShareOptions{Rights: capability.Read})
	if err != nil {
		t.Fatal(err)
	}
	reader, err := r.open(t, "reader").Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	if page, err = reader.ListPage(t.Context(), client.KeyOptions{}, "", 1); err != nil || !slices.Equal(keysOf(page.Entries), []string{"part/n/1"}) || page.Next != "" {
		t.Errorf("of a message: %+v, %v", page, err)
	}
	if page, err = reader.Get(t.Context(), byKey[0], "part/n/1"); err != nil || !slices.Equal(keysOf(page.Entries), []string{"part/n/1"}) {
		t.Errorf("by key, of a message: %+v, %v", page, err)
	}
}
