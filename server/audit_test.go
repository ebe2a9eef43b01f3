//go:build unix

// The audit as a running server writes it: uses, refusals, expiries and whence
// they came; and who may read it.

package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
	"github.com/mooring-rpc/mooring/session"
)

// auditOf is all of a target's audit, whose chain must be whole.
func auditOf(t testing.TB, st Store, target string) []*capability.AuditRow {
	t.Helper()
	page, err := st.ReadAudit(t.Context(), target, 0, 1<<20, nil)
	if err != nil {
		t.Fatal(err)
	}
	chain := capability.NewChain(0)
	for _, r := range page.Rows {
		chain.Add(r.Link())
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
		_ = r.server.ServeConn(from{far, address})
	}()
	p := newPeer(t, near)
	t.Cleanup(func() {
		p.leave()
		<-served
	})
	return p
}

type from struct {
	rpc.Transport
	address string
}

func (f from) RemoteAddr() string { return f.address }

func TestUsesAreCountedByRefActorAndMethod(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, oneWindow)
		p, q := r.peerNamed(t, "192.0.2.1:7"), r.peerNamed(t, "[2001:db8::5]:99")
		m := r.create(p)
		p.must(m.stream, m.batch(put(1), put(2), put(3), op("remove", "key", "message/msg_1")))
		p.must(m.stream, m.batch(put(4), op("put", "key", "no such key", "payload", 1)))
		again := m.batch(put(5))
		p.must(m.stream, again)
		p.must(m.stream, again)
		reader := p.share(m, "rights", []string{"read"}, "actor", "owner/reader")
		sess, own := q.restore(reader), p.restore(reader)
		for _, s := range []*rpc.Ref{sess, sess, own} {
			if _, _, err := call(t, s, sessionEvents, words(2, 0), nil); err != nil {
				t.Fatal(err)
			}
		}
		k := newRecorder()
		t.Cleanup(q.subscribe(sess, k, 0).Release)
		snapshot := newRecorder()
		if _, _, err := q.snapshotting(sess, snapshot); err != nil {
			t.Fatal(err)
		}
		withState := newRecorder()
		promise := q.subscribing(sess, withState, 0, 0, true)
		if _, _, err := promise.Wait(within(t)); err != nil {
			t.Fatal(err)
		}
		defer promise.Release()
		if _, _, err := call(t, sess, sessionDescribe, words(0, 0), nil); err != nil {
			t.Fatal(err)
		}
		r.stop()

		var got []string
		for _, target := range []string{m.id, r.owner.Target()} {
			for _, row := range auditOf(t, st, target) {
				if row.Act == capability.AuditUse {
					got = append(got, fmt.Sprintf("%s %q %d× from %s", row.Subject, row.Actor, row.Count, row.Peer))
					if row.At == 0 || target == m.id && row.Subject == "put" && row.Cursor != 7 {
						t.Errorf("row %+v", row)
					}
				}
			}
		}
		slices.Sort(got)
		want := []string{
			`create "" 1× from 192.0.2.1`, `describe "owner/reader" 1× from 2001:db8::5`, `events "owner/reader" 3× from `,
			`put "owner" 5× from 192.0.2.1`, `remove "owner" 1× from 192.0.2.1`, `share "owner" 1× from 192.0.2.1`,
			`snapshot "owner/reader" 2× from 2001:db8::5`, `subscribe "owner/reader" 2× from 2001:db8::5`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("uses are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		for ref, want := range map[string]uint64{m.owner.ID: 7, reader.ID: 8, r.owner.ID: 1} {
			if count, last := usesOf(t, st, ref); count != want || last == 0 {
				t.Errorf("%d uses of %s are counted, want %d; the last was at %d", count, ref, want, last)
			}
		}
	})
}

// usesOf is what is counted of a ref.
func usesOf(t *testing.T, st Store, ref string) (count uint64, last int64) {
	t.Helper()
	page, err := st.ReadTree(t.Context(), "", ref, "", 1, nil)
	if err != nil || len(page.Rows) == 0 {
		t.Fatalf("the tree below %s: %+v, %v", ref, page, err)
	}
	return page.Rows[0].Uses, page.Rows[0].Last
}

// snapshotting sends the state to k and waits.
func (p *peer) snapshotting(sess *rpc.Ref, k *recorder) (capnp.Struct, *rpc.Promise, error) {
	sink := rpc.NewLocal(k)
	defer sink.Release()
	return call(p.t, sess, sessionSnapshot, words(1, 1), func(s capnp.Struct, caps *rpc.CapTable) error { return caps.Set(s, 0, sink) })
}

// clerk takes audit rows and uses, and fails when it is told to.
type clerk struct {
	Store
	mu    sync.Mutex
	away  bool
	rows  []*capability.AuditRow
	uses  map[string]uint64
	tries int
}

func (c *clerk) Audit(_ context.Context, _ capability.Page, rows []*capability.AuditRow) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return fault.Unavailable.With("away")
	}
	c.rows = append(c.rows, rows...)
	return nil
}

func (c *clerk) Used(_ context.Context, _ capability.Page, uses []capability.Uses) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tries++; c.away {
		return fault.Unavailable.With("away")
	}
	for _, u := range uses {
		c.uses[u.Ref] += u.Count
	}
	return nil
}

// deaf writes, and does not hear that it has: its link breaks in the commit.
type deaf struct {
	Store
	times atomic.Int32 // more, that it hears nothing
}

func (d *deaf) heard(err error) error {
	if err == nil && d.times.Add(-1) >= 0 {
		return fault.Unavailable.With("the link broke in the commit")
	}
	return err
}

func (d *deaf) Audit(ctx context.Context, page capability.Page, rows []*capability.AuditRow) error {
	return d.heard(d.Store.Audit(ctx, page, rows))
}

func (d *deaf) Used(ctx context.Context, page capability.Page, uses []capability.Uses) error {
	return d.heard(d.Store.Used(ctx, page, uses))
}

// What has been written and may not have been is written again, and there once.
func TestNothingIsCountedTwice(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		d := &deaf{Store: st}
		r := start(t, d, oneWindow)
		p := r.dial()
		m := r.create(p)
		blind := p.share(m, "rights", []string{"append"})
		p.must(m.stream, m.batch(put(1), put(2), put(3)))
		_, _, err := call(t, p.restore(blind), sessionEvents, words(2, 0), nil)
		wantCode(t, "events", err, fault.MissingRight)
		for range 4 {
			d.times.Store(3) // each of those who write
			r.server.writeAudit(true)
		}
		p.must(m.stream, m.batch(put(4)))
		r.stop()
		got := map[string]uint32{}
		for _, row := range auditOf(t, st, m.id) {
			got[row.Act.String()+" "+row.Subject] += row.Count
		}
		if got["use put"] != 4 || got["use share"] != 1 || got["denial events"] != 1 {
			t.Errorf("audited is %v", got)
		}
		if count, _ := usesOf(t, st, m.owner.ID); count != 5 {
			t.Errorf("%d uses are counted, want 5", count)
		}
	})
}

// One row a window; the table of uses earlier; a database that is away costs
// nothing but time.
func TestUsesAreWrittenWhenTheirWindowIsOver(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(600_000)
	c := &clerk{uses: map[string]uint64{}}
	cfg := Config{Store: c, Now: func() time.Time { return now }}.withDefaults()
	u := newUsage(cfg)
	ref := capability.ServerID(capability.SessionPrefix+ulid.Make().String(), ulid.Make())
	put := session.Use{Ref: ref, Actor: "owner", Method: "put", Count: 2}
	step := func(d time.Duration, rows int, counted uint64) {
		t.Helper()
		now = now.Add(d)
		u.flush(t.Context(), false)
		if len(c.rows) != rows || c.uses[ref] != counted {
			t.Fatalf("at %v: %d rows, %d uses counted; want %d and %d", now.UnixMilli(), len(c.rows), c.uses[ref], rows, counted)
		}
	}
	u.used("a", 3, put)
	step(5*time.Second, 0, 2)
	u.used("a", 4, put, session.Use{Ref: ref, Actor: "owner", Method: "remove", Count: 1})
	step(5*time.Second, 0, 5)
	step(time.Minute, 2, 5)
	if r := c.rows[0]; r.Count != 4 || r.Cursor != 4 || r.Peer != "a" || r.At != 605_000 || r.Subject != "put" && r.Subject != "remove" {
		if c.rows[1].Count != 4 {
			t.Errorf("rows are %+v, %+v", r, c.rows[1])
		}
	}
	u.used("a", 5, put)
	c.away = true
	step(2*time.Minute, 2, 5)
	u.used("b", 6, put)
	step(2*time.Minute, 2, 5)
	c.away = false
	step(time.Second, 4, 9)
	u.used("b", 7, put)
	u.flush(t.Context(), true) // the server stops
	if len(c.rows) != 5 || c.uses[ref] != 11 {
		t.Errorf("at the end %d rows, %d uses", len(c.rows), c.uses[ref])
	}
}

// Counting must not cost what it counts. It is not parallel: it measures.
func TestCountingUsesAllocatesNothing(t *testing.T) {
	u := newUsage(Config{Store: &clerk{}}.withDefaults())
	uses := []session.Use{{Ref: "ses_1.sX", Actor: "owner", Method: "put", Count: 1}, {Ref: "ses_1.sX", Actor: "owner", Method: "remove", Count: 1}}
	u.used("a", 1, uses...)
	if n := testing.AllocsPerRun(1000, func() { u.used("a", 2, uses...) }); n > 0 {
		t.Errorf("counting allocates %v times", n)
	}
}

// However many refs are used while nothing can be written, memory is bounded
// and every use is counted somewhere.
func TestUsesAreBoundedAndNoneIsLost(t *testing.T) {
	t.Parallel()
	c := &clerk{uses: map[string]uint64{}, away: true}
	cfg := Config{Store: c}.withDefaults()
	u := newUsage(cfg)
	target, total := capability.SessionPrefix+ulid.Make().String(), uint64(0)
	for i := range 6 * usesKept {
		n := 1 + rand.Uint32N(3)
		u.used("a", 1, session.Use{Ref: fmt.Sprintf("%s.%d", target, i), Method: "put", Count: n})
		total += uint64(n)
		if i%usesKept == 17 {
			u.flush(t.Context(), false)
		}
	}
	if held := len(u.now) + len(u.over) + len(u.owed) + len(u.counts.rows) + len(u.rows.rows); held > 8*usesKept {
		t.Errorf("%d things are held", held)
	}
	select {
	case <-u.full:
	default:
		t.Error("nobody is told that a window ended early")
	}
	c.away = false
	u.flush(t.Context(), true)
	var rows, uses uint64
	for _, r := range c.rows {
		rows += uint64(r.Count)
	}
	for _, n := range c.uses {
		uses += n
	}
	if rows != total || uses != total {
		t.Errorf("%d uses are audited as %d and counted as %d", total, rows, uses)
	}
}

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
			_, _, err := call(t, q.restore(blind), sessionEvents, words(2, 0), nil)
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

// Whoever asks on and on under a dead ref gets a few rows a window, and a count.
func TestFloodOfDenialsIsAFewRows(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(600_000)
	c := &clerk{}
	a := newAuditor(Config{Store: c, Now: func() time.Time { return now }}.withDefaults())
	ref := capability.ServerID(capability.SessionPrefix+ulid.Make().String(), ulid.Make())
	flood := func(kinds, each int) {
		for i := range kinds {
			for range each {
				a.denied(capability.AuditRow{Act: capability.AuditDenial, Ref: ref, Subject: "events", Reason: fault.Revoked, Peer: fmt.Sprint(i)})
			}
		}
	}
	written := func(what string, rows int, denials uint32) {
		t.Helper()
		var n uint32
		for _, r := range c.rows {
			n += r.Count
		}
		if len(c.rows) != rows || n != denials {
			t.Errorf("%s: %d denials in %d rows, want %d in %d", what, n, len(c.rows), denials, rows)
		}
	}
	for range 10 { // rounds of account, in one window
		flood(1, 1000)
		a.flush(t.Context(), false)
		now = now.Add(time.Second)
	}
	written("in the window", denialsSingly, denialsSingly)
	now = now.Add(time.Minute)
	a.flush(t.Context(), false)
	written("when it is over", denialsSingly+1, 10_000)
	flood(1, 1)
	a.flush(t.Context(), false)
	written("in the next", denialsSingly+2, 10_001)

	c.rows = nil
	for range 10 {
		flood(10*auditKinds, 1) // from everywhere
		a.flush(t.Context(), false)
	}
	written("of many kinds", auditKinds-1, auditKinds-1)
	now = now.Add(time.Minute)
	a.flush(t.Context(), false)
	written("of many kinds, counted", 2*auditKinds, 100*auditKinds)
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
	_, _, err := call(t, p.restore(blind), sessionEvents, words(2, 0), nil)
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

// Strangers are counted by the address they come from.
func TestStrangersAreCountedByAddress(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, nil)
	m := r.create(r.dial())
	for i, address := range []string{"192.0.2.1:1", "192.0.2.1:2", "[2001:db8::1]:3"} {
		p := r.peerNamed(t, address)
		for range i + 1 {
			wantCode(t, "a stranger", p.restoreErr(m.owner.With(m.owner.ID, capability.NewSecret()), ""), fault.UnknownRef)
		}
	}
	r.stop()
	counts := map[string]uint32{}
	for _, row := range auditOf(t, st, m.id) {
		if row.Act == capability.AuditStranger {
			counts[row.Peer] += row.Count
		}
	}
	if fmt.Sprint(counts) != "map[192.0.2.1:3 2001:db8::1:3]" {
		t.Errorf("strangers: %v", counts)
	}
}

func TestPeerNames(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:443": "192.0.2.1", "[2001:db8::5]:1": "2001:db8::5", "[::ffff:192.0.2.1]:1": "192.0.2.1", "[fe80::1%eth0]:1": "fe80::1",
		"unix:/run/secret/place": "unix", "stream": "stream", "": "", "x\x00y": "", strings.Repeat("x", 65): "",
	} {
		if got := peerName(remote); got != want {
			t.Errorf("%q is %q, want %q", remote, got, want)
		}
	}
}

// Every row says whence it came: over a byte stream on TCP, and over a Unix socket.
func TestRowsHaveTheirPeer(t *testing.T) {
	t.Parallel()
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for want, ln := range map[string]net.Listener{"127.0.0.1": tcp, "unix": socket(t)} {
		st := sqliteStore(t)
		r := startOn(t, st, nil, ln)
		c, err := net.Dial(ln.Addr().Network(), ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		p := newPeer(t, rpc.NewStreamTransport(c))
		m := r.create(p)
		ref := p.share(m, "rights", []string{"read"})
		sess := p.restore(m.owner)
		saved, _, err := call(t, sess, persistentSave, words(0, 1), nil)
		if err != nil || !saved.IsValid() {
			t.Fatal(err)
		}
		for _, epoch := range []bool{false, true} {
			if _, _, err := call(t, sess, sessionRevoke, words(1, 1), func(s capnp.Struct, _ *rpc.CapTable) error {
				wire.Session_revoke_Params(s).SetEpoch(epoch)
				return wire.Session_revoke_Params(s).SetRef(ref.ID)
			}); err != nil {
				t.Fatal(err)
			}
		}
		_, _, _ = call(t, p.restore(ref), sessionEvents, words(2, 0), nil)
		wantCode(t, "a stranger", p.restoreErr(m.owner.With(m.owner.ID, capability.NewSecret()), ""), fault.UnknownRef)
		r.stop()
		acts := map[capability.AuditAct]bool{}
		for _, row := range auditOf(t, st, m.id) {
			acts[row.Act] = true
			if row.Peer != want {
				t.Errorf("%s from %q, want %q", row.Act, row.Peer, want)
			}
		}
		for act := capability.AuditRedeem; act <= capability.AuditUse; act++ {
			if !acts[act] {
				t.Errorf("over %s no %s is audited", want, act)
			}
		}
	}
}

// readAuditPage calls Session.audit or Space.audit.
func readAuditPage(t testing.TB, of *rpc.Ref, method rpc.Method, after uint64, limit uint32) (seqs []uint64, end uint64, err error) {
	t.Helper()
	s, _, err := call(t, of, method, words(2, 0), func(s capnp.Struct, _ *rpc.CapTable) error {
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

func TestWhoMayReadAudits(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		share := p.share(m, "rights", []string{"read", "append", "share", "revoke"}, "actor", "owner/all")
		_, _, err := readAuditPage(t, p.restore(share), sessionAudit, 0, 0)
		wantCode(t, "a share", err, fault.NotAnOwner)
		dead := p.share(m, "rights", []string{"read"})
		p.must(m.stream, m.batch(op("revoke", "ref", dead.ID)))
		_, _, err = readAuditPage(t, p.restore(dead), sessionAudit, 0, 0)
		wantCode(t, "a dead ref", err, fault.Revoked)
		for _, sess := range []*rpc.Ref{p.restore(m.owner), m.sess} { // m.sess came from Space.create
			first, end, err := readAuditPage(t, sess, sessionAudit, 0, 2)
			if err != nil || !slices.Equal(first, []uint64{1, 2}) || end < 4 {
				t.Errorf("the first page: %v of %d, %v", first, end, err)
			}
			rest, _, err := readAuditPage(t, sess, sessionAudit, 2, 1<<30)
			if err != nil || len(rest) < 2 || rest[0] != 3 {
				t.Errorf("the rest: %v, %v", rest, err)
			}
		}
		if beyond, _, err := readAuditPage(t, m.sess, sessionAudit, 1<<63, 0); err != nil || len(beyond) != 0 {
			t.Errorf("beyond the end: %v, %v", beyond, err)
		}

		space := p.restore(r.owner)
		if rows, _, err := readAuditPage(t, space, spaceAudit, 0, 0); err != nil || len(rows) == 0 {
			t.Errorf("the space's root ref: %v, %v", rows, err)
		}
		saved, _, err := call(t, space, persistentSave, words(0, 1), nil)
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
		_, _, err = readAuditPage(t, p.restore(r.owner.With(id, secret)), spaceAudit, 0, 0)
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
	soon := rowOf(t, st, m.id).Created + 500
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
