package upkeep

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// older is a removal in a session under a ref of its space.
func older(id, ref string, remove session.OlderRemoval) decide.Submission {
	return decide.Submission{Batch: ledger.Batch{Session: id}, Ref: ref, Manage: true, Peer: "192.0.2.7", Direct: &decide.Direct{Older: &remove}}
}

// testOlder: old sessions are listed page by page, and where they are removed each is looked at again.
func testOlder(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root, foreign := f.Space(), f.Space()
	made := func(space *capability.Grant, ops ...ledger.Intent) *harness.Author {
		a := harness.NewAuthor(space.ID)
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: a.Session, Outbox: a.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
		f.Applied(a.Batch(false, append([]ledger.Intent{a.Create()}, ops...)...))
		return a
	}
	begin := harness.NewIntent(session.MethodBegin, "message", "m", "payload", json.RawMessage(`{"role":"x"}`))
	var ids []string
	for range 5 {
		ids = append(ids, made(root, harness.PutOp("message/m", `{"secret":1}`), harness.PutOp("message/n", `{}`)).Session)
	}
	slices.Sort(ids)
	running, gone := made(root, begin), made(root)
	f.Applied(gone.Batch(false, harness.NewIntent(session.MethodDelete)))
	theirs := made(foreign)
	last := made(root, harness.PutOp("message/m", `{}`)) // after all others, in another millisecond
	rows, err := f.ReadRows(f.Ctx, []string{running.Session, gone.Session})
	f.Must("read rows", err)
	before := max(rows[running.Session].Updated, rows[gone.Session].Updated) + 1
	for rows[last.Session] == nil || rows[last.Session].Updated < before {
		f.Applied(last.Batch(false, harness.PutOp("message/m", `{"at":%q}`, harness.NewOp())))
		rows, err = f.ReadRows(f.Ctx, []string{last.Session})
		f.Must("read rows", err)
	}

	list := func(space string, limit int, remove session.OlderRemoval, age int64) (got []string, running int) {
		for after := ""; ; {
			page, err := f.ListOlder(f.Ctx, space, session.OlderQuery{Remove: remove, Age: age, After: after, Limit: limit}, []string{root.ID})
			f.Must("list old sessions", err)
			if page.Grants[root.ID] == nil || page.Before == 0 || remove.Before != 0 && page.Before != remove.Before || age != 0 && page.Before != page.Now-age {
				t.Errorf("a page: %+v", page)
			}
			for _, one := range page.Sessions {
				got = append(got, one.ID)
				if one.Running {
					running++
				} else if one.Events != 3 || one.Bytes == 0 || one.Updated >= before {
					t.Errorf("listed: %+v", one)
				}
			}
			if after = page.Next; after == "" {
				return got, running
			}
		}
	}
	want := slices.Sorted(slices.Values(append(slices.Clone(ids), running.Session)))
	for _, limit := range []int{1, 4, 100} {
		got, n := list(root.Target, limit, session.OlderRemoval{Before: before}, 0)
		harness.Same(f, "old sessions", got, want)
		harness.Same(f, "running", n, 1)
	}
	got, _ := list(root.Target, 100, session.OlderRemoval{}, 1<<40)
	harness.Same(f, "older than 34 years", len(got), 0)
	_, err = f.ListOlder(f.Ctx, root.Target, session.OlderQuery{Remove: session.OlderRemoval{Before: 1 << 52}, Limit: 1}, nil)
	f.WantCode("before a time to come", err, fault.BadArgument)

	maker, dead := harness.Grant(harness.ClientRef(root.Target), root.ID), harness.Grant(harness.ClientRef(root.Target), root.ID)
	maker.Rights, maker.Epoch, dead.Rights, dead.Epoch, dead.Revoked = capability.Create|capability.List, 0, capability.Manage, 0, 7
	f.Save(&session.Changes{Grants: []*capability.Grant{maker, dead}})
	del, purge := session.OlderRemoval{Method: session.MethodDelete, Before: before}, session.OlderRemoval{Method: session.MethodPurge, Key: "message/m", Before: before}
	refused := func(what, id, ref string, remove session.OlderRemoval, code fault.Code) {
		f.Helper()
		was, err := f.ReadRows(f.Ctx, []string{id})
		f.Must("read rows", err)
		answers, _ := f.Commit(older(id, ref, remove))
		if got := answers[0].Err; got == nil || got.Code != code {
			t.Errorf("%s: %v, want %s", what, got, code)
		}
		now, err := f.ReadRows(f.Ctx, []string{id})
		f.Must("read rows", err)
		if was[id] != nil {
			harness.Same(f, what, now, was)
		}
	}
	refused("changed since", last.Session, root.ID, del, fault.Conflict)
	refused("changed since, purged", last.Session, root.ID, purge, fault.Conflict)
	refused("a running turn", running.Session, root.ID, del, fault.TurnOpen)
	refused("deleted", gone.Session, root.ID, del, fault.SessionDeleted)
	refused("of another space", theirs.Session, root.ID, session.OlderRemoval{Method: session.MethodDelete, Before: 1 << 52}, fault.NotFound)
	refused("not there", harness.NewSession(), root.ID, del, fault.NotFound)
	refused("without the right", ids[0], maker.ID, del, fault.MissingRight)
	refused("under a dead ref", ids[0], dead.ID, del, fault.Revoked)

	answers, _ := f.Commit(older(ids[0], root.ID, purge), older(ids[1], root.ID, del), older(last.Session, root.ID, del), older(ids[2], root.ID, session.OlderRemoval{Method: session.MethodPurge, Key: "message/x", Before: before}), older(ids[1], root.ID, del))
	for i, want := range []struct {
		cut  uint64
		code fault.Code
	}{{4, 0}, {4, 0}, {0, fault.Conflict}, {0, 0}, {0, fault.SessionDeleted}} {
		if a := answers[i]; a.Cut != want.cut || fault.CodeOf(errOf(a.Err)) != want.code {
			t.Errorf("answer %d: cut %d, %v", i, a.Cut, a.Err)
		}
	}
	entries, _ := f.StateOf(ids[0])
	harness.Same(f, "left of the purged", len(entries), 1)
	got, _ = list(root.Target, 100, session.OlderRemoval{Before: before}, 0)
	harness.Same(f, "old ones after that", got, slices.DeleteFunc(want, func(id string) bool { return id == ids[0] || id == ids[1] }))
	for target, acts := range map[string][]capability.AuditAct{ids[0]: {capability.AuditPurge}, ids[1]: {capability.AuditDelete}, root.Target: {capability.AuditPurge, capability.AuditDelete}} {
		var rows []capability.AuditAct
		for _, row := range f.AuditOf(target) {
			if row.Ref == root.ID && (row.Act == capability.AuditPurge || row.Act == capability.AuditDelete) && row.Peer == "192.0.2.7" {
				rows = append(rows, row.Act)
			}
		}
		harness.Same(f, "audit of "+target, rows, acts)
	}
}

func errOf(f *fault.Error) error {
	if f == nil {
		return nil
	}
	return f
}

// testOlderLocksSpace: while something is removed under a ref of the space that need not have opened the session, the ref
// is not revoked, and while it is, nothing is removed: it comes later, and is refused.
func testOlderLocksSpace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := f.Space()
	for _, removalFirst := range []bool{true, false} {
		ref := harness.Grant(harness.ClientRef(root.Target), root.ID)
		ref.Rights, ref.Epoch = capability.Manage, 0
		f.Save(&session.Changes{Grants: []*capability.Grant{ref}})
		a := harness.NewAuthor(root.ID)
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: a.Session, Outbox: a.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
		f.Applied(a.Batch(false, a.Create()))
		var answer decide.Answer
		remove := func(ctx context.Context, within func()) error {
			return f.Update(ctx, func(tx session.Tx) error {
				answers, _, err := decide.Commit(ctx, tx, []decide.Submission{older(a.Session, ref.ID, session.OlderRemoval{Method: session.MethodDelete, Before: 1 << 52})}, decide.DefaultConfig())
				if err == nil {
					answer = answers[0]
					within()
				}
				return err
			})
		}
		revoke := func(ctx context.Context, within func()) error {
			return f.Update(ctx, func(tx session.Tx) error {
				rows, err := tx.Load(ctx, &session.ReadSet{ExclusiveSpaces: []string{root.Target}, Trees: []string{ref.ID}})
				if err == nil {
					_, _, err = maintain.RevokeTree(ctx, tx, root, ref.ID, rows.Trees[ref.ID], "")
				}
				if err == nil {
					within()
				}
				return err
			})
		}
		first, second := revoke, remove
		if removalFirst {
			first, second = remove, revoke
		}
		f.Must("the first", first(f.Ctx, func() {
			waiting, cancel := context.WithTimeout(f.Ctx, 100*time.Millisecond)
			defer cancel()
			if err := second(waiting, func() {}); err == nil {
				t.Errorf("removal first: %t: the second is decided meanwhile", removalFirst)
			}
		}))
		f.Must("the second", second(f.Ctx, func() {}))
		if removalFirst == (answer.Err != nil) || !removalFirst && answer.Err.Code != fault.Revoked {
			t.Errorf("removal first: %t: %v", removalFirst, answer.Err)
		}
	}
}
