//go:build unix

package node

import (
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// A child is made with its parent's live session, listed under it, and shown to those who may see it.
func TestChildren(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		parent := r.create(p)
		p.must(parent.stream, parent.batch(put(1)))
		child := r.unmade(p)
		create := op("create", "ref", child.owner.ID, "hash", hashText(child.owner.Secret), "parent", parent.id, "via", parent.owner.ID, "part", "message/msg_1")
		if got := p.must(child.stream, child.batch(create)).outcomes[0]; got.Reason != fault.UnknownRef {
			t.Errorf("under a parent that is named and not held: %+v", got)
		}
		if got := p.must(child.stream, child.batch(create), p.restore(parent.owner)).outcomes[0]; got.Status != ledger.Applied {
			t.Fatalf("a child: %+v", got)
		}
		if got := rowOf(t, st, child.id).Parent; got != (session.Parent{Session: parent.id, Key: "message/msg_1", Above: parent.id}) {
			t.Errorf("the child's parent is %+v", got)
		}

		w := r.dialWebIn(t)
		live := func(ref capability.Ref) *capnweb.Stub { return w.give(w.main, "restore", ref.Text()).(*capnweb.Stub) }
		children := func(ref capability.Ref) (ids []string) {
			for _, one := range w.give(live(ref), "children").(object)["sessions"].([]any) {
				of := fields(t, "its parent", one.(object)["parent"], "session key")
				same(t, "what is shown of it", []any{one.(object)["cursor"], one.(object)["title"], of["session"], of["key"]}, []any{0.0, "", parent.id, "message/msg_1"})
				ids = append(ids, one.(object)["id"].(string))
			}
			return ids
		}
		for name, c := range map[string]struct {
			ref  capability.Ref
			want bool
		}{
			"the owner's":       {parent.owner, true},
			"read":              {p.share(parent, "rights", []string{"read"}), true},
			"the message":       {p.share(parent, "rights", []string{"read"}, "message", "msg_1"), true},
			"another message":   {p.share(parent, "rights", []string{"read"}, "message", "msg_2"), false},
			"from a cursor":     {p.share(parent, "rights", []string{"read"}, "from", 2), false},
			"the child's owner": {child.owner, false},
		} {
			if got := children(c.ref); slices.Equal(got, []string{child.id}) != c.want || !c.want && len(got) > 0 {
				t.Errorf("%s is shown %v", name, got)
			}
		}
		_, err := w.ask(live(p.share(parent, "rights", []string{"append"})), "children")
		wantCode(t, "without the right to read", err, fault.MissingRight)

		of := func(ref capability.Ref) any { return w.give(live(ref), "info").(object)["info"].(object)["parent"] }
		same(t, "the parent", of(child.owner), any(object{"session": parent.id, "key": "message/msg_1"}))
		same(t, "from a cursor", of(p.share(child, "rights", []string{"read"}, "from", 2)), nil)
		same(t, "without the right to read", of(p.share(child, "rights", []string{"append"})), nil)
		listed := w.give(live(r.owner), "list", object{"parent": parent.id}).(object)["sessions"].([]any)
		same(t, "in the space", []any{len(listed), listed[0].(object)["id"]}, []any{1, child.id})
	})
}
