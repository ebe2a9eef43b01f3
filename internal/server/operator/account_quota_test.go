package operator

import (
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

func TestFullAccounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quota         int
		bytes, spared int64
		full          bool
	}{
		"room":                            {100, 99, 0, false},
		"none":                            {100, 100, 0, true},
		"what was there is spared":        {100, 150, 60, false},
		"and what came since is not":      {100, 160, 60, true},
		"not known yet what was there":    {100, 1000, -1, false},
		"without a quota there is no end": {0, 1000, 0, false},
	} {
		a := newAccountQuotas(c.quota)
		a.setAccount("ses_1", "ref")
		a.setAccount("ses_2", "")
		a.setUsage("ref", c.bytes, c.spared)
		if err := a.check("ses_1"); (err != nil) != c.full || c.full && err.Code != fault.QuotaExceeded {
			t.Errorf("%s: %v", name, err)
		}
		for _, id := range []string{"ses_2", "ses_3"} { // the owner's, and one that is not known
			if err := a.check(id); err != nil {
				t.Errorf("%s: %s: %v", name, id, err)
			}
		}
		ids, refs := a.takeDue()
		if known := c.quota > 0; known != (len(ids) == 1 && len(refs) == 1) {
			t.Errorf("%s: %v, %v are due", name, ids, refs)
		}
		if ids, refs = a.takeDue(); len(ids)+len(refs) > 0 {
			t.Errorf("%s: %v, %v are due again", name, ids, refs)
		}
	}
}
