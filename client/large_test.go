//go:build !race

// Tests of sizes, which the race detector multiplies: make test-slow runs them without it.

package client_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// A large session is copied in pieces: its fork's batch waits in the outbox, and is decided as a whole.
func TestForkOfALargeSession(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	source := r.newSession(t, c)
	for i := range 10 {
		b := source.Batch()
		b.Put(message(i), object{"text": strings.Repeat("x", 1<<20)})
		applied(t, b)
	}
	fork, batch := r.space(t, c).Fork(source, 0, client.CreateOptions{})
	made := batch.Put(message(10), object{"text": "more"})
	results := applied(t, batch)
	if o, err := results.Of(made); err != nil || o.Cursor != 13 {
		t.Errorf("the put after the fork: %+v, %v", o, err)
	}
	state, err := fork.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Entries) != 11 || state.Cursor != 13 {
		t.Errorf("the fork at cursor %d has %d entries", state.Cursor, len(state.Entries))
	}
	d, err := fork.Describe(t.Context())
	if err != nil || d.Session.Origin.Session != source.ID() || d.Session.Origin.Cursor != 11 || d.Session.Base != 12 {
		t.Errorf("it is %+v, %v", d.Session, err)
	}
}

// TestGetOfManyKeys: more keys than a call takes, and more values than an answer has, come all.
func TestGetOfManyKeys(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	large := bytes.Repeat([]byte("x"), 900_000)
	var asked, want []string
	for i := range 150 {
		key := message(i)
		if asked = append(asked, key); i%7 == 3 {
			continue
		}
		want = append(want, key)
		payload := object{"i": i}
		if i%20 < 2 {
			payload["x"] = string(large)
		}
		ticket, err := s.Put(t.Context(), key, payload)
		if err != nil || i == 149 && waited(t, ticket).Err() != nil {
			t.Fatal(err)
		}
	}
	page, err := s.Get(t.Context(), asked...)
	if err != nil || !slices.Equal(keysOf(page.Entries), want) || page.Cursor != uint64(len(want)+1) || page.Next != "" {
		t.Fatalf("%d of %d entries at %d, %v", len(page.Entries), len(want), page.Cursor, err)
	}
	d, err := s.Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, e := range page.Entries {
		if e.Cursor != uint64(i+2) || e.Schema != 1 || e.Bytes != uint64(len(e.Payload)) || e.Ref != d.Grant.Ref || e.Actor != "owner" || e.At.IsZero() || !bytes.Contains(e.Payload, []byte(`{"i":`)) {
			t.Fatalf("%+v", e)
		}
	}
	none, err := s.Get(t.Context(), "message/none")
	if err != nil || len(none.Entries) > 0 || none.Cursor != page.Cursor {
		t.Errorf("of a key without a value: %+v, %v", none, err)
	}
	for name, c := range map[string]struct {
		keys []string
		want fault.Code
	}{"no keys": {nil, fault.BadArgument}, "twice": {[]string{message(1), message(1)}, fault.BadArgument}, "no key": {[]string{message(1), "a b"}, fault.BadKey}} {
		if page, err := s.Get(t.Context(), c.keys...); fault.CodeOf(err) != c.want || len(page.Entries) > 0 {
			t.Errorf("%s: %+v, %v", name, page, err)
		}
	}
}
