package decide_test

// What a session may hold, and what may be held of what was written under one ref.

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// refused commits one batch, which is answered as a whole.
func (o *writer) refused(ops ...anOp) *fault.Error {
	o.w.Helper()
	seq := o.seq
	answers, _ := o.w.commit(o.batch(false, ops...))
	if answers[0].Err != nil {
		o.seq = seq // it has consumed no seq
	}
	return answers[0].Err
}

func wantQuota(t *testing.T, what string, err *fault.Error, flag string) {
	t.Helper()
	if err == nil || err.Code != fault.QuotaExceeded || !strings.Contains(err.Message, flag) {
		t.Fatalf("%s: %v, want quota_exceeded for %s", what, err, flag)
	}
}

func big(key string, bytes int) anOp {
	return op("put", "key", key, "payload", raw(`{"text":"%s"}`, strings.Repeat("x", bytes)))
}

func TestASessionHoldsNoMoreThanItsQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.SessionBytes = 20_000
	o := w.create()
	reader := o.under(o.share([]string{"read"}))
	guest := o.under(o.share(all))
	o.apply(big("message/a", 9000))
	o.apply(op("begin", "message", "t", "payload", raw(`{}`)))
	wantQuota(t, "a batch that would be too much", o.refused(big("message/b", 9000)), "--session-quota")
	wantQuota(t, "in parts", guest.refused(put("message/c"), big("message/b", 9000)), "--session-quota")
	o.apply(big("message/b", 6000))
	for name, x := range map[string]anOp{
		"put": big("message/c", 3000), "share": op("share", "ref", "x", "hash", strings.Repeat("x", 3000)),
		"finalize": op("finalize", "message", "t", "status", "aborted", "payload", raw(`{"t":"%s"}`, strings.Repeat("x", 3000))),
	} {
		wantQuota(t, name, o.refused(x), "--session-quota")
	}
	// An op that is refused as a whole may come again: it has consumed no seq. What takes
	// something away passes, as does the end of a turn.
	held := w.store.Session(o.session).Bytes
	o.apply(op("finalize", "message", "t", "status", "aborted"))
	o.apply(op("remove", "key", "message/a"))
	if got := w.store.Session(o.session).Bytes; got <= held {
		t.Errorf("%d bytes are held after a remove, %d before: the log keeps what was removed", got, held)
	}
	o.apply(op("purge", "key", "message/a"))
	if got := w.store.Session(o.session).Bytes; got > held-7900 {
		t.Errorf("%d bytes are held after a purge, %d before", got, held)
	}
	o.apply(big("message/c", 3000))
	wantQuota(t, "full again", guest.refused(big("message/d", 9000)), "--session-quota")
	// Who may do nothing is told that, and it is recorded.
	o.apply(op("revoke", "ref", guest.ref))
	for _, who := range []*writer{reader, guest} {
		answers, _ := w.commit(who.batch(false, big("message/d", 9000)))
		if a := answers[0]; a.Err != nil || a.Outcomes[0].Status != ledger.Denied {
			t.Errorf("%+v", a)
		}
	}
	// What is in the place of a dropped op, and a repeat of what was recorded.
	first := o.batch(false, op("void"))
	for range 2 {
		if answers, _ := w.commit(first); answers[0].Err != nil || answers[0].Outcomes[0].Status != ledger.Voided {
			t.Fatalf("%+v", answers[0])
		}
	}
	// Without an outbox it is the same.
	plain := decide.Submission{Batch: o.batch(false, big("message/e", 9000)).Batch, Ref: o.ref, Direct: &decide.Direct{Ops: true}}
	answers, _ := w.commit(plain)
	wantQuota(t, "ops without an outbox", answers[0].Err, "--session-quota")
	o.seq-- // of the plain one
	o.apply(op("delete"))
	if row := w.store.Session(o.session); row.Bytes != int64(row.Cursor)*session.EventCost {
		t.Errorf("%d bytes are held once it is deleted, by %d events", row.Bytes, row.Cursor)
	}
}

// What takes something away, or makes an end, passes where nothing else does.
func TestRemovalsPassAnyQuota(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	ref := o.share(all)
	guest := o.under(ref)
	guest.apply(put("message/a"))
	guest.apply(put("message/b"))
	guest.apply(op("begin", "message", "t", "payload", raw(`{}`)))
	w.cfg.Limits.SessionBytes, w.cfg.Limits.RefBytes = 1, 1
	wantQuota(t, "a put", o.refused(put("message/c")), "--session-quota")
	guest.apply(op("finalize", "message", "t", "status", "aborted"))
	guest.apply(op("remove", "key", "message/a"))
	o.apply(op("purge", "key", "message/b"))
	if out := guest.try(op("void"))[0]; out.Status != ledger.Voided {
		t.Errorf("a dropped op: %+v", out)
	}
	wantQuota(t, "a turn's end with a value", o.refused(op("finalize", "message", "t", "status", "aborted", "payload", raw(`{}`))), "--session-quota")
	wantQuota(t, "what takes away, with a put behind it", o.refused(op("remove", "key", "message/b"), put("message/c")), "--session-quota")
	o.apply(op("revoke", "ref", ref))
	o.apply(op("bumpEpoch"))
	o.apply(op("delete"))
}

func TestARefHasAQuotaOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.cfg.Limits.RefBytes = 10_000
	o := w.create()
	guest, other := o.under(o.share(all)), o.under(o.share(all))
	guest.apply(big("message/a", 8000))
	wantQuota(t, "too much under one ref", guest.refused(big("message/b", 3000)), "--ref-quota")
	other.apply(big("message/b", 3000))
	o.apply(big("message/c", 50_000)) // the owner has all of the session's
	if got := w.store.Grant(guest.ref).Bytes; got < 8000 || got > 9000 {
		t.Errorf("%d bytes are held of the guest's", got)
	}
	if got := w.store.Grant(o.ref).Bytes; got != 0 {
		t.Errorf("%d bytes are counted for the owner", got)
	}
	guest.apply(op("remove", "key", "message/a"))
	o.apply(op("purge", "key", "message/a"))
	guest.apply(big("message/b", 3000))
}

func TestEarlierBytesAreExempt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(big("message/a", 50_000))
	w.cfg.Limits.SessionBytes = 10_000
	row := w.store.Session(o.session)
	for _, c := range []struct {
		spared int64
		ok     bool
	}{{-1, true}, {0, false}, {row.Bytes, true}} { // not measured; of this version; of before
		w.store.SetExemptBytes(o.session, c.spared)
		err := o.refused(big("message/b", 1000))
		if ok := err == nil; ok != c.ok {
			t.Errorf("with %d spared: %v", c.spared, err)
		}
	}
	wantQuota(t, "more than was there and the quota", o.refused(big("message/c", 12_000)), "--session-quota")
}
