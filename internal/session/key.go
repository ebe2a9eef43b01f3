package session

// The grammar of keys: what a session's state is made of.
//
//	session            the session's info
//	message/ID         a message
//	part/MID/PID       a part of message MID
//	session_diff       the diff
//	model/ID           a model; its ID may hold slashes
//	KIND[/ID…]         a value of the session's users, of a kind of their own: any JSON
//	schema/KIND        a JSON Schema, which values of such a kind are checked by
//	request/ID         a request, and below it request/ID/state: changed by ops of their own alone
//
// An ID is 1 to 200 bytes of A-Z a-z 0-9 _ . : @ + -. A KIND of its users is 1 to 64 bytes of a-z
// 0-9 _ -, the first of them a letter; up to 6 IDs follow, and the whole has up to 512 bytes.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// KeyKind is the kind of thing that a key names.
type KeyKind uint8

// The kinds of keys.
const (
	KeySession KeyKind = 1 + iota
	KeyMessage
	KeyPart
	KeyDiff
	KeyModel
	KeyOwn    // of a kind that the session's users chose
	KeySchema // the schema of such a kind
	KeyRequest
)

// Bounds of keys, in bytes, and of the IDs of a key of its users' kinds, which has
// capability.MaxKeyBytes in all; those of other kinds are shorter.
const (
	MaxIDBytes = 200
	maxOwnIDs  = 6
)

// reservedKinds are kinds that have a meaning of their own, now or in a later version; knownKinds are
// those that have keys.
var (
	reservedKinds = []string{"ref", "turn"}
	knownKinds    = []string{"session", "message", "part", "session_diff", "model", schemaKind, RequestKind}
)

const schemaKind = "schema"

// Key is a parsed key.
type Key struct {
	Kind    KeyKind
	Message string // messages and parts: the message's id
	ID      string // parts and models: their own id; KeyOwn, KeySchema, KeyRequest: the whole key
}

// ParseKey parses a key; a BadKey fault describes the error. A key has one spelling: String returns
// the text that was parsed.
func ParseKey(text string) (Key, *fault.Error) {
	switch text {
	case "session":
		return Key{Kind: KeySession}, nil
	case "session_diff":
		return Key{Kind: KeyDiff}, nil
	}
	kind, rest, _ := strings.Cut(text, "/")
	known := true
	switch kind {
	case "message":
		if ValidID(rest, false) {
			return Key{Kind: KeyMessage, Message: rest}, nil
		}
	case "part":
		m, p, _ := strings.Cut(rest, "/")
		if ValidID(m, false) && ValidID(p, false) {
			return Key{Kind: KeyPart, Message: m, ID: p}, nil
		}
	case "model":
		if ValidID(rest, true) {
			return Key{Kind: KeyModel, ID: rest}, nil
		}
	case schemaKind:
		if capability.IsKind(rest) && !slices.Contains(reservedKinds, rest) && !slices.Contains(knownKinds, rest) {
			return Key{Kind: KeySchema, ID: text}, nil
		}
		return Key{}, fault.BadKey.With("%q is not a key: schema/KIND is the schema of the values of a kind of your own, as in schema/todo", fault.Clip(text))
	case RequestKind:
		if id, _, ok := RequestOf(text); ok && ValidID(id, false) {
			return Key{Kind: KeyRequest, ID: text}, nil
		}
	case "session", "session_diff":
	default:
		known = false
	}
	if !known {
		return parseOwnKey(text)
	}
	return Key{}, fault.BadKey.With("%q is not a key: use session, message/ID, part/MESSAGE/ID, session_diff, model/ID, request/ID or KIND/ID of your own kinds, with ids of 1 to %d letters, digits and _.:@+-", fault.Clip(text), MaxIDBytes)
}

// beginsKeys reports whether there may be keys that begin with a prefix, which ends with "/".
func beginsKeys(prefix string) bool {
	_, one := ParseKey(prefix + "x")
	_, two := ParseKey(prefix + "x/x") // below part/ no key has one id
	return one == nil || two == nil
}

// parseOwnKey parses a key of a kind that Mooring does not know.
func parseOwnKey(text string) (Key, *fault.Error) {
	kind, rest, more := strings.Cut(text, "/")
	switch {
	case !capability.IsKind(kind):
		return Key{}, fault.BadKey.With("%q is not a key: it begins with a kind, 1 to %d letters a to z, digits, _ and - (the first a letter), as in todo/1", fault.Clip(text), capability.MaxKindBytes)
	case slices.Contains(reservedKinds, kind):
		return Key{}, fault.BadKey.With("%q: keys of the kind %s are reserved: use another kind", fault.Clip(text), kind)
	case len(text) > capability.MaxKeyBytes:
		return Key{}, fault.BadKey.With("the key %q has %d bytes, the limit is %d", fault.Clip(text), len(text), capability.MaxKeyBytes)
	}
	for n := 1; more; n++ {
		var id string
		id, rest, more = strings.Cut(rest, "/")
		switch {
		case n > maxOwnIDs:
			return Key{}, fault.BadKey.With("%q has more than %d ids after its kind", fault.Clip(text), maxOwnIDs)
		case !ValidID(id, false):
			return Key{}, fault.BadKey.With("%q is not a key: id %d after its kind is not 1 to %d letters, digits and _.:@+-", fault.Clip(text), n, MaxIDBytes)
		}
	}
	return Key{Kind: KeyOwn, ID: text}, nil
}

// Own reports whether a key is of the users' kinds, or their schema.
func (k Key) Own() bool { return k.Kind == KeyOwn || k.Kind == KeySchema }

// IsOwn reports whether a text is a key of its users' kinds, or their schema.
func IsOwn(key string) bool {
	k, err := ParseKey(key)
	return err == nil && k.Own()
}

// SchemaKey returns the key of the schema of a key's kind.
func SchemaKey(key string) string { return schemaKind + "/" + KindOf(key) }

// PrefixEnd returns the first text above all keys that begin with a prefix, which is ASCII. Above those
// with "", which are all, is a text that no key reaches.
func PrefixEnd(prefix string) string {
	if prefix == "" {
		return "\U0010FFFF"
	}
	last := len(prefix) - 1
	return prefix[:last] + string(rune(prefix[last]+1))
}

// KindOf returns the kind of a key, of any spelling: the text before its first slash.
func KindOf(key string) string {
	kind, _, _ := strings.Cut(key, "/")
	return kind
}

// String returns the key's text.
func (k Key) String() string {
	switch k.Kind {
	case KeySession:
		return "session"
	case KeyDiff:
		return "session_diff"
	case KeyMessage:
		return MessageKey(k.Message)
	case KeyPart:
		return PartKey(k.Message, k.ID)
	case KeyModel:
		return "model/" + k.ID
	case KeyOwn, KeySchema, KeyRequest:
		return k.ID
	}
	return ""
}

// MessageKey returns a message's key, which the events of its turn have too.
func MessageKey(id string) string { return "message/" + id }

// PartKey returns a part's key.
func PartKey(message, id string) string { return "part/" + message + "/" + id }

// RefKey returns the key of events about a ref.
func RefKey(id string) string { return "ref/" + id }

// PartPrefix returns the prefix of the keys of all parts of a message.
func PartPrefix(message string) string { return "part/" + message + "/" }

// ValidID reports whether a text is an id as keys have them; slashes permits "/" inside.
func ValidID(s string, slashes bool) bool {
	if s == "" || len(s) > MaxIDBytes {
		return false
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9':
		case c == '_', c == '.', c == ':', c == '@', c == '+', c == '-':
		case c == '/' && slashes:
		default:
			return false
		}
	}
	return true
}
