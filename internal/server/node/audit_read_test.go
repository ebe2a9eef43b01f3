//go:build unix

// Who may read an audit, and what of it.

package node

import (
	"slices"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/batchtest"
	"github.com/mooring-rpc/mooring/rpc"
)

// readAuditPage calls Session.audit or Space.audit.
func readAuditPage(t testing.TB, of *rpc.Ref, method rpc.Method, after uint64, limit uint32) (seqs []uint64, end uint64, err error) {
	t.Helper()
	s, _, err := call(t, of, method, batchtest.StructSize(2, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
		wire.Session_audit_Params(s).SetAfter(after)
		wire.Session_audit_Params(s).SetLimit(limit)
		return nil
	})
	if err != nil {
		return nil, 0, err
	}
	page, err := wire.Session_audit_Results(s).Page()
	if err != nil {
		t.Fatal(err)
	}
	rows, err := page.Rows()
	if err != nil {
		t.Fatal(err)
	}
	for i := range rows.Len() {
		seqs = append(seqs, rows.At(i).Seq())
	}
	return seqs, page.Seq(), nil
}

func TestAuditRights(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		share := p.share(m, "rights", []string{"read", "append", "share", "revoke"}, "actor", "owner/all")
		_, _, err := readAuditPage(t, p.restore(share), methods.SessionAudit.Method, 0, 0)
		wantCode(t, "a share", err, fault.NotAnOwner)
		dead := p.share(m, "rights", []string{"read"})
		p.must(m.stream, m.batch(op("revoke", "ref", dead.ID)))
		_, _, err = readAuditPage(t, p.restore(dead), methods.SessionAudit.Method, 0, 0)
		wantCode(t, "a dead ref", err, fault.Revoked)
		for _, sess := range []*rpc.Ref{p.restore(m.owner), m.sess} { // m.sess came from Space.create
			first, end, err := readAuditPage(t, sess, methods.SessionAudit.Method, 0, 2)
			if err != nil || !slices.Equal(first, []uint64{1, 2}) || end < 4 {
				t.Errorf("the first page: %v of %d, %v", first, end, err)
			}
			rest, _, err := readAuditPage(t, sess, methods.SessionAudit.Method, 2, 1<<30)
			if err != nil || len(rest) < 2 || rest[0] != 3 {
				t.Errorf("the rest: %v, %v", rest, err)
			}
		}
		if beyond, _, err := readAuditPage(t, m.sess, methods.SessionAudit.Method, 1<<63, 0); err != nil || len(beyond) != 0 {
			t.Errorf("beyond the end: %v, %v", beyond, err)
		}

		space := p.restore(r.owner)
		if rows, _, err := readAuditPage(t, space, methods.SpaceAudit.Method, 0, 0); err != nil || len(rows) == 0 {
			t.Errorf("the space's root ref: %v, %v", rows, err)
		}
		saved, _, err := call(t, space, methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
		if err != nil {
			t.Fatal(err)
		}
		ptr, err := saved.Ptr(0)
		if err != nil {
			t.Fatal(err)
		}
		sturdy := wire.SturdyRef(ptr.Struct())
		id, _ := sturdy.Id()
		raw, _ := sturdy.Secret()
		secret, err := capability.SecretFrom(raw)
		if err != nil {
			t.Fatal(err)
		}
		_, _, err = readAuditPage(t, p.restore(r.owner.With(id, secret)), methods.SpaceAudit.Method, 0, 0)
		wantCode(t, "a ref made from the space's", err, fault.MissingRight)
		r.stop()
		refused := 0
		for _, target := range []string{m.id, r.owner.Target()} {
			for _, row := range auditOf(t, st, target) {
				if row.Act == capability.AuditDenial && row.Subject == "audit" {
					refused++
				}
			}
		}
		if refused != 3 {
			t.Errorf("%d refusals of audits are audited, want 3", refused)
		}
	})
}
