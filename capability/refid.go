package capability

// Ids of refs: TARGET "." TAIL. The id includes its session's or space's id, so that a server finds
// the session before the ref. The tail of a client's ref is "o", or "k" if the ref is sealed, and a
// digest of the secret; the tail of a server's ref is "s" and a ULID.

import (
	"crypto/sha256"
	"encoding/base32"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
)

// Prefixes of the ids of targets; a ULID follows.
const (
	SessionPrefix = "ses_"
	SpacePrefix   = "spc_"
)

// The first character of a tail: the origin of the ref.
const (
	clientMark = 'o'
	sealedMark = 'k'
	serverMark = 's'
)

const derivedBytes = 16 // of the digest, in a client's id

var base32Lower = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// IsSession reports whether id is a well-formed session id.
func IsSession(id string) bool { return isPrefixedULID(id, SessionPrefix) }

// IsSpace reports whether id is a well-formed space id.
func IsSpace(id string) bool { return isPrefixedULID(id, SpacePrefix) }

// DeriveID returns the id of the ref that a client makes for target (a session or space id) with
// secret s: with both, the id can be verified.
func DeriveID(target string, s Secret) string { return derive(clientMark, target, s) }

// DeriveSealedID is DeriveID for a ref that is bound to a key: its text must show that redeeming it
// needs a proof.
func DeriveSealedID(target string, s Secret) string { return derive(sealedMark, target, s) }

func derive(mark byte, target string, s Secret) string {
	h := sha256.New()
	h.Write([]byte("mooring ref id v1\x00"))
	if mark != clientMark {
		h.Write([]byte{mark, 0})
	}
	h.Write([]byte(target))
	h.Write(s.Reveal())
	return target + "." + string(mark) + base32Lower.EncodeToString(h.Sum(nil)[:derivedBytes])
}

// ServerID returns the id of a ref that a server makes for target.
func ServerID(target string, u ulid.ULID) string {
	return target + "." + string(serverMark) + u.String()
}

// FixedID is ServerID for a single ref that servers keep for target for one purpose (end): all
// servers compute the same id.
func FixedID(target, end string) string {
	sum := sha256.Sum256([]byte("mooring fixed ref id v1\x00" + target + "\x00" + end))
	return ServerID(target, ulid.ULID(sum[:len(ulid.ULID{})]))
}

// Target returns the session or space a ref id is for; "" if the id is not well formed.
func Target(id string) string {
	target, tail, _ := strings.Cut(id, ".")
	if tail == "" || !IsSession(target) && !IsSpace(target) {
		return ""
	}
	switch tail[0] {
	case clientMark, sealedMark:
		b, err := base32Lower.DecodeString(tail[1:])
		if err != nil || len(b) != derivedBytes || base32Lower.EncodeToString(b) != tail[1:] {
			return ""
		}
	case serverMark:
		if !isPrefixedULID(tail, string(serverMark)) {
			return ""
		}
	default:
		return ""
	}
	return target
}

// ClientMade reports whether a well-formed ref id is of a client's ref.
func ClientMade(id string) bool {
	return originMark(id) == clientMark || originMark(id) == sealedMark
}

// CheckClientMade returns nil for an id that a client may mint. Ids of servers' refs are reserved:
// some have a predictable tail (FixedID), and a client that minted one first would replace the
// server's own ref. The error is BadArgument.
func CheckClientMade(id string) *fault.Error {
	if ClientMade(id) {
		return nil
	}
	return fault.BadArgument.With("the new ref's id is not one that a client makes: derive it from the ref's secret")
}

// Sealed reports whether a well-formed ref id is that of a ref bound to a key.
func Sealed(id string) bool { return originMark(id) == sealedMark }

// originMark returns the first character of a ref id's tail; 0 if the id is not well formed.
func originMark(id string) byte {
	t := Target(id)
	if t == "" {
		return 0
	}
	return id[len(t)+1]
}

// DerivedFrom reports whether id is the one derived from its own target and secret s.
func DerivedFrom(id string, s Secret) bool {
	return ClientMade(id) && !s.IsZero() && derive(originMark(id), Target(id), s) == id
}

func isPrefixedULID(id, prefix string) bool {
	rest, ok := strings.CutPrefix(id, prefix)
	if !ok {
		return false
	}
	u, err := ulid.ParseStrict(rest)
	return err == nil && u.String() == rest
}
