package client

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// TestKeysOfAnOldServer: a server that has no such methods is said to be too old, in one line.
func TestKeysOfAnOldServer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ref := testAddress().New(testSession)
		c := linkClient(t, Config{dial: hosts{"127.0.0.1:1": &recording{}}.dial})
		s := &Session{client: c, id: testSession, saved: outbox.SavedRef{Ref: ref, Redemption: "r"}}
		_, get := s.Get(t.Context(), "message/m")
		var list error
		for _, err := range s.List(t.Context(), KeyOptions{}) {
			list = err
		}
		for name, err := range map[string]error{"get": get, "list": list} {
			if fault.CodeOf(err) != fault.Incompatible || !strings.HasPrefix(err.Error(), "incompatible: the server does not know this call: ") || strings.Contains(err.Error(), "\n") {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = c.Close()
	})
}
