package capability

// Secrets: 256 bits that are never printed by accident. A Secret is formatted by every fmt verb,
// slog, and JSON as a placeholder; only Reveal, RevealText and Ref.Text return it.

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"log/slog"

	"github.com/mooring-rpc/mooring/fault"
)

// SecretBytes is the length of a secret, and secretText that of its text.
const (
	SecretBytes = 32
	secretText  = 43
)

// redacted replaces a secret wherever one would be printed.
const redacted = "…"

// Secret is the secret half of a sturdy ref, or of an outbox. It is immutable and copied freely;
// the zero Secret is none. The bytes are behind two pointers so that fmt prints an address and not
// them even where it cannot call methods (an unexported field of another struct): it follows one
// pointer, for a verb that does not fit. Compare with Equal, not ==.
type Secret struct{ at **[SecretBytes]byte }

func secretOf(b *[SecretBytes]byte) Secret { return Secret{&b} }

// NewSecret returns a secret from the system's randomness.
func NewSecret() Secret {
	var b [SecretBytes]byte
	_, _ = rand.Read(b[:]) // never fails: it ends the process instead
	return secretOf(&b)
}

// SecretFrom returns the secret with these 32 bytes, as on the wire. The error is BadRefText.
func SecretFrom(bytes []byte) (Secret, error) {
	if len(bytes) != SecretBytes {
		return Secret{}, fault.BadRefText.With("a secret has %d bytes, not %d", SecretBytes, len(bytes))
	}
	return secretOf((*[SecretBytes]byte)(append([]byte(nil), bytes...))), nil
}

// ParseSecret parses a secret's text: 43 characters of base64url, unpadded. The error is BadRefText
// and never repeats the text.
func ParseSecret(text string) (Secret, error) {
	if len(text) != secretText {
		return Secret{}, fault.BadRefText.With("the secret has %d characters, not %d: was the ref cut off?", len(text), secretText)
	}
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != SecretBytes {
		return Secret{}, fault.BadRefText.With("the secret is not base64url text: was the ref mistyped?")
	}
	return secretOf((*[SecretBytes]byte)(b)), nil
}

// Reveal returns a copy of the bytes; nil for the zero Secret.
func (s Secret) Reveal() []byte {
	if s.IsZero() {
		return nil
	}
	return append([]byte(nil), (*s.at)[:]...)
}

// RevealText returns the text that ParseSecret takes; "" for the zero Secret.
func (s Secret) RevealText() string {
	if s.IsZero() {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString((*s.at)[:])
}

// StreamSecret returns the secret that an outbox with this secret shows when it opens its stream of
// a session: HMAC-SHA256 of the session's id under the outbox's secret. The session's server, which
// sees it, cannot act as the outbox anywhere else.
func (s Secret) StreamSecret(session string) Secret {
	mac := hmac.New(sha256.New, s.Reveal())
	mac.Write([]byte("mooring stream secret v1\x00"))
	mac.Write([]byte(session))
	return secretOf((*[SecretBytes]byte)(mac.Sum(nil)))
}

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.at == nil }

// Hash returns the secret's SHA-256, which the server stores.
func (s Secret) Hash() [32]byte { return sha256.Sum256(s.Reveal()) }

// HashText returns the hash as ops carry it: base64url, unpadded.
func (s Secret) HashText() string {
	h := s.Hash()
	return base64.RawURLEncoding.EncodeToString(h[:])
}

// Equal compares in constant time.
func (s Secret) Equal(t Secret) bool {
	if s.IsZero() || t.IsZero() {
		return s.IsZero() && t.IsZero()
	}
	return subtle.ConstantTimeCompare((*s.at)[:], (*t.at)[:]) == 1
}

// String returns a placeholder, like all methods below.
func (s Secret) String() string { return redacted }

// GoString returns a placeholder.
func (s Secret) GoString() string { return redacted }

// Format prints a placeholder for every verb.
func (s Secret) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(redacted)) }

// LogValue returns a placeholder.
func (s Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText returns a placeholder, which cannot be parsed.
func (s Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON returns a placeholder, which cannot be parsed.
func (s Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }
