package sessions

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testChildren: children are listed under their parent alone, in pages, without those that were deleted, and
// as much of them as the grant shows that admit returns.
func testChildren(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := f.Space()
	at := func(a *harness.Author) *harness.Author {
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: a.Session, Outbox: a.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
		return a
	}
	parent, other := at(harness.NewAuthor(root.ID)), at(harness.NewAuthor(root.ID))
	f.Applied(parent.Batch(false, parent.Create()))
	f.Applied(other.Batch(false, other.Create()))
	born := func(of *harness.Author, args ...any) string {
		c := at(harness.NewAuthor(root.ID))
		c.With = []string{of.Ref}
		f.Applied(c.Batch(false, c.Create(append([]any{"parent", of.Session, "via", of.Ref}, args...)...)))
		return c.Session
	}
	var ids []string
	for range 4 {
		ids = append(ids, born(parent, "part", "part/m/p"))
	}
	ids = append(ids, born(parent))
	slices.Sort(ids)
	theirs := born(other)
	gone := at(harness.NewAuthor(root.ID))
	gone.With = []string{parent.Ref}
	f.Applied(gone.Batch(false, gone.Create("parent", parent.Session, "via", parent.Ref), harness.NewIntent(session.MethodDelete)))
	rows, err := f.ReadRows(f.Ctx, []string{ids[0], theirs})
	f.Must("read rows", err)
	harness.Same(f, "the parent", rows[theirs].Parent, session.Parent{Session: other.Session, Above: other.Session})

	children := func(id string, limit int, g *capability.Grant) (got []string, pages int) {
		for after, more := "", true; more; more = after != "" {
			page, err := f.ReadChildren(f.Ctx, id, after, limit, []string{parent.Ref}, func(at *session.Access) (*capability.Grant, error) {
				if at.Row.ID != id || at.Grants[parent.Ref] == nil {
					t.Errorf("admitted by %+v", at)
				}
				return g, nil
			})
			f.Must("list children", err)
			for _, l := range page.Sessions {
				got = append(got, l.ID)
			}
			after = page.Next
			pages++
		}
		return got, pages
	}
	got, pages := children(parent.Session, 2, &capability.Grant{})
	harness.Same(f, "children", got, ids)
	harness.Same(f, "pages", pages, 3)
	got, _ = children(other.Session, 2, &capability.Grant{})
	harness.Same(f, "another's", got, []string{theirs})
	got, _ = children(theirs, 2, &capability.Grant{})
	harness.Same(f, "none", len(got), 0)
	got, _ = children(parent.Session, 2, &capability.Grant{Message: "m"})
	harness.Same(f, "of a message", len(got), 4)
	own := errors.New("not admitted")
	if page, err := f.ReadChildren(f.Ctx, parent.Session, "", 2, nil, func(*session.Access) (*capability.Grant, error) { return nil, own }); err != own || page != nil {
		t.Errorf("not admitted: %v, %v", page, err)
	}
	_, err = f.ReadChildren(f.Ctx, parent.Session, "x", 2, nil, nil)
	f.WantCode("after no id", err, fault.BadArgument)

	list := func(space string, q session.ListQuery) (got []string) {
		page, err := f.ListSessions(f.Ctx, space, q, nil)
		f.Must("list", err)
		for _, l := range page.Sessions {
			got = append(got, l.ID)
		}
		return got
	}
	harness.Same(f, "in the space", list(root.Target, session.ListQuery{Parent: parent.Session, Limit: 100}), ids)
	harness.Same(f, "deleted ones too", len(list(root.Target, session.ListQuery{Parent: parent.Session, Limit: 100, Deleted: true})), len(ids)+1)
	harness.Same(f, "in another space", len(list(f.Space().Target, session.ListQuery{Parent: parent.Session, Limit: 100})), 0)
	for _, bad := range []session.ListQuery{{Parent: "x"}, {Parent: parent.Session, Order: session.ChangedFirst}} {
		_, err := f.ListSessions(f.Ctx, root.Target, bad, nil)
		f.WantCode("a bad query", err, fault.BadArgument)
	}
}

// testChildLocksParent: while a child is being made nothing is revoked in its parent, and while something is,
// no child is made: it comes later, and is denied.
func testChildLocksParent(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	root := f.Space()
	open := func(a *harness.Author) *harness.Author {
		_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: a.Session, Outbox: a.Outbox}, harness.Hash(), 1)
		f.Must("open stream", err)
		return a
	}
	parent := open(harness.NewAuthor(root.ID))
	f.Applied(parent.Batch(false, parent.Create()))
	// commit decides a submission in a transaction, and calls within before that ends.
	commit := func(ctx context.Context, sub decide.Submission, within func()) (status ledger.Status, err error) {
		err = f.Update(ctx, func(tx session.Tx) error {
			answers, _, err := decide.Commit(ctx, tx, []decide.Submission{sub}, decide.DefaultConfig())
			if err != nil {
				return err
			}
			status = answers[0].Outcomes[0].Status
			within()
			return nil
		})
		return status, err
	}
	for _, childFirst := range []bool{true, false} {
		via := harness.ClientRef(parent.Session)
		f.Applied(parent.Batch(false, harness.ShareOp(via, "append")))
		child := open(harness.NewAuthor(root.ID))
		child.With = []string{via}
		revoke, create := parent.Batch(false, harness.NewIntent(session.MethodRevoke, "ref", via)), child.Batch(false, child.Create("parent", parent.Session, "via", via))
		first, second, want := revoke, create, ledger.Denied
		if childFirst {
			first, second, want = create, revoke, ledger.Applied
		}
		status, err := commit(f.Ctx, first, func() {
			waiting, cancel := context.WithTimeout(f.Ctx, 100*time.Millisecond)
			defer cancel()
			if status, err := commit(waiting, second, func() {}); err == nil {
				t.Errorf("the child first: %t: the second is decided meanwhile: %s", childFirst, status)
			}
		})
		f.Must("the first", err)
		harness.Same(f, "the first", status, ledger.Applied)
		status, err = commit(f.Ctx, second, func() {})
		f.Must("the second", err)
		harness.Same(f, "the second", status, want)
	}
}
