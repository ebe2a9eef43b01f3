// Package oprights says which rights ops need, as far as they show: of several refs for a session the
// client and the outbox choose one that has them. What a ref may do the server decides (package session).
package oprights

import (
	"encoding/json"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// Of returns the rights that an op needs. A release that names its claim by number may be of another's
// claim, and wants the right break: to end one's own, append is enough; of a request, answer is. Purge and delete, which an
// owner's ref alone may do, want all rights that every owner's ref is known to have.
func Of(method string, args []ledger.Arg) capability.Rights {
	switch method {
	case "share":
		return capability.Share
	case "revoke", "bumpEpoch":
		return capability.Revoke
	case "revert", "unrevert":
		return capability.Revert
	case "compact":
		return capability.Compact
	case "ask", "withdraw":
		return capability.Ask
	case "answer":
		return capability.Answer
	case "claim":
		if argument(args, "request").Name != "" {
			return capability.Answer
		}
	case "purge", "delete":
		return capability.SessionRights
	case "put", "remove":
		if key := argument(args, "key"); key.Ref == nil && strings.HasPrefix(text(key.JSON), "schema/") {
			return capability.Schema
		}
		if a := argument(args, "sync"); a.Name != "" {
			return capability.Append | capability.Revert
		}
	case "release":
		if argument(args, "request").Name != "" {
			return capability.Answer
		}
		if argument(args, "claim").Ref == nil {
			return capability.Break
		}
	}
	return capability.Append
}

// argument returns the argument with a name, the zero Arg if there is none.
func argument(args []ledger.Arg, name string) ledger.Arg {
	for _, a := range args {
		if a.Name == name {
			return a
		}
	}
	return ledger.Arg{}
}

func text(quoted []byte) (s string) {
	_ = json.Unmarshal(quoted, &s)
	return s
}
