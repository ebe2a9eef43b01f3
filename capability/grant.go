package capability

// Grants: the rows of refs.

// Grant is the server's row of one sturdy ref. It never has the secret, only its SHA-256, which is
// never in JSON.
type Grant struct {
	ID             string   `json:"id"`                   // the ref's id; includes Target
	Target         string   `json:"target"`               // session id (ses_…) or space id (spc_…)
	Parent         string   `json:"parent,omitempty"`     // the ref it was minted from; "" for a space's root ref
	Hash           [32]byte `json:"-"`                    // SHA-256 of the secret
	Owner          bool     `json:"owner,omitempty"`      // owner refs have no epoch and survive every bumpEpoch
	Epoch          uint64   `json:"epoch,omitempty"`      // the session's epoch it was minted under; 0 if Owner, and for a space
	Rights         Rights   `json:"rights"`               //
	Children       Rights   `json:"children,omitempty"`   // in the session's children, of all depths; 0: it does not reach them
	Methods        []string `json:"methods,omitempty"`    // append is limited to these methods; nil means all
	Expires        int64    `json:"expires,omitempty"`    // Unix ms, the first at which it is dead; 0 never
	VisibleFrom    uint64   `json:"from,omitempty"`       // first visible cursor; 0 and 1 mean all
	Message        string   `json:"message,omitempty"`    // only this message, with its parts and turn; "" means all
	ReadKeys       []string `json:"read_keys,omitempty"`  // shows only these keys and prefixes; nil means all
	WriteKeys      []string `json:"write_keys,omitempty"` // writes only these; nil means all
	AskKinds       []string `json:"ask,omitempty"`        // ask is limited to requests of these kinds; nil means all
	AnswerKinds    []string `json:"answer,omitempty"`     // answer is limited to requests of these kinds; nil means all
	Seal           []byte   `json:"seal,omitempty"`       // Ed25519 public key whose owner alone can redeem; nil for none
	MaxRedemptions uint32   `json:"limit,omitempty"`      // redemptions allowed; 0 means any number
	Redemptions    uint32   `json:"used,omitempty"`       // number of distinct redemption ids
	Label          string   `json:"label,omitempty"`      //
	Actor          string   `json:"actor,omitempty"`      // a path under its parent's
	Created        int64    `json:"created,omitempty"`    // Unix ms
	Revoked        int64    `json:"revoked,omitempty"`    // Unix ms; 0 while alive
	Cut            uint64   `json:"cut,omitempty"`        // the session's cursor at the revocation
	RevokedBy      string   `json:"revoke_by,omitempty"`
	Bytes          int64    `json:"-"` // stored under it, in bytes
	ExemptBytes    int64    `json:"-"` // of Bytes, stored before there was a quota
}

// IsRoot reports whether g is a space's root ref.
func (g *Grant) IsRoot() bool { return g.Parent == "" && IsSpace(g.Target) }
