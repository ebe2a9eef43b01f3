package capability_test

import (
	"bytes"
	"crypto/ed25519"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

func TestProofIsForOneRedeeming(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	other, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	nonce := bytes.Repeat([]byte{7}, capability.NonceBytes)
	made := capability.Prove(private, nonce, "host:7600", "ref", "redemption")
	if refused := capability.CheckProof(public, made, "ref", "redemption"); refused != nil {
		t.Fatalf("the right proof: %v", refused)
	}
	changed := func(change func(p *capability.Proof)) capability.Proof {
		p := made
		p.Nonce, p.Signature = slices.Clone(p.Nonce), slices.Clone(p.Signature)
		change(&p)
		return p
	}
	for name, c := range map[string]struct {
		seal            []byte
		proof           capability.Proof
		ref, redemption string
	}{
		"none":               {public, capability.Proof{}, "ref", "redemption"},
		"for another key":    {other, made, "ref", "redemption"},
		"for no key":         {nil, made, "ref", "redemption"},
		"another ref":        {public, made, "fer", "redemption"},
		"another redemption": {public, made, "ref", ""},
		"parts moved":        {public, made, "refr", "edemption"},
		"another nonce":      {public, changed(func(p *capability.Proof) { p.Nonce[31]++ }), "ref", "redemption"},
		"another audience":   {public, changed(func(p *capability.Proof) { p.Audience = "evil:7600" }), "ref", "redemption"},
		"bent":               {public, changed(func(p *capability.Proof) { p.Signature[0] ^= 1 }), "ref", "redemption"},
		"cut":                {public, changed(func(p *capability.Proof) { p.Signature = p.Signature[:63] }), "ref", "redemption"},
	} {
		if refused := capability.CheckProof(c.seal, c.proof, c.ref, c.redemption); fault.CodeOf(refused) != fault.Sealed {
			t.Errorf("%s: %v", name, refused)
		}
	}
	none, bent := capability.CheckProof(public, capability.Proof{}, "ref", "redemption"), capability.CheckProof(other, made, "ref", "redemption")
	if none.Message == bent.Message {
		t.Errorf("who has shown no proof is told of another key: %v", none)
	}
	// Another implementation must be able to make it: the text is part of the protocol.
	want := "\x00\x00\x00\x15mooring sealed ref v1" + "\x00\x00\x00\x20" + string(nonce) + "\x00\x00\x00\x09host:7600" +
		"\x00\x00\x00\x03ref" + "\x00\x00\x00\x0aredemption"
	if got := capability.ProofText(nonce, "host:7600", "ref", "redemption"); string(got) != want {
		t.Errorf("the signed text is %q", got)
	}
}

func TestSealKeyText(t *testing.T) {
	t.Parallel()
	public, _, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := capability.SealKeyText(public)
	if back, err := capability.ParseSealKey(text); err != nil || !back.Equal(public) || len(text) != 43 {
		t.Errorf("%q gives %v, %v", text, back, err)
	}
	for _, bad := range []string{"", text[1:], text + "A", text + "=", strings.Repeat("+", 43), text[:42] + "\n", strings.Repeat("A", 42) + "\n", "mooring://h/x#y"} {
		if _, err := capability.ParseSealKey(bad); fault.CodeOf(err) != fault.BadArgument {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

// An unseen sealed ref that fits its secret is on its way; with another secret
// it is as unknown as any.
func TestOpenOfUnseenSealedRefs(t *testing.T) {
	t.Parallel()
	address, err := capability.ParseAddress("mooring://127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	target := "ses_01J00000000000000000000000"
	sealed := address.NewSealed(target)
	if !capability.Sealed(sealed.ID) || !capability.ClientMade(sealed.ID) {
		t.Errorf("the id of a sealed ref is %s", sealed.ID)
	}
	if got := capability.Authenticate(nil, sealed.ID, sealed.Secret); fault.CodeOf(got) != fault.NotYetKnown {
		t.Errorf("unseen: %v", got)
	}
	wrong := capability.Authenticate(nil, sealed.ID, capability.NewSecret())
	strange := capability.Authenticate(nil, capability.DeriveID(target, capability.NewSecret()), capability.NewSecret())
	if fault.CodeOf(wrong) != fault.UnknownRef || wrong.Error() != strange.Error() {
		t.Errorf("with another secret: %v, an unknown one: %v", wrong, strange)
	}
	// The unsealed id of the same secret names another ref.
	if plain := capability.DeriveID(target, sealed.Secret); capability.Sealed(plain) || strings.HasSuffix(plain, sealed.ID[len(target)+2:]) {
		t.Errorf("%s and %s are alike", plain, sealed.ID)
	}
}

// A ref of a sealed one is sealed as well, to whatever key; the root of the two is free to be.
func TestNarrowKeepsTheSeal(t *testing.T) {
	t.Parallel()
	key, other := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32)
	for _, c := range []struct {
		parent, child []byte
		want          fault.Code
	}{
		{nil, nil, fault.None}, {nil, key, fault.None}, {key, key, fault.None}, {key, other, fault.None}, {key, nil, fault.Widening},
	} {
		parent := &capability.Grant{ID: "p", Target: "t", Rights: capability.SessionRights, Epoch: 1, Seal: c.parent}
		child := &capability.Grant{ID: "c", Target: "t", Parent: "p", Rights: capability.Read, Epoch: 1, Seal: c.child}
		got := fault.None
		if refused := capability.CheckWithin(parent, child); refused != nil {
			got = refused.Code
		}
		if got != c.want {
			t.Errorf("a child bound to %x of one bound to %x: %v", c.child, c.parent, got)
		}
	}
}
