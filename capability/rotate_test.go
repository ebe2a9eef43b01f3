package capability_test

// Rotation: the new ref is the old one but for its name and secret.

import (
	"reflect"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func TestRotate(t *testing.T) {
	t.Parallel()
	old := messageParent()
	old.Parent, old.Hash, old.Label, old.Redemptions, old.Created = "p", [32]byte{9}, "for b", 3, 555
	old.Revoked, old.Cut, old.RevokedBy = 600, 41, "by"
	was := *old
	want := *old
	want.ID, want.Hash, want.Redemptions, want.Created, want.Revoked, want.Cut, want.RevokedBy = childID, [32]byte{1}, 0, 777, 0, 0, ""
	if g, err := capability.Rotate(old, childID, [32]byte{1}, 777); err != nil || !reflect.DeepEqual(g, &want) {
		t.Errorf("%+v, %v; want %+v", g, err, &want)
	}
	if !reflect.DeepEqual(old, &was) {
		t.Errorf("the old one was itself changed: %+v", old)
	}
	for name, row := range map[string]struct {
		id   string
		hash [32]byte
	}{
		"another session's id": {session2 + childID[len(session1):], [32]byte{1}},
		"no hash":              {childID, [32]byte{}},
		"a sealed ref's id for one that has none": {sealedID, [32]byte{1}},
	} {
		if g, err := capability.Rotate(old, row.id, row.hash, 777); g != nil || codeOf(err) != fault.BadArgument {
			t.Errorf("%s: %+v, %v", name, g, err)
		}
	}
}

func TestRotated(t *testing.T) {
	t.Parallel()
	hash := [32]byte{1}
	for name, row := range map[string]struct {
		spoil func(old, now *capability.Grant)
		want  bool
	}{
		"rotated":                     {func(_, _ *capability.Grant) {}, true},
		"and dead since":              {func(_, now *capability.Grant) { now.Revoked = 1 }, true},
		"not dead":                    {func(old, _ *capability.Grant) { old.Revoked = 0 }, false},
		"dead by another":             {func(old, _ *capability.Grant) { old.RevokedBy = "x" }, false},
		"to another id":               {func(_, now *capability.Grant) { now.ID = "x" }, false},
		"to another secret":           {func(_, now *capability.Grant) { now.Hash[0]++ }, false},
		"to a ref of another session": {func(_, now *capability.Grant) { now.Target = session2 }, false},
	} {
		old := &capability.Grant{ID: parentID, Target: session1, Revoked: 600, RevokedBy: childID}
		now := &capability.Grant{ID: childID, Target: session1, Hash: hash}
		row.spoil(old, now)
		if got := capability.AlreadyRotated(old, now, childID, hash); got != row.want {
			t.Errorf("%s: %v", name, got)
		}
		if capability.AlreadyRotated(nil, now, childID, hash) || capability.AlreadyRotated(old, nil, childID, hash) {
			t.Errorf("%s: so is a ref that there is not", name)
		}
	}
}
