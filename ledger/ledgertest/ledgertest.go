// Package ledgertest builds op arguments for tests.
package ledgertest

import (
	"encoding/json"

	"github.com/mooring-rpc/mooring/ledger"
)

// Args builds an op's arguments from alternating names and values. A value is a ledger.Ref,
// JSON text as json.RawMessage, or a value that encoding/json can encode.
func Args(namesAndValues ...any) (args []ledger.Arg) {
	for i := 0; i < len(namesAndValues); i += 2 {
		a := ledger.Arg{Name: namesAndValues[i].(string)}
		switch v := namesAndValues[i+1].(type) {
		case ledger.Ref:
			a.Ref = &v
		case json.RawMessage:
			a.JSON = v
		default:
			text, err := json.Marshal(v)
			if err != nil {
				panic(err)
			}
			a.JSON = text
		}
		args = append(args, a)
	}
	return args
}
