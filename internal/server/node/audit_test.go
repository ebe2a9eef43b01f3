//go:build unix

// The audit as a running server writes it: refusals, strangers and expiries.

package node

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// auditOf is all of a target's audit, whose chain must be whole.
func auditOf(t testing.TB, st Store, target string) []*capability.AuditRow {
	t.Helper()
	page, err := st.ReadAudit(t.Context(), target, 0, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	chain := capability.NewChainVerifier(0)
	for _, r := range page.Rows {
		chain.Add(r.ChainRow())
	}
	if flaws := chain.End(page.Seq, page.Head); len(flaws) > 0 {
		t.Errorf("the audit of %s: %v", target, flaws)
	}
	return page.Rows
}

// oneWindow has a test over before the window is.
func oneWindow(c *Config) { c.AuditWindow = 10_000 * time.Hour }

// peerNamed is a connection to a server, as from another address.
func (r *rig) peerNamed(t testing.TB, address string) *peer {
	near, far := rpc.Pipe()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = r.server.ServeConn(fakePeerConn{far, address})
	}()
	p := newPeer(t, near)
	t.Cleanup(func() {
		p.leave()
		<-served
	})
	return p
}

type fakePeerConn struct {
	rpc.Transport
	address string
}

func (f fakePeerConn) RemoteAddr() string { return f.address }

// Each refusal of a known ref has a row with its time, op and peer.
func TestRefusalsAreKeptOneByOne(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		reader := p.share(m, "rights", []string{"read"}, "actor", "owner/reader")
		q := r.peerNamed(t, "192.0.2.9:1")
		sess, b := q.restore(reader), newBox()
		batch := b.batch(m.id, put(1), op("remove", "key", "message/msg_1"))
		q.must(q.open(sess, b), batch)
		blind := p.share(m, "rights", []string{"append"}, "actor", "owner/blind")
		for range 3 {
			_, _, err := call(t, q.restore(blind), methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
			wantCode(t, "events", err, fault.MissingRight)
		}
		promise := q.subscribing(q.restore(blind), newRecorder(), 0, 0, false)
		if _, _, err := promise.Wait(within(t)); err == nil {
			t.Error("a blind ref subscribes")
		}
		r.stop()
		var got []string
		for _, row := range auditOf(t, st, m.id) {
			if row.Act == capability.AuditDenial {
				got = append(got, fmt.Sprintf("%s %s %s %d %s", row.Actor, row.Subject, row.Reason, row.Count, row.Peer))
				if i := slices.IndexFunc(batch.Ops, func(o ledger.Intent) bool { return o.OpID == row.Op }); row.At == 0 || (row.Op != "") != (i >= 0) || (row.Actor == "owner/reader") != (i >= 0) {
					t.Errorf("%+v", row)
				}
			}
		}
		want := []string{
			"owner/reader put missing_right 1 192.0.2.9", "owner/reader remove missing_right 1 192.0.2.9",
			"owner/blind events missing_right 1 192.0.2.9", "owner/blind events missing_right 1 192.0.2.9", "owner/blind events missing_right 1 192.0.2.9",
			"owner/blind subscribe missing_right 1 192.0.2.9",
		}
		if !slices.Equal(got, want) {
			t.Errorf("refused was\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	})
}

// Redemptions of a ref without a limit are counted in the end, and leave no rows.
func TestRedemptionsWithoutEndAreCounted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, oneWindow)
		p := r.dial()
		m := r.create(p)
		ref := r.owner.New(m.id)
		g := &capability.Grant{ID: ref.ID, Target: m.id, Parent: m.owner.ID, Hash: ref.Secret.Hash(), Rights: capability.Read, Epoch: 1, Redemptions: capability.MaxCountedRedemptions - 1, Actor: "owner/all"}
		err := st.Update(t.Context(), func(tx session.Tx) error {
			if _, err := tx.Load(t.Context(), &session.ReadSet{Sessions: []string{m.id}}); err != nil {
				return err
			}
			return tx.Save(t.Context(), &session.Changes{Grants: []*capability.Grant{g}})
		})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 4 {
			if err := p.restoreErr(ref, fmt.Sprint(n)); err != nil {
				t.Fatal(err)
			}
		}
		r.stop()
		var got []string
		for _, row := range auditOf(t, st, m.id) {
			if row.Act == capability.AuditRedeem && row.Ref == ref.ID {
				got = append(got, fmt.Sprintf("%s %d× %s", row.Actor, row.Count, row.Peer))
			}
		}
		if want := []string{"owner/all 1× pipe a", "owner/all 3× "}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// What is gathered is not kept until the server stops.
func TestAuditIsWrittenWhileTheServerRuns(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, func(c *Config) { c.AuditWindow, c.SweepInterval = 20*time.Millisecond, 10*time.Millisecond })
	p := r.dial()
	m := r.create(p)
	p.must(m.stream, m.batch(put(1)))
	blind := p.share(m, "rights", []string{"append"})
	_, _, err := call(t, p.restore(blind), methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
	wantCode(t, "events", err, fault.MissingRight)
	wantCode(t, "a stranger", p.restoreErr(m.owner.With(m.owner.ID, capability.NewSecret()), ""), fault.UnknownRef)
	until.True(t, "all of it is there", func() bool {
		uses, _ := usesOf(t, st, m.owner.ID)
		found := map[string]bool{}
		for _, row := range auditOf(t, st, m.id) {
			found[row.Act.String()+" "+row.Subject] = true
		}
		return uses == 2 && found["use put"] && found["use share"] && found["denial events"] && found["stranger "]
	})
}

// Servers that share a database note each ref that runs out, once.
func TestExpiryIsAuditedOnce(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	quick := func(c *Config) { c.SweepInterval = 10 * time.Millisecond }
	one := start(t, postgresStore(t, url), quick)
	for range 2 {
		start(t, postgresStore(t, url), quick)
	}
	st := one.server.cfg.Store
	p := one.dial()
	m := one.create(p)
	soon := rowOf(t, st, m.id).Created + 3000 // they are all to be there by then
	var refs []string
	var ops []ledger.Intent // together, so that none runs out before the last is there
	share := func(expires int64) string {
		ref := m.owner.New(m.id)
		ops = append(ops, op("share", "ref", ref.ID, "hash", hashText(ref.Secret), "rights", []string{"read"}, "expires_at", expires, "actor", "owner/guest"))
		return ref.ID
	}
	for range 20 {
		refs = append(refs, share(soon))
	}
	revoked := share(soon)
	ops = append(ops, op("revoke", "ref", revoked))
	share(soon + 1_000_000)
	if ack := p.must(m.stream, m.batch(ops...)); ack.applied != 23 {
		t.Fatalf("%+v", ack)
	}
	expired := func() (ids []string) {
		for _, row := range auditOf(t, st, m.id) {
			if row.Act == capability.AuditExpiry {
				ids = append(ids, row.Ref)
				if row.At != soon || row.Actor != "owner/guest" || row.Cursor != 24 {
					t.Errorf("noted as %+v", row)
				}
			}
		}
		slices.Sort(ids)
		return ids
	}
	until.True(t, "all are noted", func() bool { return len(expired()) >= len(refs) })
	one.stop()
	slices.Sort(refs)
	if got := expired(); !slices.Equal(got, refs) {
		t.Errorf("%d expiries are noted, %d refs have expired", len(got), len(refs))
	}
}

func TestAuditHasDenialsAndCountsOfStrangers(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, oneWindow)
	p := r.dial()
	m := r.create(p)
	forged := m.owner.With(m.owner.ID, capability.NewSecret())
	for range 7 {
		wantCode(t, "a stranger", p.restoreErr(forged, ""), fault.UnknownRef)
	}
	blind := p.share(m, "rights", []string{"append"}, "actor", "owner/blind")
	_, _, err := call(t, p.restore(blind), methods.SessionEvents.Method, methods.SessionEvents.Params, nil)
	wantCode(t, "a denial", err, fault.MissingRight)
	r.stop()
	page, err := st.ReadAudit(t.Context(), m.id, 0, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := map[capability.AuditAct]*capability.AuditRow{}
	for _, row := range page.Rows {
		found[row.Act] = row
	}
	if s := found[capability.AuditStranger]; s == nil || s.Count != 7 || s.Reason != fault.UnknownRef {
		t.Errorf("strangers: %+v", s)
	}
	if d := found[capability.AuditDenial]; d == nil || d.Ref != blind.ID || d.Reason != fault.MissingRight || d.Actor != "owner/blind" || d.Subject != "events" {
		t.Errorf("the denial: %+v", d)
	}
	if found[capability.AuditRedeem] == nil || found[capability.AuditShare] == nil {
		t.Errorf("no redeem or share among %d rows", len(page.Rows))
	}
}

// A dead ref's holder may send for ever on a stream that is there. Each denial is in the audit,
// with a row of its own as long as they are not too many.
func TestDenialsOfAStreamLeaveFewRows(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, func(c *Config) { c.AuditWindow = time.Hour })
	p := r.dial()
	m := r.create(p)
	ref, b := p.share(m, "rights", []string{"append"}), newBox()
	stream := p.open(p.restore(ref), b)
	p.must(m.stream, m.batch(op("revoke", "ref", ref.ID)))
	const batches, ops = 40, 40
	for range batches {
		all := make([]ledger.Intent, ops)
		for i := range all {
			all[i] = op("remove", "key", "message/none")
		}
		batch := b.batch(m.id, all...)
		batch.AckedThrough = b.seq - ops
		p.must(stream, batch)
	}
	r.stop()
	rows, denials := 0, 0
	for seq := uint64(0); ; {
		page, err := st.ReadAudit(t.Context(), m.id, seq, 500, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			if row.Act == capability.AuditDenial && row.Reason == fault.Revoked && row.Subject != "restore" {
				rows, denials = rows+1, denials+int(max(row.Count, 1))
			}
			seq = row.Seq
		}
		if len(page.Rows) == 0 {
			break
		}
	}
	if rows > 1000+1 || denials != batches*ops {
		t.Errorf("%d rows of %d denials, of which there were %d", rows, denials, batches*ops)
	}
}
