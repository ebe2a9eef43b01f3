package ledger

// Op intents and batches.

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// Ref names the result of an earlier op: durable promise pipelining. Path is a dot-separated
// path into the op's result object ("cursor", "ref.id"); the empty path is the whole object.
type Ref struct {
	Op   string
	Path string
}

// ErrRefInValue is the error of marshaling a Ref.
var ErrRefInValue = errors.New("a reference to an op's result stands inside a value")

// MarshalJSON fails with ErrRefInValue. A Ref stands for a whole argument; inside one it would
// be stored as its own two fields, and never be resolved.
func (r Ref) MarshalJSON() ([]byte, error) { return nil, ErrRefInValue }

// Arg is one named argument of a method: JSON text kept byte for byte, or a
// reference to an earlier result.
type Arg struct {
	Name string
	JSON []byte // the value's JSON text, if Ref is nil
	Ref  *Ref
}

// Expect is an op's expected_cursor: absent (the zero value), a number, or a
// reference to an earlier result that is one.
type Expect struct {
	Set    bool
	Cursor uint64
	Ref    *Ref
}

// Intent is one durable call as it is sent. Its digest is the same on every wire and under
// every ref.
type Intent struct {
	OpID      string // ULID, 26 characters
	BatchID   string // ULID
	Seq       uint64
	DependsOn []string // op ids
	Expected  Expect
	Session   string
	Method    string // MethodVoid for a dropped op
	Args      []Arg
	Atomic    bool // the batch's flag; equal in all its ops
}

// MethodVoid is the method of an intent that replaces a dropped one.
const MethodVoid = "void"

// Digest is SHA-256 over the intent's length-prefixed fields.
type Digest [32]byte

// Digest computes the intent's digest: every field except hints in declaration order, each
// preceded by its length (or count) as a big-endian uint64, so that no two different intents
// share an encoding.
func (in *Intent) Digest() Digest {
	h := sha256.New()
	small := make([]byte, 0, 512) // gathers short fields, so that the hash has few writes
	num := func(v uint64) { small = binary.BigEndian.AppendUint64(small, v) }
	text := func(s string) {
		num(uint64(len(s)))
		small = append(small, s...)
	}
	flag := func(b bool) {
		if b {
			num(1)
		} else {
			num(0)
		}
	}
	ref := func(r *Ref) {
		flag(r != nil)
		if r != nil {
			text(r.Op)
			text(r.Path)
		}
	}
	text("mooring intent v1")
	text(in.OpID)
	text(in.BatchID)
	num(in.Seq)
	num(uint64(len(in.DependsOn)))
	for _, d := range in.DependsOn {
		text(d)
	}
	flag(in.Expected.Set)
	num(in.Expected.Cursor)
	ref(in.Expected.Ref)
	text(in.Session)
	text(in.Method)
	num(uint64(len(in.Args) - in.HintCount()))
	for i, a := range in.Args {
		if in.IsHint(i) {
			continue
		}
		text(a.Name)
		ref(a.Ref)
		num(uint64(len(a.JSON)))
		h.Write(small)
		h.Write(a.JSON)
		small = small[:0]
	}
	flag(in.Atomic)
	h.Write(small)
	var d Digest
	h.Sum(d[:0])
	return d
}

// References lists every (op, path) that the intent refers to, in argument order,
// expected_cursor last; DependsOn is not included.
func (in *Intent) References() []Ref {
	var rs []Ref
	for _, a := range in.Args {
		if a.Ref != nil {
			rs = append(rs, *a.Ref)
		}
	}
	if in.Expected.Ref != nil {
		rs = append(rs, *in.Expected.Ref)
	}
	return rs
}

// hasRefs reports whether the intent has references.
func (in *Intent) hasRefs() bool {
	for i := range in.Args {
		if in.Args[i].Ref != nil {
			return true
		}
	}
	return in.Expected.Ref != nil
}
