//go:build unix

// Old sessions of a space: removed in pieces, by who may, with their followers told.

package node

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// past waits until the database's clock has passed the last events of sessions, and returns that time.
func past(t *testing.T, st Store, ids ...string) int64 {
	t.Helper()
	before := int64(0)
	for _, id := range ids {
		before = max(before, rowOf(t, st, id).Updated+1)
	}
	for {
		at, err := st.ReadAccess(t.Context(), "", nil)
		if err != nil {
			t.Fatal(err)
		}
		if at.Now >= before {
			return before
		}
	}
}

// Who may remove in old sessions.
func TestRemoveOlderTable(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		maker := r.spaceRef(capability.Create)
		manager := r.spaceRef(capability.Manage)
		dead := r.spaceRef(capability.Manage)
		if _, err := r.held(r.owner).RevokeInSpace(t.Context(), dead.ID); err != nil {
			t.Fatal(err)
		}
		narrowed := func(ref capability.Ref, rights capability.Rights) *objects.Capability {
			h, err := r.held(ref).Attenuate(t.Context(), capability.MintRequest{Rights: rights})
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		for _, c := range []struct {
			name string
			live *objects.Capability
			want fault.Code
		}{
			{"the root", r.held(r.owner), fault.None},
			{"a ref with manage", r.held(manager), fault.None},
			{"the root, attenuated to it", narrowed(r.owner, capability.Manage), fault.None},
			{"the root, attenuated without", narrowed(r.owner, capability.SpaceRights&^capability.Manage), fault.MissingRight},
			{"all rights but manage", r.held(r.spaceRef(capability.SpaceRights &^ capability.Manage)), fault.MissingRight},
			{"a ref to create with", r.held(maker), fault.MissingRight},
			{"a dead ref", r.held(dead), fault.Revoked},
			{"a session's", r.held(r.create(p).owner), fault.BadArgument},
		} {
			m := r.under(maker).create(p)
			before := past(t, st, m.id)
			for _, method := range []string{"", session.MethodPurge, session.MethodDelete} {
				key := ""
				if method == session.MethodPurge {
					key = "message/msg_1"
				}
				done, err := c.live.RemoveOlder(t.Context(), session.OlderQuery{Remove: session.OlderRemoval{Method: method, Key: key, Before: before}})
				if fault.CodeOf(err) != c.want || err == nil && (done.Next != "" || done.Stopped != nil) {
					t.Errorf("%s, to %q: %+v, %v, want %s", c.name, method, done, err, c.want)
				}
			}
			if row := rowOf(t, st, m.id); (row.Life == session.Deleted) != (c.want == fault.None) {
				t.Errorf("%s: the session is %v", c.name, row.Life)
			}
		}
		for name, bad := range map[string]session.OlderQuery{
			"no age":             {Remove: session.OlderRemoval{Method: session.MethodDelete}},
			"no method":          {Remove: session.OlderRemoval{Method: session.MethodPut, Before: 1}},
			"a key to delete":    {Remove: session.OlderRemoval{Method: session.MethodDelete, Key: "message/m", Before: 1}},
			"no key to purge":    {Remove: session.OlderRemoval{Method: session.MethodPurge, Before: 1}},
			"a time to come":     {Remove: session.OlderRemoval{Method: session.MethodDelete, Before: time.Now().Add(time.Hour).UnixMilli()}},
			"a negative time":    {Remove: session.OlderRemoval{Before: -1}},
			"a negative age":     {Age: -5000},
			"half a second":      {Age: 500},
			"after no session":   {Age: 5000, After: "x"},
			"an age without end": {Age: 1<<53 + 1},
		} {
			if done, err := r.held(r.owner).RemoveOlder(t.Context(), bad); fault.CodeOf(err) != fault.BadArgument {
				t.Errorf("%s: %+v, %v", name, done, err)
			}
		}
		if _, err := r.held(r.owner).RemoveOlder(t.Context(), session.OlderQuery{Remove: session.OlderRemoval{Method: session.MethodPurge, Key: "Not a key", Before: 1}}); fault.CodeOf(err) != fault.BadKey {
			t.Errorf("a bad key: %v", err)
		}
	})
}

// Many sessions are removed in several transactions; who follows one is told, and a call that is given up
// says where the next begins.
func TestRemoveOlderInPieces(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		var ids []string
		var first *made
		for range 150 {
			m := r.create(p)
			ids = append(ids, m.id)
			if first == nil {
				first = m
			}
		}
		slices.Sort(ids)
		k := newRecorder()
		sub := p.subscribe(first.sess, k, 0)
		defer sub.Release()
		before := past(t, st, ids...)
		root := r.held(r.owner)
		q := session.OlderQuery{Remove: session.OlderRemoval{Method: session.MethodDelete, Before: before}, Limit: 100}
		ended, end := context.WithCancel(t.Context())
		end()
		if done, err := root.RemoveOlder(ended, q); fault.CodeOf(err) == fault.None {
			t.Errorf("a call that was given up: %+v", done)
		}
		var pages []uint32
		for {
			done, err := root.RemoveOlder(t.Context(), q)
			if err != nil || done.Stopped != nil || len(done.Sessions) != 0 || done.Before != before {
				t.Fatalf("%+v, %v", done, err)
			}
			pages = append(pages, done.Done)
			if q.After = done.Next; q.After == "" {
				break
			}
		}
		if !slices.Equal(pages, []uint32{100, 50}) {
			t.Errorf("deleted %v", pages)
		}
		for _, id := range ids {
			if row := rowOf(t, st, id); row.Life != session.Deleted {
				t.Fatalf("session %s is %v", id, row.Life)
			}
		}
		k.until(t, "the end of the subscription", func() bool { return k.ended != nil })
		if k.ended.Code != fault.SessionDeleted {
			t.Errorf("the subscriber was told %v", k.ended)
		}
		page, err := st.ReadLog(t.Context(), first.id, 0, 1<<20, 100, nil)
		if err != nil {
			t.Fatal(err)
		}
		events := page.Shown(&capability.Grant{Owner: true, Rights: capability.OwnerRights}).Events
		if e := events[len(events)-1]; e.Method != session.MethodDelete || e.Ref != r.owner.ID || e.Actor != "owner" || e.Outbox != "" {
			t.Errorf("the log ends with %+v", e)
		}
		if again, err := root.RemoveOlder(t.Context(), session.OlderQuery{Remove: session.OlderRemoval{Method: session.MethodDelete, Before: before}}); err != nil || again.Done != 0 || again.Next != "" {
			t.Errorf("again: %+v, %v", again, err)
		}
	})
}
