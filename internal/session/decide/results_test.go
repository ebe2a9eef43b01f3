package decide_test

// What each op answers, what its event holds and what the audit has of it, as it
// stands on the wire and in the log; and what it answers where there is no session.

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// salts are those of events that some readers are shown in part.
var salts = regexp.MustCompile(`"salt":"[A-Z2-7]{26}"`)

func TestResultsEventsAndAudit(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.newWriter()
	id := capability.DeriveSealedID(o.session, capability.NewSecret())
	seal := capability.SealKeyText(make([]byte, 32))
	plain, _ := newRef(o.session)
	fill := strings.NewReplacer("SES", o.session, "OWN", o.ref, "SPC", w.space, "REF", id, "SEAL", seal, "PLAIN", plain).Replace
	audited := 0
	for _, step := range []struct {
		op                   anOp
		key, result, payload string
		audit                string // act, ref, actor, subject and cursor
	}{
		{op("create", "ref", o.ref, "hash", sha(o.ref), "external", "x-1", "label", "mine", "actor", "ann"), "ref/OWN",
			`{"cursor":1,"session":"SES","ref":"OWN"}`, `{"external":"x-1","ref":"OWN","label":"mine","actor":"ann"}`, "share SPC  OWN 1"},
		{op("put", "key", "part/m/p", "payload", raw(` {"text":"é"}`), "schema_version", 7), "part/m/p", `{"cursor":2}`, ` {"text":"é"}`, ""},
		{op("put", "key", "part/m/p", "payload", raw(` {"text":"é"}`), "schema_version", 7), "", `{"cursor":2,"unchanged":true}`, "", ""},
		{op("begin", "message", "m", "payload", raw(`{"b":1}`), "schema_version", 8), "message/m", `{"cursor":3}`, `{"b":1}`, ""},
		{op("appendText", "key", "part/m/p", "offset", 2, "text", "<b>"), "part/m/p", `{"cursor":4,"length":5}`, `{"offset":2,"text":"<b>"}`, ""},
		{op("appendText", "key", "part/m/p", "offset", 5, "text", ""), "", `{"cursor":4,"unchanged":true,"length":5}`, "", ""},
		{op("finalize", "message", "m", "status", "failed", "completed", 9), "message/m", `{"cursor":5,"status":"failed"}`,
			`{"status":"failed","entries":[{"key":"message/m","schema_version":8,"payload":"{\"b\":1,\"time\":{\"completed\":9}}","since":3},` +
				`{"key":"part/m/p","schema_version":7,"payload":" {\"text\":\"é<b>\"}","since":2}],"salt":"SALT"}`, ""},
		{op("finalize", "message", "m", "status", "failed", "completed", 9), "", `{"cursor":5,"unchanged":true,"status":"failed"}`, "", ""},
		{op("purge", "key", "message/m"), "message/m", `{"cursor":6,"events":2}`, `{"key":"message/m","events":[{"cursor":3},{"cursor":5,"sum":"LEFT"}],"salt":"SALT"}`, "purge OWN ann message/m 6"},
		{op("purge", "key", "message/m"), "", `{"cursor":6,"unchanged":true,"events":0}`, "", ""},
		{op("remove", "key", "part/m/p"), "part/m/p", `{"cursor":7}`, `{}`, ""},
		{op("remove", "key", "part/m/p"), "", `{"cursor":7,"unchanged":true}`, "", ""},
		{op("share", "ref", id, "hash", sha(id), "rights", []string{"append"}, "methods", []string{"put"}, "expires_at", 5_000_000, "from", 3, "redemptions", 2,
			"message", "m", "label", "for bob", "actor", "ann/bob", "seal", seal), "ref/REF",
			`{"cursor":8,"ref":"REF","epoch":1,"actor":"ann/bob"}`, `{"ref":"REF","parent":"OWN","rights":["append"],"methods":["put"],"expires_at":5000000,"from":3,` +
				`"redemptions":2,"message":"m","label":"for bob","actor":"ann/bob","epoch":1,"seal":"SEAL"}`, "share OWN ann REF 8"},
		{op("share", "ref", plain, "hash", sha(plain), "rights", []string{"read"}), "ref/PLAIN", `{"cursor":9,"ref":"PLAIN","epoch":1,"actor":"ann"}`,
			`{"ref":"PLAIN","parent":"OWN","rights":["read"],"actor":"ann","epoch":1}`, "share OWN ann PLAIN 9"},
		{op("revoke", "ref", id), "ref/REF", `{"cursor":10,"cut":10}`, `{"ref":"REF"}`, "revoke OWN ann REF 10"},
		{op("revoke", "ref", id), "", `{"cursor":10,"unchanged":true,"cut":10}`, "", ""},
		{op("bumpEpoch"), "epoch", `{"cursor":11,"cut":11,"epoch":2}`, `{"epoch":2}`, "bump OWN ann  11"},
		{op("delete"), "", `{"cursor":12}`, `{}`, "delete OWN ann  12"},
	} {
		w.store.Now++
		gen := uint64(0)
		if row := w.store.Session(o.session); row != nil {
			gen = row.AuthGen
		}
		sub := o.batch(false, step.op)
		sub.Peer = "192.0.2.7"
		answers, published := w.commit(sub)
		out := answers[0].Outcomes[0]
		if got, want := string(out.Result), fill(step.result); got != want {
			t.Fatalf("%s answers %s (%s), want %s", step.op.method, got, out.Message, want)
		}
		row := w.store.Session(o.session)
		if step.payload == "" {
			mustEqual(t, "events", len(published.Sessions), 0)
		} else {
			ev := eventsOf(published.Sessions[0])[0]
			left := "" // of the finalize
			if log := w.store.Events(o.session); len(log) > 4 {
				left = session.SumOf(log[4].Payload).String()
			}
			schema := map[uint64]uint32{2: 7, 3: 8, 4: 7}[ev.Cursor]
			if got, want := salts.ReplaceAllString(string(ev.Payload), `"salt":"SALT"`), strings.ReplaceAll(fill(step.payload), "LEFT", left); got != want || ev.Key != fill(step.key) || ev.Method != step.op.method || ev.Schema != max(schema, 1) {
				t.Errorf("the event of %s, %s with schema %d, holds %s, want %s", step.op.method, ev.Key, ev.Schema, got, want)
			}
			if row.Updated != w.store.Now || ev.At != w.store.Now || ev.Sum != session.SumOf(ev.Payload) || ev.Op != out.OpID {
				t.Errorf("%s: row %+v, event %+v", step.op.method, row, ev)
			}
			mustEqual(t, step.op.method+" changes authority", published.Sessions[0].AuthChanged, row.AuthGen == gen+1)
			mustEqual(t, step.op.method+" changes authority", row.AuthGen != gen, step.audit != "" && step.op.method != "create" && step.op.method != "share")
		}
		got := ""
		if audit := w.store.Audit()[audited:]; len(audit) > 0 {
			a := audit[0]
			got = fmt.Sprintf("%s %s %s %s %d", a.Act, a.Ref, a.Actor, a.Subject, a.Cursor)
			if len(audit) > 1 || a.At != w.store.Now || a.Op != out.OpID || a.Peer != sub.Peer || a.Target != o.session {
				t.Errorf("%s is audited as %+v", step.op.method, a)
			}
		}
		mustEqual(t, "the audit of "+step.op.method, got, fill(step.audit))
		audited = len(w.store.Audit())
	}
}

// onKeys are ops of every method but those that make a session, each of which could
// apply in one.
func onKeys(ref string) []anOp {
	return []anOp{
		put("message/a"), op("remove", "key", "message/a"), op("begin", "message", "b", "payload", raw(`{}`)),
		op("appendText", "key", "part/b/p", "offset", 0, "text", "x"), op("finalize", "message", "b", "status", "completed"),
		op("share", "ref", ref, "hash", sha(ref), "rights", []string{"read"}), op("revoke", "ref", ref), op("bumpEpoch"),
		op("purge", "key", "message/a"), op("delete"),
	}
}

func TestNothingIsDoneWithoutASession(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.newWriter()
	fresh, _ := newRef(o.session)
	for _, x := range onKeys(fresh) {
		o.refuse(ledger.Rejected, fault.NotFound, x)
	}
	restored := o.under(o.ref)
	restored.refuse(ledger.Denied, fault.UnknownRef, put("message/a"))
	o.apply(op("create", "ref", o.ref, "hash", sha(o.ref)))
	o.apply(op("delete"))
	for _, x := range onKeys(fresh) {
		o.refuse(ledger.Rejected, fault.SessionDeleted, x)
	}
	mustEqual(t, "audited", len(w.store.Audit()), 3) // made, deleted, and the denial
}
