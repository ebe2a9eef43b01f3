package session_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestChildrenShown(t *testing.T) {
	t.Parallel()
	child := func(id, key string) *session.Listing {
		return &session.Listing{Row: session.Row{ID: id, External: "SECRET", Created: 7, Cursor: 9, Parent: session.Parent{Session: "ses_p", Key: key, Above: "ses_p"}}, Title: "SECRET"}
	}
	all := []*session.Listing{child("a", ""), child("b", "message/m"), child("c", "part/m/p"), child("d", "part/n/p")}
	for _, c := range []struct {
		g    capability.Grant
		want string
	}{
		{capability.Grant{}, "abcd"}, {capability.Grant{VisibleFrom: 1}, "abcd"}, {capability.Grant{VisibleFrom: 2}, ""}, {capability.Grant{WriteKeys: []string{"todo/"}}, "abcd"},
		{capability.Grant{Message: "m"}, "bc"}, {capability.Grant{ReadKeys: []string{"part/n/"}}, "d"}, {capability.Grant{ReadKeys: []string{"part/n/"}, VisibleFrom: 9}, ""},
	} {
		got := ""
		for _, shown := range session.ChildrenShown(&c.g, all) {
			got += shown.ID
			if shown.Title+shown.External != "" || shown.Cursor != 0 || shown.Created != 7 || shown.Parent.Session != "ses_p" {
				t.Errorf("%+v is shown %+v", c.g, shown)
			}
		}
		mustEqual(t, "what is shown", got, c.want)
	}
}
