package bridge

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
)

// FuzzParams writes arbitrary JSON values as a struct: nothing panics, what is refused is refused by a TypeError or
// RangeError, and what is accepted reads as what, written again, reads the same.
func FuzzParams(f *testing.F) {
	for _, seed := range []string{
		`{}`, `null`, `[]`, `{"flag":true,"small":-3,"huge":9007199254740991,"text":"x","data":"AAEC","colour":"red"}`,
		`{"inner":{"n":1,"next":{"n":2}},"inners":[{},{"n":3}],"rows":[[1,2],[]],"texts":["a",null],"flags":[true]}`,
		`{"amount":5}`, `{"pair":{"left":-1,"right":"r"}}`, `{"none":null}`, `{"none":null,"name":"n"}`, `{"box":{"value":{"n":1}},"textBox":{"value":"t"}}`,
		`{"double":1e308,"single":1e308,"doubles":[0.1,-0]}`, `{"long":-9223372036854775808,"longs":[18446744073709549568]}`,
	} {
		f.Add([]byte(seed))
	}
	b := compiled(f, kindsConfig())
	p := kindsPlan(b)
	f.Fuzz(func(t *testing.T, text []byte) {
		var v any
		if json.Unmarshal(text, &v) != nil {
			return
		}
		s, err := written(b, p, v, 1<<16)
		if err != nil {
			var e *capnweb.Error
			if !errors.As(asTypeError(err), &e) || e.Name != "TypeError" && e.Name != "RangeError" {
				t.Fatalf("refused by %T: %v", err, err)
			}
			return
		}
		first, err := readBack(b, p, s)
		if err != nil {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		// Written out, empty lists and defaults may take more room than what was left out.
		if s, err = written(b, p, first, roomy); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, err := readBack(b, p, s)
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Fatalf("read as\n%#v, and again as\n%#v (%v)", first, again, err)
		}
	})
}
