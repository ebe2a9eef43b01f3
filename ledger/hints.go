package ledger

// Hints are arguments that came after the first version, and that a server which does not know
// them may ignore: it behaves as before, for which the other arguments suffice. They are sent
// apart from the others, so that such a server accepts the op without them, and are in no
// digest: servers of two versions on one database have the same digest of the same op.
const (
	HintLifetime = "expires_in" // of share: ms from when it applies; in addition to expires_at, for servers that ignore it
	HintAtHash   = "at_hash"    // of fork: of the source's event at its cursor
	HintOrder    = "order"      // of create: without it messages are in the log's order
	HintOrigin   = "origin"     // of create, as the two below: what a session was forked from before it was exported and imported
	HintOriginAt = "origin_at"
	HintOriginID = "origin_message"
)

// IsHint reports whether the intent's argument i is a hint. A reference is not, nor is a
// lifetime without expires_at: if it were ignored, the ref would never expire.
func (in *Intent) IsHint(i int) bool {
	a := &in.Args[i]
	if a.Ref != nil {
		return false
	}
	switch a.Name {
	case HintAtHash:
		return true
	case HintOrder, HintOrigin, HintOriginAt, HintOriginID:
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

// HintCount returns how many of the intent's arguments are hints.
func (in *Intent) HintCount() (n int) {
	for i := range in.Args {
		if in.IsHint(i) {
			n++
		}
	}
	return n
}
