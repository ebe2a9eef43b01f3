package capability

// Seals: a ref may be bound to an Ed25519 key. Its text alone is then useless, since redeeming it
// needs a signature by the private key:
//
//	client → challenge()                              → server: a nonce, for this connection, once
//	client → restore(ref, redemption, proof of nonce) → server: the capability
//
// The signature covers the audience too: the HOST:PORT that the client dialled, which the server
// must know as its own. Otherwise a hostile server could pass the nonce of the real one to a client
// that presents a ref to it, and use the signature there; WebAuthn's origin serves the same
// purpose. An attacker between the client and the right HOST:PORT is not excluded, as for every
// secret that is sent there: that needs TLS.

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/binary"

	"github.com/mooring-rpc/mooring/fault"
)

// NonceBytes is the length of a challenge's nonce.
const NonceBytes = 32

// proofDomain separates these signatures from all others made with the key.
const proofDomain = "mooring sealed ref v1"

// Proof proves possession of a sealed ref's private key. The zero Proof is none.
type Proof struct {
	Nonce     []byte // of a challenge
	Audience  string // HOST:PORT as the client dialled it
	Signature []byte // over ProofText
}

// ProofText returns the text to sign: each part after its length, so that different tuples have
// different texts.
func ProofText(nonce []byte, audience, refID, redemption string) []byte {
	parts := [...]string{proofDomain, string(nonce), audience, refID, redemption}
	n := 0
	for _, p := range parts {
		n += 4 + len(p)
	}
	text := make([]byte, 0, n)
	for _, p := range parts {
		text = binary.BigEndian.AppendUint32(text, uint32(len(p)))
		text = append(text, p...)
	}
	return text
}

// Prove returns the proof for a challenge, to redeem a ref at audience.
func Prove(key ed25519.PrivateKey, nonce []byte, audience, refID, redemption string) Proof {
	return Proof{Nonce: nonce, Audience: audience,
		Signature: ed25519.Sign(key, ProofText(nonce, audience, refID, redemption))}
}

// CheckProof returns nil if p is signed with the private key of seal, over p's own nonce and
// audience; the error is Sealed. The caller checks that the nonce is fresh and the audience right.
func CheckProof(seal []byte, p Proof, refID, redemption string) *fault.Error {
	switch {
	case len(p.Signature) == 0:
		return fault.Sealed.With("the ref is bound to a key, and redeeming it needs a proof of that key: redeem it where the key is, with a client that knows sealed refs")
	case len(seal) != ed25519.PublicKeySize || !ed25519.Verify(seal, ProofText(p.Nonce, p.Audience, refID, redemption), p.Signature):
		return fault.Sealed.With("the ref is bound to another key than the one that was used: redeem it where that key is, or give its sharer the public key of this place (mooring key prints it) and ask for a new ref")
	}
	return nil
}

// ParseSealKey parses the text of a public key: 43 characters of base64url, unpadded. The error is
// BadArgument.
func ParseSealKey(text string) (ed25519.PublicKey, error) {
	length := base64.RawURLEncoding.EncodedLen(ed25519.PublicKeySize)
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != ed25519.PublicKeySize || len(text) != length { // the decoder ignores line ends
		return nil, fault.BadArgument.With("a seal key is the %d characters that mooring key prints", length)
	}
	return b, nil
}

// SealKeyText returns the text that ParseSealKey takes.
func SealKeyText(key ed25519.PublicKey) string { return base64.RawURLEncoding.EncodeToString(key) }
