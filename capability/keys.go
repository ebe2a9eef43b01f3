package capability

// Limits to keys: what a ref may read, and what it may write.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// Bounds of a list of keys.
const (
	MaxKeys      = 16
	MaxKeyBytes  = 512 // of each text
	MaxKindBytes = 64  // of the kind with which it begins
)

// CheckKeys checks the form of a list of keys, which errors call name: 1 to MaxKeys texts, each of which begins
// with what can be a kind of keys, as it would cover none otherwise. One that
// ends in "/" covers every key that begins with it, any other covers exactly that key. nil, for no
// limit, is well formed. A ref that has other lists, from an earlier version, goes on.
func CheckKeys(name string, keys []string) *fault.Error {
	switch {
	case keys == nil:
		return nil
	case len(keys) == 0:
		return fault.BadArgument.With("%s is an empty list, which could mean none or all: name some keys, or leave it out for no limit", name)
	case len(keys) > MaxKeys:
		return fault.BadArgument.With("%s names %d keys and may name %d: name a prefix that covers them, as in todo/", name, len(keys), MaxKeys)
	}
	for _, k := range keys {
		if !keyOrPrefix(k) {
			return fault.BadArgument.With("%s: %q is neither a key nor a prefix: it begins with a kind (a to z, digits, _ and -, the first a letter) and has up to %d letters, digits and _.:@+-/, as in todo/1, or todo/ for all below it", name, fault.Clip(k), MaxKeyBytes)
		}
	}
	return nil
}

func keyOrPrefix(k string) bool {
	if kind, _, _ := strings.Cut(k, "/"); !IsKind(kind) || len(k) > MaxKeyBytes || strings.Contains(k, "//") {
		return false
	}
	for _, c := range []byte(k) {
		if !alphanumeric(c) && !strings.ContainsRune("_.:@+-/", rune(c)) {
			return false
		}
	}
	return true
}

// IsKind reports whether a text can be the kind with which a key begins, before its first slash.
func IsKind(s string) bool {
	return s != "" && len(s) <= MaxKindBytes && 'a' <= s[0] && s[0] <= 'z' && !strings.ContainsFunc(s, func(c rune) bool {
		return (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-'
	})
}

// CoversKey reports whether a list of keys covers a key, or all that is below a prefix ("todo/").
func CoversKey(list []string, key string) bool {
	return list == nil || slices.ContainsFunc(list, func(k string) bool {
		return k == key || strings.HasSuffix(k, "/") && strings.HasPrefix(key, k)
	})
}

// TouchesKeys reports whether a list of keys covers some of what is below a prefix.
func TouchesKeys(list []string, prefix string) bool {
	return list == nil || slices.ContainsFunc(list, func(k string) bool {
		return strings.HasPrefix(k, prefix) || strings.HasSuffix(k, "/") && strings.HasPrefix(prefix, k)
	})
}

// keysWithin reports whether a list of keys covers nothing that whole does not cover.
func keysWithin(part, whole []string) bool {
	return whole == nil || part != nil && !slices.ContainsFunc(part, func(k string) bool { return !CoversKey(whole, k) })
}

// KeysText returns a list of keys as people are shown it.
func KeysText(keys []string) string { return strings.Join(keys, ", ") }

// ShowsAllKeys reports whether the ref's sight is not limited to some keys.
func (g *Grant) ShowsAllKeys() bool { return g.Message == "" && g.ReadKeys == nil }

// SameKeys reports whether two refs are limited to the same message and keys.
func (g *Grant) SameKeys(o *Grant) bool {
	return g.Message == o.Message && slices.Equal(g.ReadKeys, o.ReadKeys) && slices.Equal(g.WriteKeys, o.WriteKeys)
}
