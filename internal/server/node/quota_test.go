//go:build unix

// Quotas, from outside.

package node

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
)

// large is a put of so many bytes.
func large(key string, bytes int) ledger.Intent {
	return op("put", "key", key, "payload", map[string]string{"text": strings.Repeat("x", bytes)})
}

// A batch that would exceed a quota consumes no seq, and goes through once there is room.
func TestQuotaIsReportedAndLifted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) {
			c.Session = decide.DefaultConfig()
			c.Session.Limits.SessionBytes, c.Session.Limits.RefBytes = 40_000, 20_000
		})
		p := r.dial()
		m := r.create(p)
		guest := p.share(m, "rights", []string{"read", "append", "share"})
		b := newBox()
		sess := p.restore(guest)
		stream := p.open(sess, b)
		p.must(stream, b.batch(m.id, large("message/a", 15_000)))
		waits := b.batch(m.id, large("message/b", 10_000))
		for range 2 {
			wantRefusal(t, "beyond the ref's", p.apply(stream, waits), fault.QuotaExceeded, 0)
		}
		if ack := p.must(m.stream, m.batch(large("message/c", 20_000))); ack.applied != 1 {
			t.Fatalf("the owner's: %+v", ack.outcomes)
		}
		wantRefusal(t, "beyond the session's", p.apply(m.stream, m.batch(large("message/d", 10_000))), fault.QuotaExceeded, 0)
		m.box.seq--
		if ack := p.must(m.stream, m.batch(op("purge", "key", "message/a"))); ack.applied != 1 {
			t.Fatalf("%+v", ack.outcomes)
		}
		if ack := p.must(stream, waits); ack.applied != 1 || ack.duplicates != 0 {
			t.Fatalf("what waited: %+v", ack.outcomes)
		}
		// What is saved counts for the ref, too.
		for n := 0; ; n++ {
			_, _, err := call(t, r.dial().restore(guest), methods.PersistentSave.Method, methods.PersistentSave.Params, nil)
			if fault.CodeOf(err) == fault.QuotaExceeded && n > 10 {
				break
			}
			if err != nil || n > 100 {
				t.Fatalf("saved %d times: %v", n, err)
			}
		}
	})
}

// What is counted too high, since values were replaced whose events are gone, is measured when
// a quota is met.
func TestUsageIsMeasuredAtAQuota(t *testing.T) {
	t.Parallel()
	st := sqliteStore(t)
	r := start(t, st, func(c *Config) {
		c.Session = decide.DefaultConfig()
		c.Session.Limits.SessionBytes, c.SweepInterval = 40_000, 10*time.Millisecond
	})
	p := r.dial()
	m := r.create(p)
	row := rowOf(t, st, m.id)
	row.Bytes = 39_000
	recount(t, st, row)
	waits := m.batch(large("message/a", 10_000))
	wantRefusal(t, "as it is counted", p.apply(m.stream, waits), fault.QuotaExceeded, 0)
	until.True(t, "it is measured", func() bool { return rowOf(t, st, m.id).Bytes != row.Bytes })
	if ack := p.must(m.stream, waits); ack.applied != 1 {
		t.Errorf("as it is measured: %+v", ack.outcomes)
	}
}

// recount writes a session's row.
func recount(t *testing.T, st Store, row *session.Row) {
	t.Helper()
	err := st.Update(t.Context(), func(tx session.Tx) error {
		if _, err := tx.Load(t.Context(), &session.ReadSet{Sessions: []string{row.ID}}); err != nil {
			return err
		}
		return tx.Save(t.Context(), &session.Changes{Sessions: []*session.Row{row}})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A session of before there were quotas that holds more than that is told of in the log, and
// not cut off.
func TestASessionOfBeforeQuotasGoesOn(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		p.must(m.stream, m.batch(large("message/a", 50_000)))
		r.stop()
		row := rowOf(t, st, m.id)
		row.Bytes, row.ExemptBytes = 0, -1
		recount(t, st, row)

		log := new(lockbuf.Buffer)
		limited := func(c *Config) {
			c.Session = decide.DefaultConfig()
			c.Session.Limits.SessionBytes = 20_000
			c.Log = slog.New(slog.NewTextHandler(log, nil))
		}
		r = start(t, st, limited)
		p = r.dial()
		stream := p.open(p.restore(m.owner), m.box)
		if ack := p.must(stream, m.batch(large("message/b", 5000))); ack.applied != 1 {
			t.Fatalf("%+v", ack.outcomes)
		}
		until.True(t, "a word in the log", func() bool { return strings.Contains(log.String(), m.id) })
		if ack := p.must(stream, m.batch(large("message/c", 5000))); ack.applied != 1 {
			t.Fatalf("%+v", ack.outcomes)
		}
		if row := rowOf(t, st, m.id); row.ExemptBytes < 50_000 || row.Bytes < row.ExemptBytes {
			t.Errorf("measured as %+v", row)
		}
	})
}

// What was made under one ref of the space is bounded in all, in whatever sessions and by whatever was
// made from it; the space's owner's is not, and who is not refused goes on.
func TestAnAccountIsFilledOnce(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) {
			c.Session = decide.DefaultConfig()
			c.Session.Limits.AccountBytes, c.SweepInterval = 50_000, 5*time.Millisecond
		})
		p := r.dial()
		root := p.restore(r.owner)
		guest, below := r.owner.New(r.owner.Target()), r.owner.New(r.owner.Target())
		if refused := sharing(t, root, guest, capability.Create|capability.Share, ""); refused != nil {
			t.Fatal(refused)
		}
		if refused := sharing(t, p.restore(guest), below, capability.Create, ""); refused != nil {
			t.Fatal(refused)
		}
		first, second := r.under(guest).create(p), r.under(below).create(p)
		p.must(second.stream, second.batch(large("message/0", 10))) // the server gets to know what it counts for
		n := 0
		full := func(m *made) bool {
			t.Helper()
			n++
			reply := p.apply(m.stream, m.batch(large(fmt.Sprint("message/", n), 10_000)))
			if reply.refusal == nil {
				return false
			}
			wantRefusal(t, "a put", reply, fault.QuotaExceeded, 0)
			if !strings.Contains(reply.refusal.Message, "--create-quota") {
				t.Error(reply.refusal)
			}
			m.box.seq--
			return true
		}
		until.True(t, "it is full", func() bool { return full(first) }) // it is added up now and then
		until.True(t, "so is another session", func() bool { return full(second) })
		live, err := r.server.Caller(within(t), "192.0.2.1:1").Restore(below, "")
		if err != nil {
			t.Fatal(err)
		}
		until.True(t, "so is one yet to be made", func() bool {
			id := capability.SessionPrefix + ulid.Make().String()
			owner, secret, _ := newRefOf(id)
			err := live.Create(within(t), id, owner, nil, op("create", "ref", owner, "hash", hashText(secret)).Args...)
			if err != nil {
				wantCode(t, "create", err, fault.QuotaExceeded)
			}
			return err != nil
		})
		owners := r.create(p)
		for range 2 {
			if full(owners) {
				t.Error("the owner's is full")
			}
		}
		p.must(second.stream, second.batch(op("remove", "key", "message/none")))
		p.must(first.stream, first.batch(op("delete")))
		until.True(t, "there is room again", func() bool { return !full(second) })
	})
}

// What is copied of a large fork counts for the account that it is made for, until it is a session, or has failed. Where the
// account is full it waits.
func TestAForkFillsItsAccount(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) {
			c.Session = decide.DefaultConfig()
			c.Session.Limits.AccountBytes, c.Session.Limits.ForkBytes, c.SweepInterval = 50_000, 6000, 5*time.Millisecond
		})
		r.untilInUse(session.AllFeatures)
		p := r.dial()
		guest := r.owner.New(r.owner.Target())
		if refused := sharing(t, p.restore(r.owner), guest, capability.Create, ""); refused != nil {
			t.Fatal(refused)
		}
		source, own := r.create(p), r.under(guest).create(p)
		for i := range 12 {
			p.must(source.stream, source.batch(large(fmt.Sprint("message/", i), 5000)))
		}
		restore := func(ref capability.Ref) *objects.Capability {
			live, err := r.server.Caller(within(t), "192.0.2.1:1").Restore(ref, "")
			if err != nil {
				t.Fatal(err)
			}
			return live
		}
		id, box := capability.SessionPrefix+ulid.Make().String(), newBox()
		owner := r.owner.New(id)
		stream, err := restore(guest).CreateStream(within(t), id, owner.ID, box.id, box.secret, 1)
		if err != nil {
			t.Fatal(err)
		}
		batch := box.batch(id, op("fork", "ref", owner.ID, "hash", hashText(owner.Secret), "source", source.id, "via", source.owner.ID))
		with := restore(source.owner)
		ask := func() fault.Code {
			a, err := stream.Apply(within(t), *batch, with)
			switch {
			case err != nil:
				return fault.CodeOf(err)
			case a.Outcomes[0].Reason == 0:
				t.Fatalf("it is answered %+v", a)
			}
			return a.Outcomes[0].Reason
		}
		full := func() bool {
			reply := p.apply(own.stream, own.batch(large("message/0", 10)))
			if reply.refusal == nil {
				return false
			}
			wantRefusal(t, "a put", reply, fault.QuotaExceeded, 0)
			own.box.seq--
			return true
		}
		if code := ask(); code != fault.NotYetKnown {
			t.Fatalf("at first it is answered %v", code)
		}
		until.True(t, "it waits for room", func() bool { return ask() == fault.QuotaExceeded })
		until.True(t, "so does what is put", full)
		until.True(t, "the metrics have it", func() bool { return r.number(`mooring_forks{state="copying"}`) == 1 })
		if bytes := r.number("mooring_fork_bytes"); bytes < 40_000 || bytes >= 60_000 {
			t.Errorf("%v bytes are copied", bytes)
		}
		p.must(source.stream, source.batch(op("delete")))
		until.True(t, "there is room again", func() bool { return !full() })
		until.True(t, "it has failed", func() bool { return ask() == fault.SessionDeleted })
		until.True(t, "nothing is left of it", func() bool { return r.number(`mooring_forks{state="failed"}`)+r.number("mooring_fork_bytes") == 0 })
	})
}
