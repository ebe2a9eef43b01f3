package opargs

// Arguments that name something: ids, keys, refs and hashes.

import (
	"encoding/base64"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

func (r *Decoder) id(name string, must bool) string {
	s := r.text(name, must)
	if r.err == nil && !r.unresolved(name) && (must || s != "") && !session.ValidID(s, false) {
		r.fail(fault.BadKey.With("%s: %q is not an id: use 1 to %d letters, digits and _.:@+-", name, fault.Clip(s), session.MaxIDBytes))
	}
	return s
}

func (r *Decoder) key(name string) session.Key {
	k, _ := r.keyText(name)
	return k
}

// keyText decodes a key, and returns its text too.
func (r *Decoder) keyText(name string) (session.Key, string) {
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
func (r *Decoder) writtenKey(name string) (k session.Key, text string) {
	k, text = r.keyText(name)
	if r.err == nil && k.Kind == session.KeyRequest {
		r.fail(fault.BadKey.With("%q: requests are changed by ask, claim, release, answer and withdraw alone", fault.Clip(text)))
	}
	return k, text
}

// ownKey is keyText for a method that changes values of the users' own kinds alone.
func (r *Decoder) ownKey(name string) (session.Key, string) { return r.ownKeyIf(name, required) }

// ownKeyIf is ownKey for a key that may be absent.
func (r *Decoder) ownKeyIf(name string, must bool) (k session.Key, text string) {
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
func (r *Decoder) messageKey(name string) string {
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

// ownPrefix decodes an optional prefix of keys of the users' own kinds.
func (r *Decoder) ownPrefix(name string) string {
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

// refID decodes the id of a ref, of any target.
func (r *Decoder) refID(name string) string {
	s := r.text(name, required)
	if r.err == nil && !r.unresolved(name) && capability.Target(s) == "" {
		r.fail(fault.BadArgument.With("%s is not a ref's id", name))
	}
	return s
}

// newRef decodes the id of a ref to be minted.
func (r *Decoder) newRef(name string) string {
	s := r.refID(name)
	if r.err == nil && !r.unresolved(name) && !r.ServerOp {
		if err := capability.CheckClientMade(s); err != nil {
			r.fail(err)
		}
	}
	return s
}

func (r *Decoder) hash(name string) (h session.Hash) {
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
func (r *Decoder) eventHash(name string) []byte {
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
func (r *Decoder) sealKey(name string) []byte {
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
