// Messages: violations, ids, and the usual messages, read without making values of the arrays around them. For a message in
// another spelling, or malformed, the functions report false: the parser decides then.

package expr

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Violation is a violation of the protocol by the peer: the connection ends.
type Violation struct{ Reason string }

func (e *Violation) Error() string { return e.Reason }

// Violationf returns a Violation.
func Violationf(format string, args ...any) error {
	return &Violation{fmt.Sprintf(format, args...)}
}

// Quoted returns a peer's word for an error text, if it could be a name. Other text may be a secret in the wrong place, and
// errors are logged.
func Quoted(s string) string {
	if len(s) > 20 || strings.Trim(s, letters) != "" {
		return "(of " + strconv.Itoa(len(s)) + " bytes)"
	}
	return strconv.Quote(s)
}

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// maxID is the largest integer that JavaScript represents exactly.
const maxID = 1<<53 - 1

// ID reads an id or a count.
func ID(v any) (int64, bool) {
	f, ok := v.(float64)
	if !ok || f != float64(int64(f)) || f > maxID || f < -maxID {
		return 0, false
	}
	return int64(f), true
}

// IDAt reads an id or a count in a message or an expression.
func IDAt(a []any, at int) (int64, bool) {
	if at >= len(a) {
		return 0, false
	}
	return ID(a[at])
}

// TextAt reads a string in an expression.
func TextAt(a []any, at int) (string, bool) {
	if at >= len(a) {
		return "", false
	}
	s, ok := a[at].(string)
	return s, ok
}

// AppendID writes an id or a count.
func AppendID(b []byte, id int64) []byte { return strconv.AppendInt(b, id, 10) }

// PullOrRelease reads ["pull",id] ('p') and ["release",id,n] ('r'): every call comes with both. It returns kind 0 for others.
func PullOrRelease(msg []byte) (id, n int64, kind byte) {
	const pull, release = `["pull",`, `["release",`
	var ok bool
	switch {
	case len(msg) > len(pull) && string(msg[:len(pull)]) == pull:
		if id, msg, ok = shortInt(msg[len(pull):], ']'); ok && len(msg) == 0 {
			return id, 0, 'p'
		}
	case len(msg) > len(release) && string(msg[:len(release)]) == release:
		if id, msg, ok = shortInt(msg[len(release):], ','); !ok {
			return 0, 0, 0
		}
		if n, msg, ok = shortInt(msg, ']'); ok && len(msg) == 0 {
			return id, n, 'r'
		}
	}
	return 0, 0, 0
}

var (
	resolvePrefix = []byte(`["resolve",`)
	callPrefix    = []byte(`["push",["pipeline",`)
)

// Call reads ["push",["pipeline",id,[name],args]].
func Call(msg []byte, known Paths) (id int64, path []string, args []byte, ok bool) {
	if !bytes.HasPrefix(msg, callPrefix) {
		return 0, nil, nil, false
	}
	id, rest, ok := shortInt(msg[len(callPrefix):], ',')
	if ok {
		path, rest, ok = known.parse(rest)
	}
	if !ok || len(rest) < 4 || rest[0] != '[' || string(rest[len(rest)-3:]) != "]]]" {
		return 0, nil, nil, false
	}
	return id, path, rest[:len(rest)-2], true
}

// Resolve reads ["resolve",id,value].
func Resolve(msg []byte) (id int64, value []byte, ok bool) {
	if !bytes.HasPrefix(msg, resolvePrefix) {
		return 0, nil, false
	}
	id, rest, ok := shortInt(msg[len(resolvePrefix):], ',')
	if !ok || len(rest) < 2 || rest[len(rest)-1] != ']' {
		return 0, nil, false
	}
	return id, rest[:len(rest)-1], true
}

// shortInt reads an integer of at most 15 digits, which needs no rounding, and the character after it.
func shortInt(b []byte, end byte) (n int64, rest []byte, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	digits := 0
	for digits < len(b) && digits <= 15 && '0' <= b[digits] && b[digits] <= '9' {
		n = n*10 + int64(b[digits]-'0')
		digits++
	}
	if digits == 0 || digits > 15 || digits == len(b) || b[digits] != end || b[0] == '0' && (digits > 1 || negative) {
		return 0, nil, false
	}
	if negative {
		n = -n
	}
	return n, b[digits+1:], true
}

// authPrefixes are the beginnings of calls on the main object, and of messages that are no calls.
var authPrefixes = [][]byte{[]byte(`["push",["pipeline",0,`), []byte(`["push",["import",0,`), []byte(`["pull",`), []byte(`["release",`),
	[]byte(`["resolve",`), []byte(`["reject",`), []byte(`["abort",`)}

// MayAuthenticate reports whether a message is a call on the main object, or none that waits for an answer.
func MayAuthenticate(msg []byte) bool { return hasAnyPrefix(msg, authPrefixes) }

var streamPrefixes = [][]byte{[]byte(`["pipe"`), []byte(`["stream"`)}

// IsStream reports whether a message is part of a stream.
func IsStream(msg []byte) bool { return hasAnyPrefix(msg, streamPrefixes) }

func hasAnyPrefix(msg []byte, with [][]byte) bool {
	return slices.ContainsFunc(with, func(b []byte) bool { return bytes.HasPrefix(msg, b) })
}
