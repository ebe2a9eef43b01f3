// What a map may make of a few bytes.

package capnweb

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// What a map makes anew for each element is counted.
func TestMapLiterals(t *testing.T) {
	zeros := "[[" + strings.Repeat("0,", 999) + "0]]"
	for _, literal := range []string{
		`["bytes","` + strings.Repeat("AAAA", 5000) + `"]`,
		`["bigint","` + strings.Repeat("9", 16384) + `"]`,
		`["headers",[` + strings.Repeat(`["a","b"],`, 999) + `["a","b"]]]`,
		`["request","u",{"headers":[` + strings.Repeat(`["a","b"],`, 999) + `["a","b"]]}]`,
		`["request","u",{` + func() (s string) {
			for i := range 1000 {
				s += fmt.Sprintf(`"%d":1,`, i)
			}
			return s
		}() + `"x":[1]}]`,
		`["pipeline",0,[` + strings.Repeat(`"a",`, 250) + `"a"]]`,
		`["remap",0,[],[` + strings.Repeat(`["import",0],`, 999) + `["import",0]],[1]]`,
	} {
		conn, hits := bare(t, Limits{MapSteps: 1 << 14})
		began := time.Now()
		sayAll(t, conn, `["push",`+zeros+`]`, `["push",["remap",6,[],[],[`+literal+`]]]`, `["pull",7]`)
		if hits.Of(LimitMapSteps) == 0 {
			t.Errorf("%.20s: 1,000 of it take no steps, but %v", literal, time.Since(began))
		}
		ended(conn)
	}
}
