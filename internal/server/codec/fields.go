// Fields: many getters or setters with one error, and the bytes that getters have read.

package codec

import (
	"errors"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

// FieldReader collects the first error of several getters, and counts their bytes.
type FieldReader struct {
	err      error
	size     int
	limit    int    // of size; 0 for none
	buf      []byte // data copies into it
	sizeHint int    // bytes that may be copied in all; 0 if not known

	argPool []ledger.Arg // allocated for several ops at once, and unused yet
}

// bufBytes bounds one allocation of buf, for short values.
const bufBytes = 4096

// Text returns a text.
func (r *FieldReader) Text(s string, err error) string {
	r.Fail(err)
	r.charge(len(s))
	return s
}

// maxShortText bounds each text of a list, in bytes: the texts may share data, and are copied.
const maxShortText = 1024

// Texts returns a list of keys or names: most of them, and one more if there are too many. Of a text
// that is too long to be either it reads the beginning, which is none either.
func (r *FieldReader) Texts(list capnp.TextList, err error, most int) (texts []string) {
	for i := 0; err == nil && i < min(list.Len(), most+1); i++ {
		var text []byte
		text, err = list.BytesAt(i)
		texts = append(texts, string(text[:min(len(text), maxShortText)]))
	}
	r.Fail(err)
	return texts
}

// Data returns a copy of data, nil if there are none.
func (r *FieldReader) Data(b []byte, err error) []byte {
	r.Fail(err)
	if r.charge(len(b)); len(b) == 0 {
		return nil
	}
	size := min(r.sizeHint, bufBytes)
	if len(b) > size/4 {
		return append([]byte(nil), b...)
	}
	if len(b) > cap(r.buf)-len(r.buf) {
		r.buf = make([]byte, 0, size)
	}
	from := len(r.buf)
	r.buf = append(r.buf, b...)
	return r.buf[from:len(r.buf):len(r.buf)]
}

// intern is Text for a small set of names: the frequent ones are not allocated.
func (r *FieldReader) intern(b []byte, err error) string {
	r.Fail(err)
	r.charge(len(b))
	if s, usual := internedNames[string(b)]; usual {
		return s
	}
	return string(b)
}

// internedNames are the methods, and the arguments of the frequent ones.
var internedNames = func() map[string]string {
	names := map[string]string{}
	for _, s := range append(opargs.Methods(), ledger.MethodVoid,
		"key", "payload", "schema_version", "message", "offset", "text", "status", "parts", "usage") {
		names[s] = s
	}
	return names
}()

// Fail records the error of a getter, if it is the first.
func (r *FieldReader) Fail(err error) {
	if r.err == nil {
		r.err = err
	}
}

func (r *FieldReader) charge(bytes int) {
	if r.size += bytes; r.limit > 0 && r.size > r.limit {
		r.Fail(fault.TooLarge.With("the batch expands to more than the %d bytes that a message may have: its parts share data", r.limit))
	}
}

// Fault returns the fault to send if a getter failed; nil if none did.
func (r *FieldReader) Fault(label string) *fault.Error {
	var large *fault.Error
	switch {
	case r.err == nil:
		return nil
	case errors.As(r.err, &large) && large.Code == fault.TooLarge:
		return large
	}
	return fault.Malformed.Because(r.err, "%s cannot be decoded", label)
}

// FieldWriter collects the first error of several setters.
type FieldWriter struct{ err error }

// Do records the error of a setter, if it is the first.
func (w *FieldWriter) Do(err error) {
	if w.err == nil {
		w.err = err
	}
}

// Err returns the first error.
func (w *FieldWriter) Err() error { return w.err }

// Text sets a field unless it is empty: an absent text reads as "".
func (w *FieldWriter) Text(set func(string) error, v string) {
	if w.err == nil && v != "" {
		w.err = set(v)
	}
}

// Data sets a field unless it is empty.
func (w *FieldWriter) Data(set func([]byte) error, v []byte) {
	if w.err == nil && len(v) > 0 {
		w.err = set(v)
	}
}

// List sets a list of texts, unless it is empty.
func (w *FieldWriter) List(make func(int32) (capnp.TextList, error), texts []string) {
	if len(texts) == 0 || w.err != nil {
		return
	}
	list, err := make(int32(len(texts)))
	w.Do(err)
	for i, text := range texts {
		w.Do(list.Set(i, text))
	}
}

// EncodeList encodes items into a new list.
func EncodeList[L interface{ At(int) S }, S, T any](make func(int32) (L, error), items []T, encode func(S, T) error) error {
	list, err := make(int32(len(items)))
	for i := 0; err == nil && i < len(items); i++ {
		err = encode(list.At(i), items[i])
	}
	return err
}

// setBytes writes bytes as a text field without converting them to a string.
func setBytes(s capnp.Struct, pointer uint16, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	t, err := capnp.NewTextFromBytes(s.Segment(), text)
	if err != nil {
		return err
	}
	return s.SetPtr(pointer, t.ToPtr())
}
