// What is read of a session: events over links that break, snapshots, and forks.

package client_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestSubscribersSeeEveryEventOnceOverCutLinks(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	writer := r.newSession(t, r.open(t, "a"))
	const n = 400
	readers := 3
	ended := make(chan error, readers)
	for i := range readers {
		reader, err := r.open(t, fmt.Sprint("reader", i)).Session(t.Context(), writer.Ref())
		if err != nil {
			t.Fatal(err)
		}
		done := errors.New("all there")
		go func() {
			last := uint64(0)
			err := reader.Subscribe(t.Context(), client.SubscribeOptions{WindowBytes: 4096}, func(e client.Event) error {
				if e.Cursor != last+1 {
					return fmt.Errorf("cursor %d after %d", e.Cursor, last)
				}
				last = e.Cursor
				if last == n+1 {
					return done
				}
				return nil
			})
			if errors.Is(err, done) {
				err = nil
			}
			ended <- err
		}()
	}
	var ticket client.Ticket
	var err error
	for i := range n {
		if i%40 == 20 {
			r.proxy.Cut()
		}
		if ticket, err = writer.Put(t.Context(), message(i), object{"i": i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Fatal(err)
	}
	r.proxy.Cut()
	for range readers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	page, err := writer.Events(t.Context(), 0, 1000)
	if err != nil || page.Cursor != n+1 {
		t.Errorf("the log ends at %d (%v), want %d", page.Cursor, err, n+1)
	}
}

func TestForkCopiesWhatItMayRead(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	source := r.newSession(t, c)
	b := source.Batch()
	b.Put("session", object{"title": "source"})
	second := b.Put(message(1), object{"text": "one"})
	results := applied(t, b)
	o, err := results.Of(second)
	if err != nil {
		t.Fatal(err)
	}
	late := source.Batch()
	late.Put(message(2), object{"text": "two"})
	applied(t, late)
	sp := r.space(t, c)
	fork, batch := sp.Fork(source, o.Cursor, client.CreateOptions{Label: "fork"})
	batch.Put(message(3), object{"text": "three"})
	applied(t, batch)
	state, err := fork.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Cursor != 2 || state.Entry(message(1)) == nil || state.Entry(message(2)) != nil || state.Entry(message(3)) == nil {
		t.Errorf("the fork at cursor %d has %+v", state.Cursor, state.Entries)
	}
}

func TestSnapshotsEqualTheFoldOfTheLog(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	for i := range 30 {
		b := s.Batch()
		b.Put(message(i%7), object{"i": i})
		if i%5 == 0 {
			b.Remove(message((i + 3) % 7))
		}
		if _, err := b.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	last := s.Batch()
	last.Put("session", object{})
	end := applied(t, last)[0].Cursor
	want := map[string]string{}
	for e, err := range s.Follow(t.Context(), client.SubscribeOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Method {
		case session.MethodPut:
			want[e.Key] = string(e.Payload)
		case session.MethodRemove:
			delete(want, e.Key)
		}
		if e.Cursor == end/2 || e.Cursor == end {
			state, err := s.SnapshotAt(t.Context(), e.Cursor)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, entry := range state.Entries {
				got[entry.Key] = string(entry.Payload)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("at cursor %d the snapshot is %v, the log folds to %v", e.Cursor, got, want)
			}
		}
		if e.Cursor == end {
			break
		}
	}
}
