package ledger

// Hints are arguments that came after the first version, and that a server which does
// not know them may leave out: it does what it did before, which the other arguments
// are there for. They travel beside the others, so that it takes the op without them,
// and are in no digest: servers of two versions on one database have the same digest
// of the same op.
const (
	HintLifetime = "expires_in" // of share: ms from when it applies; beside expires_at, by which it goes without
	HintAtHash   = "at_hash"    // of fork: of the source's event at its cursor
	HintOrder    = "order"      // of create: without it messages are in the log's order
)

// IsHint says whether the intent's argument i is one. One that is to be resolved is not,
// nor is a lifetime alone: left out, the ref would live for ever.
func (in *Intent) IsHint(i int) bool {
	a := &in.Args[i]
	if a.Ref != nil {
		return false
	}
	switch a.Name {
	case HintAtHash:
		return true
	case HintOrder:
		return in.Method == "create"
	case HintLifetime:
		for j := range in.Args {
			if in.Args[j].Name == "expires_at" {
				return true
			}
		}
	}
	return false
}

// HintCount is how many of the intent's arguments are hints.
func (in *Intent) HintCount() (n int) {
	for i := range in.Args {
		if in.IsHint(i) {
			n++
		}
	}
	return n
}
