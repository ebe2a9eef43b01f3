package opargs

// Decoding of named arguments. Every value is JSON text; payloads stay byte for byte the same. The
// first error is kept and ends the decoding.

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

const (
	optional = false
	required = true
)

// Decoder decodes an intent's arguments. An argument that is still a reference reads as the zero
// value, without an error.
type Decoder struct {
	JSONChecked bool // CheckIntent has verified that every argument is JSON text
	ServerOp    bool // the op is the server's own, which may use ids of server-made refs

	in    *ledger.Intent
	lim   session.Limits
	known []string
	err   *fault.Error
	put   Put // reused for put, the most frequent op
}

// read starts decoding an intent; values from the previous one become invalid.
func (r *Decoder) read(in *ledger.Intent, lim session.Limits) {
	r.in, r.lim, r.known, r.err = in, lim, r.known[:0], nil
}

func (r *Decoder) fail(err *fault.Error) {
	if r.err == nil {
		r.err = err
	}
}

// finish returns the first error, or one for an argument that the method does not have.
func (r *Decoder) finish() *fault.Error {
	for _, a := range r.in.Args {
		if !slices.Contains(r.known, a.Name) {
			slices.Sort(r.known)
			takes := "nothing"
			if len(r.known) > 0 {
				takes = strings.Join(r.known, ", ")
			}
			r.fail(fault.BadArgument.With("%s has no argument %q; it takes %s", r.in.Method, fault.Clip(a.Name), takes))
		}
	}
	return r.err
}

// unresolved reports whether an argument is still a reference, or absent.
func (r *Decoder) unresolved(name string) bool {
	for _, a := range r.in.Args {
		if a.Name == name {
			return a.Ref != nil
		}
	}
	return true
}

// argument returns an argument's JSON text, and whether the argument was given. The text is nil
// where it is absent, a reference or invalid.
func (r *Decoder) argument(name string) (text []byte, given bool) {
	r.known = append(r.known, name)
	for i := range r.in.Args {
		a := &r.in.Args[i]
		switch {
		case a.Name != name:
			continue
		case a.Ref != nil:
		case len(a.JSON) > r.lim.PayloadBytes:
			r.fail(fault.TooLarge.With("%s has %d bytes, the limit is %d", name, len(a.JSON), r.lim.PayloadBytes))
		case !r.JSONChecked && (!utf8.Valid(a.JSON) || !ledger.IsJSON(a.JSON)):
			r.fail(fault.BadArgument.With("%s is not JSON text in UTF-8", name))
		default:
			return a.JSON, true
		}
		return nil, true
	}
	return nil, false
}

// raw returns an argument's JSON text; nil where it is absent, null or a reference.
func (r *Decoder) raw(name string, must bool) []byte {
	text, given := r.argument(name)
	if text != nil && string(bytes.TrimSpace(text)) == "null" {
		text, given = nil, false
	}
	if must && !given {
		r.needs(name)
	}
	return text
}

// value decodes a required argument of any JSON, null too; it is kept byte for byte.
func (r *Decoder) value(name string) []byte {
	text, given := r.argument(name)
	if !given {
		r.needs(name)
	}
	return text
}

func (r *Decoder) needs(name string) {
	r.fail(fault.BadArgument.With("%s needs %s", r.in.Method, name))
}

// text decodes a string without control characters, of at most LabelBytes. U+FFFD is refused too:
// half a surrogate pair, or anything else unreadable, becomes one, and two names that differ there
// would be equal.
func (r *Decoder) text(name string, must bool) string {
	s := r.stringArg(name, must)
	if len(s) > r.lim.LabelBytes {
		r.fail(fault.TooLarge.With("%s has %d bytes, the limit is %d", name, len(s), r.lim.LabelBytes))
		return ""
	}
	if strings.ContainsFunc(s, Unprintable) {
		r.fail(fault.BadArgument.With("%s has control characters or invalid ones", name))
		return ""
	}
	if must && s == "" && !r.unresolved(name) {
		r.fail(fault.BadArgument.With("%s is empty", name))
	}
	return s
}

// Unprintable reports whether a name may not have a character.
func Unprintable(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError }

func (r *Decoder) stringArg(name string, must bool) string {
	raw := r.raw(name, must)
	if raw == nil {
		return ""
	}
	s, ok := stringOf(raw)
	if !ok {
		r.fail(fault.BadArgument.With("%s is not a string", name))
	}
	return s
}

// stringOf decodes raw, JSON text of a string. Most strings need no unescaping.
func stringOf(raw []byte) (s string, ok bool) {
	text := bytes.TrimSpace(raw)
	switch {
	case len(text) < 2 || text[0] != '"':
		return "", false
	case bytes.IndexByte(text, '\\') < 0:
		return string(text[1 : len(text)-1]), true
	}
	return ledger.Unquote(text), true
}

// textChunk decodes a text that continues another: any string of whole characters.
func (r *Decoder) textChunk(name string) string {
	raw := r.raw(name, required)
	if raw == nil {
		return ""
	}
	if loneSurrogate(raw) {
		r.fail(fault.BadArgument.With("%s ends or begins in the middle of a character (half a surrogate pair): send whole ones", name))
		return ""
	}
	s, ok := stringOf(raw)
	if !ok {
		r.fail(fault.BadArgument.With("%s is not a string", name))
	}
	return s
}

// loneSurrogate reports whether JSON text has a \uD800 … \uDFFF escape without its other half.
func loneSurrogate(raw []byte) bool {
	unit := func(i int) (uint64, bool) {
		if i+6 > len(raw) || raw[i] != '\\' || raw[i+1] != 'u' {
			return 0, false
		}
		v, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 16)
		return v, err == nil
	}
	for i := 0; i < len(raw); i++ {
		if raw[i] != '\\' {
			continue
		}
		v, ok := unit(i)
		if !ok {
			i++ // an escape of one character
			continue
		}
		i += 5
		switch {
		case v >= 0xD800 && v < 0xDC00:
			if low, ok := unit(i + 1); !ok || low < 0xDC00 || low > 0xDFFF {
				return true
			}
			i += 6
		case v >= 0xDC00 && v <= 0xDFFF:
			return true
		}
	}
	return false
}

// maxNames is the maximum length of a list of names.
const maxNames = 64

// names decodes a list of names, up to the first invalid one.
func (r *Decoder) names(name string, must bool) []string {
	raw := r.raw(name, must)
	if raw == nil {
		return nil
	}
	v := gjson.ParseBytes(raw)
	if !v.IsArray() {
		r.fail(fault.BadArgument.With("%s is not a list of names", name))
		return nil
	}
	list, ok := []string{}, true
	v.ForEach(func(_, e gjson.Result) bool {
		if ok = e.Type == gjson.String && len(list) < maxNames; ok {
			list = append(list, e.Str)
		}
		return ok
	})
	if !ok {
		r.fail(fault.BadArgument.With("%s is not a list of at most %d names", name, maxNames))
		return nil
	}
	return list
}

// oneOf reports whether exactly one of some arguments was given.
func (r *Decoder) oneOf(names ...string) bool {
	n := 0
	for _, name := range names {
		if r.has(name) {
			n++
		}
	}
	return n == 1
}

// has reports whether an argument was given, as a value other than null or as a reference.
func (r *Decoder) has(name string) bool {
	return slices.ContainsFunc(r.in.Args, func(a ledger.Arg) bool {
		return a.Name == name && (a.Ref != nil || string(bytes.TrimSpace(a.JSON)) != "null")
	})
}

// set decodes an optional argument that is true, or is left out.
func (r *Decoder) set(name string) bool {
	text := r.raw(name, optional)
	if text != nil && string(bytes.TrimSpace(text)) != "true" {
		r.fail(fault.BadArgument.With("%s is true, or is left out", name))
	}
	return text != nil
}

// number decodes a whole number that every JSON implementation represents exactly.
func (r *Decoder) number(name string, must bool) (n uint64, set bool) {
	raw := r.raw(name, must)
	if raw == nil {
		return 0, false
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(raw)), 10, 64)
	if err != nil || n > 1<<53 {
		r.fail(fault.BadArgument.With("%s is not a whole number from 0 to 2^53", name))
		return 0, false
	}
	return n, true
}

// maxInteger bounds the whole numbers that every JSON implementation represents exactly.
const maxInteger = 1<<53 - 1

// integer decodes a required whole number, of any sign.
func (r *Decoder) integer(name string) int64 {
	raw := r.raw(name, required)
	if raw == nil {
		return 0
	}
	n, err := strconv.ParseInt(string(bytes.TrimSpace(raw)), 10, 64)
	if err != nil || n > maxInteger || n < -maxInteger {
		r.fail(fault.BadArgument.With("%s is not a whole number from -(2^53-1) to 2^53-1", name))
	}
	return n
}

// member decodes the name of an object's member: any string of whole characters.
func (r *Decoder) member(name string) string {
	raw := r.raw(name, required)
	if raw == nil {
		return ""
	}
	s, ok := stringOf(raw)
	switch {
	case !ok || loneSurrogate(raw):
		r.fail(fault.BadArgument.With("%s is not the name of a member: a string of whole characters", name))
	case len(s) > r.lim.LabelBytes:
		r.fail(fault.TooLarge.With("%s has %d bytes, the limit is %d", name, len(s), r.lim.LabelBytes))
	}
	return s
}

func (r *Decoder) schema(name string) uint32 { return r.schemaOr(name, 1) }

// schemaOr decodes a schema_version, absent where it is not given.
func (r *Decoder) schemaOr(name string, absent uint32) uint32 {
	n, set := r.number(name, optional)
	switch {
	case !set:
		return absent
	case n == 0 || n > math.MaxInt32:
		r.fail(fault.BadArgument.With("%s is from 1 to %d", name, math.MaxInt32))
	}
	return uint32(n)
}

// object decodes a payload: a JSON object, kept byte for byte.
func (r *Decoder) object(name string, must bool) []byte {
	raw := r.raw(name, must)
	if raw != nil && !rawjson.IsObject(raw) {
		r.fail(fault.BadPayload.With("%s is not a JSON object", name))
		return nil
	}
	return raw
}
