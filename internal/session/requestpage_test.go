package session

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// TestRequestPageIsLimited: whatever a store has read, a page leaves out what a ref does not show.
func TestRequestPageIsLimited(t *testing.T) {
	t.Parallel()
	entry := func(key string, cursor uint64) *Entry { return &Entry{Key: key, Cursor: cursor, Since: cursor} }
	page := NewUnscoped(&RequestPage{Access: Access{Row: &Row{}}, Requests: []*RequestInfo{
		{ID: "a", Asked: entry("request/a", 1), State: entry("request/a/state", 4)}, {ID: "b", Asked: entry("request/b", 3)}}})
	for name, c := range map[string]struct {
		g    capability.Grant
		want string
	}{"all": {capability.Grant{}, "a+b"}, "from a cursor": {capability.Grant{VisibleFrom: 2}, "b"}, "of a key": {capability.Grant{ReadKeys: []string{"request/a"}}, "a"},
		"of a message": {capability.Grant{Message: "a"}, ""}, "of all requests": {capability.Grant{ReadKeys: []string{"request/"}}, "a+b"}} {
		got := ""
		for _, r := range page.Shown(&c.g).Requests {
			if got += r.ID; r.State != nil {
				got += "+"
			}
		}
		if got != c.want {
			t.Errorf("a ref %s is shown %s, want %s", name, got, c.want)
		}
	}
}
