package client_test

import (
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// TestVerifyWhileOthersWrite: what is appended, streamed and purged while a log
// is read is never taken for a change by hand.
func TestVerifyWhileOthersWrite(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	stop := make(chan struct{})
	var writing sync.WaitGroup
	defer writing.Wait()
	defer close(stop)
	writing.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-stop:
				return
			default:
			}
			b := s.Batch()
			b.Begin(message(n)[len("message/"):], object{"role": "assistant"})
			b.Put("part/"+message(n)[len("message/"):]+"/p", object{"text": ""})
			b.AppendText("part/"+message(n)[len("message/"):]+"/p", 0, "text")
			b.Finalize(message(n)[len("message/"):], "completed")
			if n%50 == 0 {
				b.Purge(message(n))
			}
			if !applies(t, b) {
				return
			}
		}
	})
	verified := 0
	for range 10 {
		v, err := s.Verify(t.Context(), nil)
		if fault.CodeOf(err) == fault.Overloaded {
			continue // purged each time it was read
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := v.Err(); err != nil {
			t.Fatalf("after %d that were good: %v", verified, err)
		}
		if verified++; v.State == (client.Hash{}) || v.Cursor < v.StateCursor || len(v.Unverified) != 0 {
			t.Errorf("verified: %+v", v)
		}
	}
	if verified == 0 {
		t.Error("nothing could be verified")
	}
}

// applies is applied for another goroutine than the test's.
func applies(t *testing.T, b *client.Batch) bool {
	ticket, err := b.Commit(t.Context())
	if err == nil {
		var results client.Results
		if results, err = ticket.Wait(t.Context()); err == nil {
			err = results.Err()
		}
	}
	if err != nil {
		t.Error(err)
	}
	return err == nil
}

// TestReadersAfterAPurge: a snapshot of an earlier cursor, a fork of one,
// and who folds the events it follows.
func TestReadersAfterAPurge(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	b := s.Batch()
	b.Put(message(1), object{"text": "leaked"})
	b.Put(message(2), object{"text": "stays"})
	applied(t, b)
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	before := state.Cursor
	b = s.Batch()
	b.Purge(message(1))
	applied(t, b)

	if v, err := s.Verify(t.Context(), nil); err != nil || v.Err() != nil || v.Purged != 1 {
		t.Errorf("verified: %+v, %v", v, err)
	}
	earlier, err := s.SnapshotAt(t.Context(), before)
	if err != nil {
		t.Fatal(err)
	}
	if earlier.Entry(message(1)) != nil || earlier.Entry(message(2)) == nil {
		t.Errorf("the earlier state has %+v", earlier.Entries)
	}
	sp := r.space(t, c)
	f, fork := sp.Fork(s, before, client.CreateOptions{})
	applied(t, fork)
	copied, err := f.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if copied.Entry(message(1)) != nil || copied.Entry(message(2)) == nil {
		t.Errorf("the fork has %+v", copied.Entries)
	}

	// Who has folded the payload before the purge came goes on to the same state.
	entries := make([]*session.Entry, len(state.Entries))
	for i, e := range state.Entries {
		entries[i] = &session.Entry{Key: e.Key, Cursor: e.Cursor, Schema: e.Schema, Payload: e.Payload}
	}
	fold := session.FoldFrom(s.ID(), state.Cursor, 1, entries, nil)
	for e, err := range s.Follow(t.Context(), client.SubscribeOptions{After: before}) {
		if err != nil {
			t.Fatal(err)
		}
		if err := fold.Apply(&session.Event{Cursor: e.Cursor, Method: e.Method, Key: e.Key, Schema: e.Schema, Payload: e.Payload, Hash: session.Hash(e.Hash)}); err != nil {
			t.Fatal(err)
		}
		break
	}
	if fold.Entry(message(1)) != nil || fold.Entry(message(2)) == nil {
		t.Errorf("the follower has %+v", fold.Entries())
	}
}

// TestVerifyThroughOtherRefs: what a ref does not show is said, and a dead one
// shows nothing.
func TestVerifyThroughOtherRefs(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	b := s.Batch()
	b.Put(message(1), object{})
	late, _ := b.Share(client.ShareOptions{Rights: capability.Read, From: 3})
	lateOfSome, _ := b.Share(client.ShareOptions{Rights: capability.Read, From: 3, ReadKeys: []string{"todo/"}})
	blind, _ := b.Share(client.ShareOptions{Rights: capability.Append})
	reader, _ := b.Share(client.ShareOptions{Rights: capability.Read})
	applied(t, b)
	through := func(ref capability.Ref) (*client.Verification, error) {
		other, err := c.Session(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return other.Verify(t.Context(), nil)
	}
	if v, err := through(reader); err != nil || v.Err() != nil || v.From != 1 || len(v.Unverified) != 0 || v.State == (client.Hash{}) {
		t.Errorf("through a reader: %+v, %v", v, err)
	}
	if v, err := through(late); err != nil || v.Err() != nil || v.From != 3 || v.Events != 4 || len(v.Unverified) != 1 || v.State != (client.Hash{}) {
		t.Errorf("through a later ref: %+v, %v", v, err)
	}
	if v, err := through(lateOfSome); fault.CodeOf(err) != fault.MissingRight {
		t.Errorf("through one that shows some keys: %+v, %v", v, err)
	}
	if _, err := through(blind); fault.CodeOf(err) != fault.MissingRight {
		t.Errorf("through one that may not read: %v", err)
	}
	if _, err := s.BumpEpoch(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := through(reader); fault.CodeOf(err) != fault.StaleEpoch {
		t.Errorf("through a dead one: %v", err)
	}
}

// Through a ref that shows the log from a cursor on, the end of a turn that began
// before verifies as far as it is shown.
func TestVerifyOfATurnThatBeganBefore(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	b := s.Batch()
	b.Begin("m", object{"old": "value"})
	b.Put("part/m/p", object{"text": "old"})
	late, _ := b.Share(client.ShareOptions{Rights: capability.Read, From: 4})
	b.AppendText("part/m/p", 3, " new")
	b.Finalize("m", "completed")
	applied(t, b)
	other, err := c.Session(t.Context(), late)
	if err != nil {
		t.Fatal(err)
	}
	if v, err := other.Verify(t.Context(), nil); err != nil || v.Err() != nil || v.From != 4 || len(v.Unverified) != 2 {
		t.Errorf("%+v, %v", v, err)
	}
}
