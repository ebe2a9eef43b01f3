package decide

// Decoding of named arguments. Every value is JSON text; payloads stay byte for byte the same. The
// first error is kept and ends the decoding.

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

const (
	optional = false
	required = true
)

// Bounds of a request's choices and of its expiry, in milliseconds.
const (
	maxChoices     = 32
	maxChoiceBytes = 64
	minExpiry      = 1000
	maxExpiry      = 30 * 24 * 3600 * 1000
)

// argReader decodes an intent's arguments. An argument that is still a reference reads as the zero
// value, without an error.
type argReader struct {
	in          *ledger.Intent
	lim         session.Limits
	jsonChecked bool // CheckIntent has verified that every argument is JSON text
	serverOp    bool // the op is the server's own, which may use ids of server-made refs
	known       []string
	err         *fault.Error
	put         opPut // reused for put, the most frequent op
}

// read starts decoding an intent; values from the previous one become invalid.
func (r *argReader) read(in *ledger.Intent, lim session.Limits) {
	r.in, r.lim, r.known, r.err = in, lim, r.known[:0], nil
}

func (r *argReader) fail(err *fault.Error) {
	if r.err == nil {
		r.err = err
	}
}

// finish returns the first error, or one for an argument that the method does not have.
func (r *argReader) finish() *fault.Error {
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
func (r *argReader) unresolved(name string) bool {
	for _, a := range r.in.Args {
		if a.Name == name {
			return a.Ref != nil
		}
	}
	return true
}

// argument returns an argument's JSON text, and whether the argument was given. The text is nil
// where it is absent, a reference or invalid.
func (r *argReader) argument(name string) (text []byte, given bool) {
	r.known = append(r.known, name)
	for i := range r.in.Args {
		a := &r.in.Args[i]
		switch {
		case a.Name != name:
			continue
		case a.Ref != nil:
		case len(a.JSON) > r.lim.PayloadBytes:
			r.fail(fault.TooLarge.With("%s has %d bytes, the limit is %d", name, len(a.JSON), r.lim.PayloadBytes))
		case !r.jsonChecked && (!utf8.Valid(a.JSON) || !ledger.IsJSON(a.JSON)):
			r.fail(fault.BadArgument.With("%s is not JSON text in UTF-8", name))
		default:
			return a.JSON, true
		}
		return nil, true
	}
	return nil, false
}

// raw returns an argument's JSON text; nil where it is absent, null or a reference.
func (r *argReader) raw(name string, must bool) []byte {
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
func (r *argReader) value(name string) []byte {
	text, given := r.argument(name)
	if !given {
		r.needs(name)
	}
	return text
}

// valueSchema is value for the schema of a kind, which has to compile.
func (r *argReader) valueSchema(name string) []byte {
	text := r.value(name)
	if text != nil && r.err == nil {
		if _, err := schemas.Get(session.SumOf(text), text); err != nil {
			r.fail(err)
		}
	}
	return text
}

func (r *argReader) needs(name string) {
	r.fail(fault.BadArgument.With("%s needs %s", r.in.Method, name))
}

// text decodes a string without control characters, of at most LabelBytes. U+FFFD is refused too:
// half a surrogate pair, or anything else unreadable, becomes one, and two names that differ there
// would be equal.
func (r *argReader) text(name string, must bool) string {
	s := r.stringArg(name, must)
	if len(s) > r.lim.LabelBytes {
		r.fail(fault.TooLarge.With("%s has %d bytes, the limit is %d", name, len(s), r.lim.LabelBytes))
		return ""
	}
	if strings.ContainsFunc(s, unprintable) {
		r.fail(fault.BadArgument.With("%s has control characters or invalid ones", name))
		return ""
	}
	if must && s == "" && !r.unresolved(name) {
		r.fail(fault.BadArgument.With("%s is empty", name))
	}
	return s
}

func unprintable(c rune) bool { return unicode.IsControl(c) || c == utf8.RuneError }

func (r *argReader) stringArg(name string, must bool) string {
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
func (r *argReader) textChunk(name string) string {
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
func (r *argReader) names(name string, must bool) []string {
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

func (r *argReader) id(name string, must bool) string {
	s := r.text(name, must)
	if r.err == nil && !r.unresolved(name) && (must || s != "") && !session.ValidID(s, false) {
		r.fail(fault.BadKey.With("%s: %q is not an id: use 1 to %d letters, digits and _.:@+-", name, fault.Clip(s), session.MaxIDBytes))
	}
	return s
}

func (r *argReader) key(name string) session.Key {
	k, _ := r.keyText(name)
	return k
}

// keyText decodes a key, and returns its text too.
func (r *argReader) keyText(name string) (session.Key, string) {
	s := r.stringArg(name, required)
	if r.err != nil || r.unresolved(name) {
		return session.Key{}, ""
	}
	k, err := session.ParseKey(s)
	if err != nil {
		r.fail(err)
	}
	return k, s
}

// writtenKey is keyText for a method that puts or removes values: those of requests have ops of their own.
func (r *argReader) writtenKey(name string) (k session.Key, text string) {
	k, text = r.keyText(name)
	if r.err == nil && k.Kind == session.KeyRequest {
		r.fail(fault.BadKey.With("%q: requests are changed by ask, claim, release, answer and withdraw alone", fault.Clip(text)))
	}
	return k, text
}

// oneOf reports whether exactly one of some arguments was given.
func (r *argReader) oneOf(names ...string) bool {
	n := 0
	for _, name := range names {
		if r.has(name) {
			n++
		}
	}
	return n == 1
}

// choices decodes a request's list of choices, {"id", …} each, and returns it as it is, with the ids.
func (r *argReader) choices(name string) (text []byte, ids []string) {
	if text = bytes.TrimSpace(r.raw(name, optional)); text == nil {
		return nil, nil
	}
	list, ok := gjson.ParseBytes(text), false
	if list.IsArray() {
		ok = true
		list.ForEach(func(_, e gjson.Result) bool {
			id := e.Get("id")
			ok = e.IsObject() && id.Type == gjson.String && id.Str != "" && len(id.Str) <= maxChoiceBytes && !strings.ContainsFunc(id.Str, unprintable) && !slices.Contains(ids, id.Str) && len(ids) < maxChoices
			ids = append(ids, id.Str)
			return ok
		})
	}
	if !ok || len(ids) == 0 {
		r.fail(fault.BadArgument.With(`%s is not a list of 1 to %d {"id", …}, each id once and of at most %d bytes`, name, maxChoices, maxChoiceBytes))
		return nil, nil
	}
	return text, ids
}

// ownKey is keyText for a method that changes values of the users' own kinds alone.
func (r *argReader) ownKey(name string) (session.Key, string) { return r.ownKeyIf(name, required) }

// ownKeyIf is ownKey for a key that may be absent.
func (r *argReader) ownKeyIf(name string, must bool) (k session.Key, text string) {
	if !must && !r.has(name) {
		r.known = append(r.known, name)
		return session.Key{}, ""
	}
	k, text = r.keyText(name)
	if r.err == nil && text != "" && k.Kind != session.KeyOwn {
		r.fail(fault.BadKey.With("%s changes values of your own kinds alone (todo/1, plan): %q has rules of its own, put it whole", r.in.Method, fault.Clip(text)))
	}
	return k, text
}

// messageKey decodes an optional key of a message or part.
func (r *argReader) messageKey(name string) string {
	s := r.stringArg(name, optional)
	if r.err != nil || s == "" {
		return ""
	}
	if k, err := session.ParseKey(s); err != nil {
		r.fail(err)
	} else if k.Kind != session.KeyMessage && k.Kind != session.KeyPart {
		r.fail(fault.BadKey.With("%s: %q is not the key of a message or part: message/ID or part/MESSAGE/ID", name, fault.Clip(s)))
	}
	return s
}

// has reports whether an argument was given, as a value other than null or as a reference.
func (r *argReader) has(name string) bool {
	return slices.ContainsFunc(r.in.Args, func(a ledger.Arg) bool {
		return a.Name == name && (a.Ref != nil || string(bytes.TrimSpace(a.JSON)) != "null")
	})
}

// set decodes an optional argument that is true, or is left out.
func (r *argReader) set(name string) bool {
	text := r.raw(name, optional)
	if text != nil && string(bytes.TrimSpace(text)) != "true" {
		r.fail(fault.BadArgument.With("%s is true, or is left out", name))
	}
	return text != nil
}

// ownPrefix decodes an optional prefix of keys of the users' own kinds.
func (r *argReader) ownPrefix(name string) string {
	s := r.stringArg(name, optional)
	if r.err != nil || s == "" {
		if r.err == nil && r.has(name) && !r.unresolved(name) {
			r.fail(errOwnPrefix(s))
		}
		return ""
	}
	// A prefix is what stands before the last id of a key.
	if k, err := session.ParseKey(s + "1"); err != nil || k.Kind != session.KeyOwn || !strings.HasSuffix(s, "/") {
		r.fail(errOwnPrefix(s))
	}
	return s
}

func errOwnPrefix(s string) *fault.Error {
	return fault.BadKey.With("prefix: %q is not the beginning of keys of your own kinds: use KIND/ or KIND/ID/, as in todo/", fault.Clip(s))
}

// guard is the conditions that an op may name on its key.
type guard struct {
	expect condition // that its value was last changed at this cursor; 0 that there is none
	claim  condition // that it is claimed at this cursor, by the op's stream
}

// condition is a cursor that was named, or not.
type condition struct {
	cursor uint64
	set    bool
}

func (r *argReader) guard() (g guard) {
	g.expect.cursor, g.expect.set = r.number("expect", optional)
	g.claim.cursor, g.claim.set = r.number("claim", optional)
	return g
}

// refID decodes the id of a ref, of any target.
func (r *argReader) refID(name string) string {
	s := r.text(name, required)
	if r.err == nil && !r.unresolved(name) && capability.Target(s) == "" {
		r.fail(fault.BadArgument.With("%s is not a ref's id", name))
	}
	return s
}

// newRef decodes the id of a ref to be minted.
func (r *argReader) newRef(name string) string {
	s := r.refID(name)
	if r.err == nil && !r.unresolved(name) && !r.serverOp {
		if err := capability.CheckClientMade(s); err != nil {
			r.fail(err)
		}
	}
	return s
}

func (r *argReader) hash(name string) (h session.Hash) {
	s := r.text(name, required)
	if r.err != nil || r.unresolved(name) {
		return h
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(s)
	if err != nil || len(b) != len(h) {
		r.fail(fault.BadArgument.With("%s is not a SHA-256 in unpadded base64url", name))
		return h
	}
	return session.Hash(b)
}

// eventHash decodes an event's hash, in hexadecimal as events are shown; nil if absent.
func (r *argReader) eventHash(name string) []byte {
	text := r.text(name, optional)
	if text == "" {
		return nil
	}
	h, err := session.ParseHash(text)
	if err != nil {
		r.fail(fault.BadArgument.With("%s is an event's hash: 64 hexadecimal digits", name))
	}
	return h[:]
}

// sealKey decodes an optional public key.
func (r *argReader) sealKey(name string) []byte {
	text := r.text(name, optional)
	if text == "" {
		return nil
	}
	key, err := capability.ParseSealKey(text)
	if err != nil {
		r.fail(fault.BadArgument.With("%s is an Ed25519 public key: 43 characters of base64url", name))
	}
	return key
}

// number decodes a whole number that every JSON implementation represents exactly.
func (r *argReader) number(name string, must bool) (n uint64, set bool) {
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
func (r *argReader) integer(name string) int64 {
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
func (r *argReader) member(name string) string {
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

func (r *argReader) schema(name string) uint32 { return r.schemaOr(name, 1) }

// schemaOr decodes a schema_version, absent where it is not given.
func (r *argReader) schemaOr(name string, absent uint32) uint32 {
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
func (r *argReader) object(name string, must bool) []byte {
	raw := r.raw(name, must)
	if raw != nil && !rawjson.IsObject(raw) {
		r.fail(fault.BadPayload.With("%s is not a JSON object", name))
		return nil
	}
	return raw
}

// parts decodes finalize's list of {id, payload, schema_version}, up to the first invalid one.
func (r *argReader) parts(name string) []terminalPart {
	raw := r.raw(name, optional)
	if raw == nil {
		return nil
	}
	var parts []terminalPart
	seen := map[string]bool{}
	list, ok := gjson.ParseBytes(raw), false
	if list.IsArray() {
		ok = true
		list.ForEach(func(_, e gjson.Result) bool {
			var p terminalPart
			if p, ok = r.part(name, e); seen[p.id] {
				ok = false
			}
			if len(parts) == session.MaxTerminalParts {
				r.fail(fault.TooLarge.With("%s has more than %d parts: put the others before the turn ends", name, session.MaxTerminalParts))
				ok = false
			}
			seen[p.id] = true
			parts = append(parts, p)
			return ok
		})
	}
	if !ok {
		r.fail(fault.BadArgument.With(`%s is not a list of {"id", "payload", "schema_version"}, each id once`, name))
		return nil
	}
	return parts
}

// part decodes an element of the list of parts.
func (r *argReader) part(name string, e gjson.Result) (p terminalPart, ok bool) {
	p.schema, ok = 1, e.IsObject()
	if !ok {
		return p, false
	}
	e.ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case "id":
			p.id = v.Str
		case "payload":
			p.payload = []byte(v.Raw)
		case "schema_version":
			n, err := strconv.ParseUint(v.Raw, 10, 31)
			p.schema, ok = uint32(n), err == nil && n > 0
		default:
			ok = false
		}
		return ok
	})
	switch {
	case !ok:
		return p, false
	case !session.ValidID(p.id, false):
		r.fail(fault.BadKey.With("%s: %q is not an id: use 1 to %d letters, digits and _.:@+-", name, fault.Clip(p.id), session.MaxIDBytes))
	case !rawjson.IsObject(p.payload):
		r.fail(fault.BadPayload.With("%s: the payload of %s is not a JSON object", name, p.id))
	}
	return p, r.err == nil
}

// digest returns a digest of all arguments, independent of their order.
func (r *argReader) digest() session.Hash {
	args := slices.Clone(r.in.Args)
	slices.SortFunc(args, func(a, b ledger.Arg) int { return strings.Compare(a.Name, b.Name) })
	h := sha256.New()
	h.Write([]byte("mooring arguments v1"))
	var n [8]byte
	for _, a := range args {
		for _, b := range [][]byte{[]byte(a.Name), a.JSON} {
			binary.BigEndian.PutUint64(n[:], uint64(len(b)))
			h.Write(n[:])
			h.Write(b)
		}
	}
	var d session.Hash
	h.Sum(d[:0])
	return d
}
