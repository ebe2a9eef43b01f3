package refcmd

import (
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// The methods that are completed are those that a share can be limited to.
func TestAppendable(t *testing.T) {
	t.Parallel()
	for _, m := range opargs.Methods() {
		f := shareFlags{methods: []string{m}}
		if err := f.check(capability.Append, 0); (err == nil) != slices.Contains(appendable, m) {
			t.Errorf("%s: %v", m, err)
		}
	}
}
