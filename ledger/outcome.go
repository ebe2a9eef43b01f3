// Outcomes, records and streams.

package ledger

import (
	"crypto/subtle"
	"encoding/json"

	"github.com/mooring-rpc/mooring/fault"
)

// Status is the recorded result of an op. The zero Status is not valid.
type Status uint8

// The recorded statuses, named as in fault's first block; only Applied is a success.
const (
	Applied Status = 1 + iota
	Skipped
	Denied
	Conflict
	Rejected
	Voided
	BatchAborted
)

// Outcome is the record of one op, repeated word for word to every duplicate until the client
// has acknowledged it.
type Outcome struct {
	OpID    string
	Digest  Digest
	Status  Status
	Reason  fault.Code // why Status is not Applied: Revoked, WrongOffset, … ; for Skipped and BatchAborted the cause's own reason
	Message string     // the defect and its remedy; no secrets, no paths
	Cursor  uint64     // Applied: the cursor of its event (or the present one if unchanged); Conflict: the session's cursor
	Result  []byte     // Applied: JSON object text, the source of references; always has "cursor"
	Cause   string     // Skipped, BatchAborted: the op id that caused it
	At      uint64     // WrongOffset: present length in bytes; else 0
	Batch   string     // the op's batch, set for waiters; not recorded
}

// Record holds the outcomes of one batch on the server: one row, until pruned.
type Record struct {
	BatchID  string
	FirstSeq uint64
	Outcomes []Outcome // in seq order, without gaps
}

// LastSeq returns the seq of the record's last op.
func (r *Record) LastSeq() uint64 { return r.FirstSeq + uint64(len(r.Outcomes)) - 1 }

// Stream is the server's row for one (session, outbox).
type Stream struct {
	Session      string
	Outbox       string
	SecretHash   [32]byte // of the outbox's secret, registered by the first opening
	Incarnation  uint64
	LastSeq      uint64
	AckedThrough uint64 // the client has stored every outcome up to here; they are pruned
	AckedOp      string // op id at AckedThrough
	AckedDigest  Digest // that op's digest: the only means left to detect a copied outbox
	ReadOnlyRef  string // the ref it was created under, if that could change nothing; "" once it is opened under another
}

// IsOpenBy reports whether the outbox with the secret of this hash has opened st under
// incarnation, with no later incarnation since: then opening it again changes nothing.
func (st *Stream) IsOpenBy(secretHash [32]byte, incarnation uint64) bool {
	return subtle.ConstantTimeCompare(st.SecretHash[:], secretHash[:]) == 1 && st.Incarnation == incarnation
}

// Batch is the content of one apply: intents of one session with consecutive seqs, never split,
// merged or reordered on any retry.
type Batch struct {
	Session      string
	Outbox       string
	Incarnation  uint64
	AckedThrough uint64
	BatchID      string
	Atomic       bool
	Ops          []Intent
}

// Code returns the status as a code of fault's first block, which has them in this order: None
// for Applied, and for a status that this version does not know. The zero Status, of a pruned
// duplicate, is Pruned.
func (s Status) Code() fault.Code {
	switch {
	case s == 0:
		return fault.Pruned
	case s > BatchAborted:
		return fault.None
	}
	return fault.Code(s - Applied)
}

// String returns the status's name on every wire, which is its code's.
func (s Status) String() string {
	switch {
	case s == Applied:
		return "applied"
	case s > BatchAborted:
		return "unknown"
	}
	return s.Code().String()
}

// ParseStatus parses the result of String; for another text it returns a status that is none of this version's.
func ParseStatus(name string) Status {
	s := Status(0)
	for s <= BatchAborted && s.String() != name {
		s++
	}
	return s
}

// Err returns nil for an applied outcome, else why the op did not apply, as an error that
// matches both its status's code (fault.Denied) and its reason (fault.Revoked) in errors.Is. Of a
// status that this version does not know it has the reason alone; without one it is Incompatible.
func (o *Outcome) Err() error {
	if o.Status == Applied {
		return nil
	}
	e := &fault.Error{Code: o.Reason, Message: o.Message, At: o.At}
	kind := o.Status.Code()
	if kind == fault.None && o.Reason == fault.None {
		e.Code, e.Message = fault.Incompatible, "this version does not know what became of the op"
		if o.Message != "" {
			e.Message += ": " + o.Message
		}
	} else if kind == fault.None || kind == o.Reason {
		if o.Status == Conflict {
			e.At = o.Cursor
		}
	} else {
		e = kind.Because(e, "%s", e.Error())
	}
	e.Batch = o.Batch
	return e
}

// Decode decodes the result, a JSON object, into v. If the op did not apply, it returns Err.
func (o *Outcome) Decode(v any) error {
	if err := o.Err(); err != nil {
		return err
	}
	if err := json.Unmarshal(o.Result, v); err != nil {
		return fault.BadArgument.Because(err, "the result of op %s does not fit: %v", o.OpID, err)
	}
	return nil
}
