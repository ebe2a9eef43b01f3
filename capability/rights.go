package capability

// Rights and their text forms.

import (
	"encoding/json"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// Rights is a set of rights, one bit each.
type Rights uint16

// The rights on a session, the ones on a space alone, then those that came later.
const (
	Read Rights = 1 << iota
	Append
	Share
	Revoke
	Create
	List
	Break   // release claims of others
	Schema  // put and remove schemas of values
	Manage  // act in all sessions of the space as an owner of each
	Revert  // revert a session to an earlier message, and take that back
	Compact // say which message is the summary of those before
	Ask     // make requests, and withdraw them
	Answer  // claim and answer requests
)

// SessionRights are the rights that every owner's ref is stored with, SpaceRights all rights of a
// space ref. LaterRights are rights of sessions that came later: every owner's ref has them, without
// being stored with them (OwnerRights), so that a server of the version before finds what it knows;
// others have them only if they are named. A ref from before has none of them. Manage likewise came
// later, among the rights of spaces: every root ref has it, without being stored with it.
const (
	SessionRights = Read | Append | Share | Revoke
	SpaceRights   = Share | Revoke | Create | List | Manage
	LaterRights   = Break | Schema | Revert | Compact | Ask | Answer
	OwnerRights   = SessionRights | LaterRights // all rights of a session ref
)

// rightNames are in the order of the bits.
var rightNames = [...]string{"read", "append", "share", "revoke", "create", "list", "break", "schema", "manage", "revert", "compact", "ask", "answer"}

// RightNames returns the names of all rights.
func RightNames() []string { return (OwnerRights | SpaceRights).Names() }

// Has reports whether r has every right in need.
func (r Rights) Has(need Rights) bool { return r&need == need }

// Names returns the rights' names, in the order of the bits.
func (r Rights) Names() []string {
	names := []string{}
	for i, n := range rightNames {
		if r&(1<<i) != 0 {
			names = append(names, n)
		}
	}
	return names
}

// String returns the names with commas, as ParseRights takes them; "none" for none.
func (r Rights) String() string {
	if names := r.Names(); len(names) > 0 {
		return strings.Join(names, ",")
	}
	return "none"
}

// ParseRights parses names with commas: "read,append". At least one; the error is BadArgument.
func ParseRights(text string) (Rights, error) { return RightsNamed(strings.Split(text, ",")) }

// RightsNamed returns the set of the named rights; at least one. Spaces around a name are ignored.
// The error is BadArgument.
func RightsNamed(names []string) (Rights, error) {
	var set Rights
next:
	for _, name := range names {
		name = strings.TrimSpace(name)
		for i, n := range rightNames {
			if n == name {
				set |= 1 << i
				continue next
			}
		}
		return 0, fault.BadArgument.With("%q is not a right: there are %s", fault.Clip(name), strings.Join(RightNames(), ", "))
	}
	if set == 0 {
		return 0, fault.BadArgument.With("no rights are named: there are %s", strings.Join(RightNames(), ", "))
	}
	return set, nil
}

// MarshalJSON returns the list of names.
func (r Rights) MarshalJSON() ([]byte, error) { return json.Marshal(r.Names()) }

// UnmarshalJSON parses a list of names; the error is BadArgument.
func (r *Rights) UnmarshalJSON(data []byte) error {
	var names []string
	if err := json.Unmarshal(data, &names); err != nil {
		return fault.BadArgument.Because(err, "rights are a list of names: %s", strings.Join(RightNames(), ", "))
	}
	set, err := RightsNamed(names)
	if err != nil {
		return err
	}
	*r = set
	return nil
}
