package session

// The grammar of keys: what a session's state is made of.
//
//	session            the session's info
//	message/ID         a message
//	part/MID/PID       a part of message MID
//	session_diff       the diff
//	model/ID           a model; its ID may hold slashes
//
// An ID is 1 to 200 bytes of A-Z a-z 0-9 _ . : @ + -.

import (
	"strings"

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
)

const maxIDBytes = 200

// Key is a parsed key.
type Key struct {
	Kind    KeyKind
	Message string // messages and parts: the message's id
	ID      string // parts and models: their own id
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
	switch kind {
	case "message":
		if validID(rest, false) {
			return Key{Kind: KeyMessage, Message: rest}, nil
		}
	case "part":
		m, p, _ := strings.Cut(rest, "/")
		if validID(m, false) && validID(p, false) {
			return Key{Kind: KeyPart, Message: m, ID: p}, nil
		}
	case "model":
		if validID(rest, true) {
			return Key{Kind: KeyModel, ID: rest}, nil
		}
	}
	return Key{}, fault.BadKey.With("%q is not a key: use session, message/ID, part/MESSAGE/ID, session_diff or model/ID, with ids of 1 to %d letters, digits and _.:@+-", fault.Clip(text), maxIDBytes)
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
	}
	return ""
}

// MessageKey returns a message's key, which the events of its turn have too.
func MessageKey(id string) string { return "message/" + id }

// PartKey returns a part's key.
func PartKey(message, id string) string { return "part/" + message + "/" + id }

// refKey returns the key of events about a ref.
func refKey(id string) string { return "ref/" + id }

// partPrefix returns the prefix of the keys of all parts of a message.
func partPrefix(message string) string { return "part/" + message + "/" }

func validID(s string, slashes bool) bool {
	if s == "" || len(s) > maxIDBytes {
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
