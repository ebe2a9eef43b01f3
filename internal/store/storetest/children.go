package storetest

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// testChildren: children are listed under their parent alone, in pages, without those that were deleted, and
// as much of them as the grant shows that admit returns.
func testChildren(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := f.space()
	at := func(a *author) *author {
		_, err := f.OpenStream(f.ctx, session.StreamKey{Session: a.session, Outbox: a.outbox}, hash(), 1)
		f.must("open stream", err)
		return a
	}
	parent, other := at(newAuthor(root.ID)), at(newAuthor(root.ID))
	f.applied(parent.batch(false, parent.create()))
	f.applied(other.batch(false, other.create()))
	born := func(of *author, args ...any) string {
		c := at(newAuthor(root.ID))
		c.with = []string{of.ref}
		f.applied(c.batch(false, c.create(append([]any{"parent", of.session, "via", of.ref}, args...)...)))
		return c.session
	}
	var ids []string
	for range 4 {
		ids = append(ids, born(parent, "part", "part/m/p"))
	}
	ids = append(ids, born(parent))
	slices.Sort(ids)
	theirs := born(other)
	gone := at(newAuthor(root.ID))
	gone.with = []string{parent.ref}
	f.applied(gone.batch(false, gone.create("parent", parent.session, "via", parent.ref), newIntent(session.MethodDelete)))
	rows, err := f.ReadRows(f.ctx, []string{ids[0], theirs})
	f.must("read rows", err)
	same(f, "the parent", rows[theirs].Parent, session.Parent{Session: other.session, Above: other.session})

	children := func(id string, limit int, g *capability.Grant) (got []string, pages int) {
		for after, more := "", true; more; more = after != "" {
			page, err := f.ReadChildren(f.ctx, id, after, limit, []string{parent.ref}, func(at *session.Access) (*capability.Grant, error) {
				if at.Row.ID != id || at.Grants[parent.ref] == nil {
					t.Errorf("admitted by %+v", at)
				}
				return g, nil
			})
			f.must("list children", err)
			for _, l := range page.Sessions {
				got = append(got, l.ID)
			}
			after = page.Next
			pages++
		}
		return got, pages
	}
	got, pages := children(parent.session, 2, &capability.Grant{})
	same(f, "children", got, ids)
	same(f, "pages", pages, 3)
	got, _ = children(other.session, 2, &capability.Grant{})
	same(f, "another's", got, []string{theirs})
	got, _ = children(theirs, 2, &capability.Grant{})
	same(f, "none", len(got), 0)
	got, _ = children(parent.session, 2, &capability.Grant{Message: "m"})
	same(f, "of a message", len(got), 4)
	own := errors.New("not admitted")
	if page, err := f.ReadChildren(f.ctx, parent.session, "", 2, nil, func(*session.Access) (*capability.Grant, error) { return nil, own }); err != own || page != nil {
		t.Errorf("not admitted: %v, %v", page, err)
	}
	_, err = f.ReadChildren(f.ctx, parent.session, "x", 2, nil, nil)
	f.code("after no id", err, fault.BadArgument)

	list := func(space string, q session.ListQuery) (got []string) {
		page, err := f.ListSessions(f.ctx, space, q, nil)
		f.must("list", err)
		for _, l := range page.Sessions {
			got = append(got, l.ID)
		}
		return got
	}
	same(f, "in the space", list(root.Target, session.ListQuery{Parent: parent.session, Limit: 100}), ids)
	same(f, "deleted ones too", len(list(root.Target, session.ListQuery{Parent: parent.session, Limit: 100, Deleted: true})), len(ids)+1)
	same(f, "in another space", len(list(f.space().Target, session.ListQuery{Parent: parent.session, Limit: 100})), 0)
	for _, bad := range []session.ListQuery{{Parent: "x"}, {Parent: parent.session, Order: session.ChangedFirst}} {
		_, err := f.ListSessions(f.ctx, root.Target, bad, nil)
		f.code("a bad query", err, fault.BadArgument)
	}
}

// testChildLocksParent: while a child is being made nothing is revoked in its parent, and while something is,
// no child is made: it comes later, and is denied.
func testChildLocksParent(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := f.space()
	open := func(a *author) *author {
		_, err := f.OpenStream(f.ctx, session.StreamKey{Session: a.session, Outbox: a.outbox}, hash(), 1)
		f.must("open stream", err)
		return a
	}
	parent := open(newAuthor(root.ID))
	f.applied(parent.batch(false, parent.create()))
	// commit decides a submission in a transaction, and calls within before that ends.
	commit := func(ctx context.Context, sub session.Submission, within func()) (status ledger.Status, err error) {
		err = f.Update(ctx, func(tx session.Tx) error {
			answers, _, err := session.Commit(ctx, tx, []session.Submission{sub}, session.DefaultConfig())
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
		via := clientRef(parent.session)
		f.applied(parent.batch(false, shareOp(via, "append")))
		child := open(newAuthor(root.ID))
		child.with = []string{via}
		revoke, create := parent.batch(false, newIntent(session.MethodRevoke, "ref", via)), child.batch(false, child.create("parent", parent.session, "via", via))
		first, second, want := revoke, create, ledger.Denied
		if childFirst {
			first, second, want = create, revoke, ledger.Applied
		}
		status, err := commit(f.ctx, first, func() {
			waiting, cancel := context.WithTimeout(f.ctx, 100*time.Millisecond)
			defer cancel()
			if status, err := commit(waiting, second, func() {}); err == nil {
				t.Errorf("the child first: %t: the second is decided meanwhile: %s", childFirst, status)
			}
		})
		f.must("the first", err)
		same(f, "the first", status, ledger.Applied)
		status, err = commit(f.ctx, second, func() {})
		f.must("the second", err)
		same(f, "the second", status, want)
	}
}
