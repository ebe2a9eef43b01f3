package oprights_test

import (
	"encoding/json"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/oprights"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
)

// TestOf: of every method there is.
func TestOf(t *testing.T) {
	t.Parallel()
	claim := ledger.Arg{Name: "claim", Ref: &ledger.Ref{Op: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Path: "claim"}}
	key := ledger.Arg{Name: "key", Ref: claim.Ref}
	owners := capability.SessionRights
	seen := map[string]bool{}
	for _, c := range []struct {
		method string
		args   []ledger.Arg
		want   capability.Rights
	}{
		{"put", ledgertest.Args("key", "todo/1"), capability.Append},
		{"put", ledgertest.Args("key", "schema/todo"), capability.Schema},
		{"put", ledgertest.Args("payload", "schema/todo", "key", json.RawMessage(` "\u0073chema/todo" `)), capability.Schema},
		{"put", ledgertest.Args("key", "schemas/todo", "payload", "schema/todo"), capability.Append},
		{"put", ledgertest.Args("key", 7), capability.Append},
		{"put", ledgertest.Args("key", "session", "sync", true), capability.Append | capability.Revert},
		{"put", []ledger.Arg{key}, capability.Append},
		{"remove", ledgertest.Args("key", "schema/todo"), capability.Schema},
		{"remove", nil, capability.Append},
		{"remove", ledgertest.Args("key", "part/m/p", "sync", true), capability.Append | capability.Revert},
		{"patch", ledgertest.Args("key", "schema/todo"), capability.Append}, // which is refused anyway
		{"add", nil, capability.Append},
		{"claim", ledgertest.Args("key", "todo/1"), capability.Append},
		{"claim", ledgertest.Args("request", "r", "lease", 1000), capability.Answer},
		{"release", ledgertest.Args("request", "r", "claim", 7), capability.Answer},
		{"ask", ledgertest.Args("request", "r"), capability.Ask},
		{"withdraw", ledgertest.Args("request", "r"), capability.Ask},
		{"answer", ledgertest.Args("request", "r"), capability.Answer},
		{"release", ledgertest.Args("key", "todo/1", "claim", 7), capability.Break},
		{"release", append(ledgertest.Args("key", "todo/1"), claim), capability.Append},
		{"begin", nil, capability.Append},
		{"appendText", nil, capability.Append},
		{"finalize", nil, capability.Append},
		{"share", nil, capability.Share},
		{"revoke", nil, capability.Revoke},
		{"bumpEpoch", nil, capability.Revoke},
		{"revert", ledgertest.Args("to", "message/m"), capability.Revert},
		{"unrevert", nil, capability.Revert},
		{"compact", ledgertest.Args("upto", "message/m", "summary", "message/n"), capability.Compact},
		{"purge", ledgertest.Args("key", "schema/todo"), owners},
		{"delete", nil, owners},
	} {
		seen[c.method] = true
		if got := oprights.Of(c.method, c.args); got != c.want {
			t.Errorf("%s %v: %s, want %s", c.method, c.args, got, c.want)
		}
	}
	for _, m := range opargs.Methods() {
		if !seen[m] && m != session.MethodCreate && m != session.MethodFork { // of a space's ref
			t.Errorf("%s is missing", m)
		}
	}
}
