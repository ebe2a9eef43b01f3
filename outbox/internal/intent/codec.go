package intent

// The encoding of ops and outcomes in a row: a compact binary form of our own, since payloads
// must come back byte for byte. It begins with a version, and a reader fails on an unknown one.
// A batch's ops end with a digest of them and of the ids of their session and batch: an op that
// a disk has corrupted must not be sent.

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opid"
	"github.com/mooring-rpc/mooring/ledger"
)

// Versions: of outcomes, of ops without a digest, as former binaries wrote them, and of ops.
const (
	outcomesVersion = 1
	noDigestVersion = 1
	OpsVersion      = 2
)

// maxVersion is the highest version that a newer binary may write: a row with a higher one
// counts as damaged.
const maxVersion = 32

// ErrNewerVersion is in the error for a row that a newer binary wrote.
var ErrNewerVersion = errors.New("written by a newer version of this program")

// Flags of an op.
const (
	flagDerived = 1 << iota // the id is opid.Of(batch, index)
	flagLocalOutcome
	flagVoid
	flagDropRequested
	flagRetries
	flagExpected
	flagExpectedRef
)

// Flags of a body.
const (
	bodyAtomic = 1 << iota
	bodyCompacted
	bodyNoDigest
)

// Encode encodes a row's ops, for that session and batch.
func (b *Batch) Encode(session, batch string) []byte {
	w := writer{buf: make([]byte, 0, b.size()+sha256.Size)}
	flags := byte(0)
	if b.Atomic {
		flags |= bodyAtomic
	}
	if b.Compacted {
		flags |= bodyCompacted
	}
	if b.NoDigest {
		flags |= bodyNoDigest
	}
	w.byte(OpsVersion)
	w.byte(flags)
	w.number(uint64(len(b.Ops)))
	ids := opid.DerivedFrom(batch)
	for i := range b.Ops {
		o := &b.Ops[i]
		o.encode(&w, ids.Has(i, o.ID), b.Compacted)
	}
	return append(w.buf, digestOf(session, batch, w.buf)...)
}

// digestOf returns the SHA-256 that ends a row's ops: over the session's and the batch's id,
// each behind its length, and the bytes before it.
func digestOf(session, batch string, ops []byte) []byte {
	w := writer{buf: make([]byte, 0, 80)}
	w.text(session)
	w.text(batch)
	h := sha256.New()
	h.Write(w.buf)
	h.Write(ops)
	return h.Sum(nil)
}

// size estimates the bytes of Encode; for plain ops a little more.
func (b *Batch) size() int {
	size := 8
	for i := range b.Ops {
		o := &b.Ops[i]
		if size += 5 + len(o.Method); b.Compacted {
			continue
		}
		for j := range o.Args {
			size += 6 + len(o.Args[j].Name) + len(o.Args[j].JSON)
		}
	}
	return size
}

func (o *Op) encode(w *writer, derived, slim bool) {
	flags := byte(0)
	set := func(is bool, flag byte) {
		if is {
			flags |= flag
		}
	}
	set(derived, flagDerived)
	set(o.LocalOutcome != nil, flagLocalOutcome)
	set(o.Void, flagVoid)
	set(o.DropRequested, flagDropRequested)
	set(o.Retries != "", flagRetries)
	set(o.Expected.Set, flagExpected)
	set(o.Expected.Ref != nil, flagExpectedRef)
	w.byte(flags)
	if !derived {
		w.text(o.ID)
	}
	w.text(o.Method)
	if o.Retries != "" {
		w.text(o.Retries)
	}
	if o.LocalOutcome != nil {
		w.outcome(o.LocalOutcome, o.ID)
	}
	if slim {
		return
	}
	switch {
	case o.Expected.Ref != nil:
		w.text(o.Expected.Ref.Op)
		w.text(o.Expected.Ref.Path)
	case o.Expected.Set:
		w.number(o.Expected.Cursor)
	}
	w.number(uint64(len(o.Deps)))
	for _, d := range o.Deps {
		w.text(d)
	}
	w.number(uint64(len(o.Args)))
	for _, a := range o.Args {
		w.text(a.Name)
		if a.Ref != nil {
			w.byte(1)
			w.text(a.Ref.Op)
			w.text(a.Ref.Path)
			continue
		}
		w.byte(0)
		w.bytes(a.JSON)
	}
}

// Decode decodes the bytes of Encode. Arguments share data's memory.
func Decode(session, batch string, data []byte) (*Batch, error) {
	r := reader{buf: data}
	version, err := r.version(OpsVersion)
	if err == nil && version == OpsVersion {
		if n := len(data) - sha256.Size; n < 1 || !bytes.Equal(data[n:], digestOf(session, batch, data[:n])) {
			r.fail("its digest is of other ops")
		} else {
			r.buf = data[1:n:n]
		}
	}
	if err = errors.Join(err, r.err); err != nil {
		return nil, fmt.Errorf("decode row: %w", err)
	}
	flags := r.byte()
	if flags&^(bodyAtomic|bodyCompacted|bodyNoDigest) != 0 {
		r.fail("flags")
	}
	b := &Batch{Atomic: flags&bodyAtomic != 0, Compacted: flags&bodyCompacted != 0, NoDigest: version == noDigestVersion || flags&bodyNoDigest != 0}
	n := r.count(2)
	if r.err == nil && n == 0 {
		r.fail("no ops")
	}
	ids := opid.DerivedFrom(batch)
	for i := 0; i < n && r.err == nil; i++ {
		b.Ops = append(b.Ops, r.op(ids, i, b.Compacted))
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("decode row: %w", err)
	}
	return b, nil
}

func (r *reader) op(ids opid.Derived, place int, slim bool) Op {
	var o Op
	flags := r.byte()
	if flags&flagDerived == 0 {
		o.ID = r.text()
	} else if id, ok := ids.At(place); ok {
		o.ID = id.String()
	} else {
		r.fail("op id")
	}
	o.Method = r.text()
	if o.ID == "" || o.Method == "" {
		r.fail("op without id or method")
	}
	o.Void = flags&flagVoid != 0
	o.DropRequested = flags&flagDropRequested != 0
	if flags&flagRetries != 0 {
		o.Retries = r.text()
	}
	if flags&flagLocalOutcome != 0 {
		v := r.outcome(o.ID)
		o.LocalOutcome = &v
	}
	if slim || r.err != nil {
		return o
	}
	o.Expected.Set = flags&flagExpected != 0
	switch {
	case flags&flagExpectedRef != 0:
		o.Expected.Ref = &ledger.Ref{Op: r.text(), Path: r.text()}
	case o.Expected.Set:
		o.Expected.Cursor = r.number()
	}
	for n := r.count(1); n > 0 && r.err == nil; n-- {
		o.Deps = append(o.Deps, r.text())
	}
	for n := r.count(3); n > 0 && r.err == nil; n-- {
		a := ledger.Arg{Name: r.text()}
		switch r.byte() {
		case 0:
			a.JSON = r.bytes()
		case 1:
			a.Ref = &ledger.Ref{Op: r.text(), Path: r.text()}
		default:
			r.fail("argument")
		}
		o.Args = append(o.Args, a)
	}
	return o
}

// EncodeOutcomes encodes a batch's outcomes, without digests.
func EncodeOutcomes(outs []ledger.Outcome, ops []Op) []byte {
	w := writer{buf: make([]byte, 0, 8+48*len(outs))}
	w.byte(outcomesVersion)
	w.number(uint64(len(outs)))
	for i := range outs {
		w.outcome(&outs[i], ops[i].ID)
	}
	return w.buf
}

// DecodeOutcomes decodes the bytes of EncodeOutcomes.
func DecodeOutcomes(data []byte, ops []Op) ([]ledger.Outcome, error) {
	r := reader{buf: data}
	if _, err := r.version(outcomesVersion); err != nil {
		return nil, fmt.Errorf("decode outcomes: %w", err)
	}
	if n := r.count(2); n != len(ops) {
		r.fail("count")
	}
	var outs []ledger.Outcome
	for i := 0; i < len(ops) && r.err == nil; i++ {
		outs = append(outs, r.outcome(ops[i].ID))
	}
	if err := r.end(); err != nil {
		return nil, fmt.Errorf("decode outcomes: %w", err)
	}
	return outs, nil
}

// outcome appends an outcome of the op with that id, without the id.
func (w *writer) outcome(o *ledger.Outcome, id string) {
	w.byte(byte(o.Status))
	w.number(uint64(o.Reason))
	w.text(o.Message)
	w.number(o.Cursor)
	w.bytes(o.Result)
	w.text(o.Cause)
	w.number(o.At)
}

func (r *reader) outcome(id string) ledger.Outcome {
	o := ledger.Outcome{OpID: id, Status: ledger.Status(r.byte())}
	if o.Status > ledger.BatchAborted {
		r.fail("status")
	}
	reason := r.number()
	if reason > math.MaxUint16 {
		r.fail("reason")
	}
	o.Reason = fault.Code(reason)
	o.Message = r.text()
	o.Cursor = r.number()
	if res := r.bytes(); len(res) > 0 {
		o.Result = res
	}
	o.Cause = r.text()
	o.At = r.number()
	return o
}

// writer appends lengths and bytes.
type writer struct{ buf []byte }

func (w *writer) byte(b byte) { w.buf = append(w.buf, b) }

func (w *writer) number(n uint64) { w.buf = binary.AppendUvarint(w.buf, n) }

func (w *writer) bytes(b []byte) { w.number(uint64(len(b))); w.buf = append(w.buf, b...) }

func (w *writer) text(s string) { w.number(uint64(len(s))); w.buf = append(w.buf, s...) }

// reader reads them back; the first error sticks and all later values are zero.
type reader struct {
	buf []byte
	err error
}

func (r *reader) fail(what string) {
	if r.err == nil {
		r.err = errors.New("damaged: " + what)
		r.buf = nil
	}
}

func (r *reader) byte() byte {
	if len(r.buf) == 0 {
		r.fail("too short")
		return 0
	}
	b := r.buf[0]
	r.buf = r.buf[1:]
	return b
}

// version reads the version, and fails on one above newest.
func (r *reader) version(newest byte) (byte, error) {
	v := r.byte()
	switch {
	case r.err != nil || 0 < v && v <= newest:
	case v > newest && v < maxVersion:
		return v, fmt.Errorf("version %d: %w", v, ErrNewerVersion)
	default:
		r.fail("version")
	}
	return v, r.err
}

func (r *reader) number() uint64 {
	v, n := binary.Uvarint(r.buf)
	if n <= 0 {
		r.fail("number")
		return 0
	}
	r.buf = r.buf[n:]
	return v
}

// count reads a number of items of at least least bytes each.
func (r *reader) count(least int) int {
	n := r.number()
	if n > uint64(len(r.buf)/least) {
		r.fail("count")
		return 0
	}
	return int(n)
}

func (r *reader) bytes() []byte {
	n := r.number()
	if n > uint64(len(r.buf)) {
		r.fail("length")
		return nil
	}
	b := r.buf[:n:n]
	r.buf = r.buf[n:]
	return b
}

func (r *reader) text() string { return string(r.bytes()) }

func (r *reader) end() error {
	if r.err == nil && len(r.buf) > 0 {
		r.fail("bytes left over")
	}
	return r.err
}
