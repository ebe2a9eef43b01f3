package authority

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// An object of Space.create reads as the owner it names, for the outbox that made
// the session; to name another's ref is not to hold it.
func TestCreatorReadsAsTheOwnerAlone(t *testing.T) {
	t.Parallel()
	const id, outbox = "ses_01J0000000000000000000000A", "obx_1"
	at := &session.Access{Row: &session.Row{ID: id, Life: session.Live, Epoch: 1, Creator: outbox}, Grants: map[string]*capability.Grant{
		"owner": {ID: "owner", Target: id, Owner: true, Rights: capability.SessionRights},
		"bob":   {ID: "bob", Target: id, Epoch: 1, Rights: capability.SessionRights},
	}}
	for _, c := range []struct {
		ref, space, opened string
		code               fault.Code
	}{
		{"owner", "space", outbox, fault.None},
		{"owner", "space", "obx_2", fault.UnknownRef},
		{"bob", "space", outbox, fault.UnknownRef},
		{"bob", "", "", fault.None},
		{"owner", "", "", fault.None},
	} {
		a := &Authority{Session: id, Ref: c.ref, Space: c.space}
		a.AddStream(c.opened)
		grant, refused := a.Check(at, capability.Read)
		switch {
		case c.code == fault.None && (refused != nil || grant.ID != c.ref),
			c.code != fault.None && (refused == nil || refused.Code != c.code):
			t.Errorf("%+v: %v, %v", c, grant, refused)
		}
	}
}
