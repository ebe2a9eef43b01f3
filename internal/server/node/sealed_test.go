//go:build unix

// Sealed refs as a peer meets them: the challenge, the proof, and what is
// refused without one.

package node

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// audience is one of those of the tests' servers.
const audience = "mooring.example:7600"

func newKey(t testing.TB) ed25519.PrivateKey {
	t.Helper()
	_, key, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// shareSealed is share for a ref that is bound to key.
func (p *peer) shareSealed(m *made, key ed25519.PrivateKey, args ...any) capability.Ref {
	p.t.Helper()
	ref := m.owner.NewSealed(m.id)
	args = append([]any{"ref", ref.ID, "hash", hashText(ref.Secret), "seal", capability.SealKeyText(key.Public().(ed25519.PublicKey))}, args...)
	r := p.must(m.stream, m.batch(op("share", args...)))
	if r.outcomes[0].Status != ledger.Applied {
		p.t.Fatalf("share: %+v", r.outcomes[0])
	}
	return ref
}

// challenge asks for a nonce.
func (p *peer) challenge() []byte {
	p.t.Helper()
	s, _, err := call(p.t, p.gateway, methods.GatewayChallenge.Method, methods.GatewayChallenge.Params, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	nonce, err := wire.Gateway_challenge_Results(s).Nonce()
	if err != nil || len(nonce) != capability.NonceBytes {
		p.t.Fatalf("a challenge of %d bytes, %v", len(nonce), err)
	}
	return bytes.Clone(nonce)
}

// proving is restoring with a proof.
func (p *peer) proving(ref capability.Ref, redemption string, proof capability.Proof) *rpc.Promise {
	return p.gateway.Call(within(p.t), methods.GatewayRestore.Method, methods.GatewayRestore.Params, func(s capnp.Struct, _ *rpc.CapTable) error {
		params := wire.Gateway_restore_Params(s)
		var w fieldWriter
		sturdy, err := params.NewRef()
		w.do(err)
		w.do(sturdy.SetId(ref.ID))
		w.do(sturdy.SetSecret(ref.Secret.Reveal()))
		w.do(params.SetRedemption(redemption))
		shown, err := params.NewProof()
		w.do(err)
		w.data(shown.SetNonce, proof.Nonce)
		w.text(shown.SetAudience, proof.Audience)
		w.data(shown.SetSignature, proof.Signature)
		return w.err
	})
}

// proveErr is what restoring with a proof ends with; reason is the exception's whole text.
func (p *peer) proveErr(ref capability.Ref, redemption string, proof capability.Proof) (reason string, err error) {
	_, _, err = p.proving(ref, redemption, proof).Wait(within(p.t))
	var ex *rpc.Exception
	if errors.As(err, &ex) {
		reason = ex.Type.String() + ": " + ex.Reason
		if f, ok := fault.ParseReason(ex.Reason); ok {
			err = f
		}
	}
	return reason, err
}

func TestSealedRefTakesAProof(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		var ahead atomic.Int64
		r := start(t, st, func(c *Config) {
			c.Audiences = []string{"127.0.0.1:1", audience}
			c.Now = func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		})
		p, elsewhere := r.dial(), r.dial()
		m := r.create(p)
		key, other := newKey(t), newKey(t)
		ref := p.shareSealed(m, key, "rights", []string{"read", "append", "share"}, "redemptions", 1, "actor", "owner/sealed")
		proof := func(key ed25519.PrivateKey, audience, redemption string) capability.Proof {
			return capability.Prove(key, p.challenge(), audience, ref.ID, redemption)
		}
		stale := proof(key, audience, "one")
		ahead.Add(int64(time.Minute))
		_, late := p.proveErr(ref, "one", stale)
		wantCode(t, "a minute late", late, fault.Sealed)

		for name, proof := range map[string]capability.Proof{
			"no proof":             {},
			"another key":          proof(other, audience, "one"),
			"another redemption":   proof(key, audience, "two"),
			"another server":       proof(key, "evil.example:7600", "one"),
			"no nonce":             capability.Prove(key, nil, audience, ref.ID, "one"),
			"a nonce of its own":   capability.Prove(key, make([]byte, capability.NonceBytes), audience, ref.ID, "one"),
			"another connection's": capability.Prove(key, elsewhere.challenge(), audience, ref.ID, "one"),
		} {
			_, err := p.proveErr(ref, "one", proof)
			wantCode(t, name, err, fault.Sealed)
		}
		wantCode(t, "restore without the field", p.restoreErr(ref, "one"), fault.Sealed)

		// None of this counts as a redemption: the only one is there still.
		good := proof(key, audience, "one")
		restored := p.proving(ref, "one", good)
		info, grant := describe(t, restored.Cap(0))
		if seal, _ := grant.Seal(); grant.Used() != 1 || info.Cursor() != 2 || !bytes.Equal(seal, key.Public().(ed25519.PublicKey)) {
			t.Errorf("redeemed %d times, at cursor %d, bound to %x", grant.Used(), info.Cursor(), seal)
		}
		_, again := p.proveErr(ref, "one", good)
		wantCode(t, "a proof once more", again, fault.Sealed)
		_, err := p.proveErr(ref, "one", proof(key, "MOORING.example:7600", "one"))
		if err != nil {
			t.Errorf("a host in capitals: %v", err)
		}
		_, err = p.proveErr(ref, "two", proof(key, audience, "two"))
		wantCode(t, "a second redemption", err, fault.Exhausted)

		_, _, err = call(t, restored.Cap(0), methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
		wantCode(t, "save", err, fault.Widening)

		// A dead one is no different: what killed it learns who has the key.
		p.must(m.stream, m.batch(op("revoke", "ref", ref.ID)))
		wantCode(t, "dead, without a proof", p.restoreErr(ref, "one"), fault.Sealed)
		_, grant = describe(t, p.proving(ref, "one", proof(key, audience, "one")).Cap(0))
		if fault.Code(grant.Dead()) != fault.Revoked {
			t.Errorf("dead of %v", fault.Code(grant.Dead()))
		}

		// An unseen one fits its secret, or is unknown.
		unseen := m.owner.NewSealed(m.id)
		wantCode(t, "unseen", p.restoreErr(unseen, ""), fault.NotYetKnown)
		wantCode(t, "unseen, another secret", p.restoreErr(unseen.With(unseen.ID, capability.NewSecret()), ""), fault.UnknownRef)
		r.stop()
		if n := refusalsOf(t, st, m.id, ref.ID)[fault.Sealed]; n != 11 {
			t.Errorf("%d refused proofs in the audit", n)
		}
	})
}

// refusalsOf counts the denials of a ref in a session's audit.
func refusalsOf(t *testing.T, st Store, target, ref string) map[fault.Code]uint32 {
	t.Helper()
	page, err := st.(interface {
		ReadAudit(ctx context.Context, target string, after uint64, limit int, refs []string) (*session.AuditPage, error)
	}).ReadAudit(t.Context(), target, 0, 1000, nil)
	if err != nil {
		t.Fatal(err)
	}
	n := map[fault.Code]uint32{}
	for _, row := range page.Rows {
		if row.Ref == ref && (row.Act == capability.AuditDenial || row.Act == capability.AuditStranger) {
			n[row.Reason] += row.Count
		}
	}
	return n
}

// A stranger learns the same whether a ref is there or not, is sealed or not, and
// whatever comes along with it; so does whoever reads the audit.
func TestUnknownAndWrongAreOne(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.Audiences, c.WrongTries = []string{audience}, 100 })
		p := r.dial()
		m := r.create(p)
		key := newKey(t)
		plain := p.share(m, "rights", []string{"read"})
		sealed := p.shareSealed(m, key, "rights", []string{"read"})
		dead := p.share(m, "rights", []string{"read"})
		p.must(m.stream, m.batch(op("revoke", "ref", dead.ID)))
		reasons := map[string][]string{}
		for name, ref := range map[string]capability.Ref{
			"an unsealed one": plain, "a sealed one": sealed, "a dead one": dead, "the owner's": m.owner, "the space's": r.owner,
			"an unknown one": m.owner.New(m.id), "an unknown sealed one": m.owner.NewSealed(m.id),
			"an unknown session's": m.owner.New("ses_01J00000000000000000000000"), "a server's": m.owner.With(m.id+".s01J00000000000000000000000", m.owner.Secret),
			"no id at all": m.owner.With("nonsense", m.owner.Secret),
		} {
			for _, wrong := range []capability.Ref{ref.With(ref.ID, capability.NewSecret()), ref.With(ref.ID, plain.Secret)} {
				if name == "an unsealed one" && wrong.Secret.Equal(plain.Secret) {
					continue
				}
				for _, proof := range []capability.Proof{{}, capability.Prove(key, p.challenge(), audience, ref.ID, "x")} {
					reason, _ := p.proveErr(wrong, "x", proof)
					reasons[reason] = append(reasons[reason], name)
				}
			}
		}
		if len(reasons) != 1 {
			t.Errorf("there are %d different answers: %q", len(reasons), reasons)
		}
		for reason := range reasons {
			f, _ := fault.ParseReason(reason[len("failed: "):])
			wantCode(t, "a wrong ref", f, fault.UnknownRef)
		}
		r.stop()
		for _, ref := range []capability.Ref{plain, sealed, dead} {
			if n := refusalsOf(t, st, m.id, ref.ID); len(n) != 1 || n[fault.UnknownRef] < 2 {
				t.Errorf("the audit of wrong secrets: %v", n)
			}
		}
	})
}
