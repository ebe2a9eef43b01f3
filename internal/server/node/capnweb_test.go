//go:build unix

// Every method of docs/javascript.md, over Cap'n Web.

package node

import (
	"crypto/ed25519"
	"encoding/base64"
	"slices"
	"strings"
	"testing"

	capnpserver "capnproto.org/go/capnp/v3/server"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// fields checks that an object has these and no other fields.
func fields(t testing.TB, label string, v any, want string) object {
	t.Helper()
	o, ok := v.(object)
	if !ok {
		t.Fatalf("%s is %#v, want an object", label, v)
	}
	var names []string
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	wanted := strings.Fields(want)
	slices.Sort(wanted)
	if !slices.Equal(names, wanted) {
		t.Errorf("%s has the fields %v, want %v", label, names, wanted)
	}
	return o
}

const grantFields = "id target owner epoch rights methods expires from limit used label actor dead cut message seal readKeys writeKeys children ask answer"

func TestEveryMethodOverTheWeb(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) { c.Audiences, c.Webhooks = []string{audience}, &WebhookConfig{} })
		try := func(name string, methods func(*testing.T, *rig, *webClient)) (called map[string]bool) {
			t.Run(name, func(t *testing.T) {
				w := r.dialWebIn(t)
				methods(t, r, w)
				called = w.called
			})
			return called
		}
		inSchema := func(schema []capnpserver.Method, called ...map[string]bool) {
			for _, m := range schema {
				name := m.MethodName
				if name == "describe" { // as JavaScript has it
					name = "info"
				}
				if !slices.ContainsFunc(called, func(by map[string]bool) bool { return by[name] }) {
					t.Errorf("nobody calls %s of %s here", name, m.InterfaceName)
				}
			}
		}
		inSchema(wire.Gateway_Methods(nil, nil), try("main", webMainMethods))
		inSchema(append(wire.Session_Methods(nil, nil), wire.Subscription_Methods(nil, nil)...), try("session", webSessionMethods), try("authority", webAuthorityMethods))
		inSchema(wire.Stream_Methods(nil, nil), try("stream", webStreamMethods))
		inSchema(wire.Space_Methods(nil, nil), try("space", webSpaceMethods)) // rotates the root ref
	})
}

func webMainMethods(t *testing.T, r *rig, w *webClient) {
	if err := r.server.loadHistory(t.Context()); err != nil { // Run may not have come to it
		t.Fatal(err)
	}
	hello := fields(t, "hello", w.give(w.main, "hello", object{"version": 1, "agent": "test"}), "version limits now server features history")
	same(t, "the version", hello["version"], 1.0)
	if id, err := r.server.cfg.Store.HistoryID(t.Context()); err != nil || hello["history"] != id {
		t.Errorf("hello names the history %v, the database has %s, %v", hello["history"], id, err)
	}
	limits := fields(t, "limits", hello["limits"], "messageBytes batchOps batchBytes payloadBytes batchesInFlight")
	same(t, "batchesInFlight", limits["batchesInFlight"], float64(r.server.cfg.BatchesInFlight))
	same(t, "positional", w.give(w.main, "hello", 7).(object)["version"], 1.0)
	_, err := w.ask(w.main, "hello")
	wantCode(t, "no version", err, fault.Incompatible)

	// A ref as text, as a struct, and with all arguments by name.
	binary := object{"id": r.owner.ID, "secret": r.owner.Secret.Reveal()}
	text := object{"id": r.owner.ID, "secret": r.owner.Secret.RevealText()}
	for name, args := range map[string][]any{
		"text": {r.owner.Text()}, "a struct": {binary}, "a struct of text": {text}, "with a redemption": {r.owner.Text(), "r1"},
		"named": {object{"ref": r.owner.Text(), "redemption": "r2"}}, "named struct": {object{"ref": binary}},
	} {
		if _, ok := w.give(w.main, "restore", args...).(*capnweb.Stub); !ok {
			t.Errorf("%s: no stub", name)
		}
	}
	_, err = w.ask(w.main, "restore", "mooring://h/spc_1#"+r.owner.Secret.RevealText())
	wantCode(t, "text that is no ref", err, fault.BadRefText)
	if strings.Contains(err.Error(), r.owner.Secret.RevealText()) {
		t.Errorf("the error tells the secret: %v", err)
	}
	nonce, ok := w.give(w.main, "challenge").([]byte)
	if !ok || len(nonce) != capability.NonceBytes {
		t.Errorf("a nonce of %d bytes", len(nonce))
	}
}

func webSpaceMethods(t *testing.T, r *rig, w *webClient) {
	sp := w.give(w.main, "restore", r.owner.Text()).(*capnweb.Stub)
	described := fields(t, "info", w.give(sp, "info"), "info now")
	if number(described["now"]) == 0 {
		t.Error("the server's clock stands still")
	}
	info := fields(t, "the grant", described["info"], grantFields)
	same(t, "rights", info["rights"], []any{"share", "revoke", "create", "list", "manage"})
	same(t, "alive", info["dead"], nil)
	m := r.createWeb(w)
	list := fields(t, "list", w.give(sp, "list"), "sessions more next")
	same(t, "more", list["more"], false)
	one := fields(t, "a session", list["sessions"].([]any)[0], "id external cursor created updated title epoch base deleted head order origin parent reverted compacted")
	if one["id"].(string) > m.id || number(one["cursor"]) == 0 {
		t.Errorf("listed: %v", one)
	}
	none := any(object{"sessions": []any{}, "more": false, "next": ""})
	same(t, "after the last", w.give(sp, "list", "ses_7ZZZZZZZZZZZZZZZZZZZZZZZZZ", 1), none)
	same(t, "a search", w.give(sp, "list", object{"order": "changed", "search": "nothing", "deleted": true}), none)

	opened := w.give(sp, "open", m.id).(*capnweb.Stub)
	same(t, "opened under", w.give(opened, "info").(object)["grant"].(object)["id"], r.owner.ID)
	old := fields(t, "old ones", w.give(sp, "removeOlder", object{"method": "delete", "age": 1 << 30}), "before done unchanged sessions next stopped")
	same(t, "old ones", []any{old["done"], old["unchanged"], old["sessions"], old["next"], old["stopped"]}, []any{0.0, 0.0, []any{}, "", nil})

	narrow := w.give(sp, "attenuate", object{"rights": []any{"list"}}).(*capnweb.Stub)
	same(t, "narrowed", w.give(narrow, "info").(object)["info"].(object)["rights"], []any{"list"})
	ref := r.owner.New(r.owner.Target())
	hash := ref.Secret.Hash()
	made := object{"id": ref.ID, "hash": hash[:], "limits": object{"rights": []any{"create", "list"}, "actor": "team"}}
	for range 2 {
		same(t, "share", w.give(sp, "share", made), capnweb.Undefined{})
	}
	team := w.give(w.main, "restore", ref.Text())
	same(t, "the team's actor", w.give(team.(*capnweb.Stub), "info").(object)["info"].(object)["actor"], "team")
	tree := fields(t, "refs", w.give(sp, "refs", object{"under": ref.ID}), "refs more next")
	row := fields(t, "a ref", tree["refs"].([]any)[0], "grant parent created lastUsed uses revoked revokedBy")
	same(t, "its id", fields(t, "its grant", row["grant"], grantFields)["id"], ref.ID)
	same(t, "revoke", w.give(sp, "revoke", ref.ID), any(object{"refs": 1.0}))
	page := fields(t, "audit", w.give(sp, "audit", 0, 100), "rows seq head")
	last := fields(t, "a row", page["rows"].([]any)[len(page["rows"].([]any))-1], "seq at act ref actor subject reason op cursor count peer hash")
	same(t, "the act", last["act"], "revoke")
	saved := fields(t, "save", w.give(sp, "save"), "id secret")
	if _, ok := w.give(w.main, "restore", saved).(*capnweb.Stub); !ok {
		t.Error("what save gives cannot be restored")
	}
	same(t, "rotate", w.give(sp, "rotate", newHash(r.owner.New(r.owner.Target()))...), capnweb.Undefined{})
	_, err := w.ask(sp, "list")
	wantCode(t, "the old root", err, fault.Revoked)
}

// newHash are rotate's arguments for a ref.
func newHash(ref capability.Ref) []any {
	hash := ref.Secret.Hash()
	return []any{ref.ID, hash[:]}
}

func webSessionMethods(t *testing.T, r *rig, w *webClient) {
	m := r.createWeb(w)
	w.must(m.stream, m.batch(op("begin", "message", "msg_1", "payload", object{"role": "assistant"}), put(2)))
	sess := w.give(w.main, "restore", m.owner.Text()).(*capnweb.Stub)

	info := fields(t, "info", w.give(sess, "info"), "info grant now")
	same(t, "by the schema's name", w.give(sess, "describe").(object)["grant"], info["grant"])
	stat := fields(t, "stat", w.give(sess, "stat"), "cursor events first last kinds")
	same(t, "what is counted", []any{stat["cursor"], stat["events"], stat["kinds"].([]any)[0].(object)["keys"]}, []any{3.0, 3.0, 2.0})
	fields(t, "its grant", info["grant"], grantFields)
	at := fields(t, "its session", info["info"], "id external cursor created updated title epoch base deleted head order origin parent reverted compacted")
	same(t, "the cursor", at["cursor"], 3.0)
	if head := at["head"].([]byte); len(head) != 32 {
		t.Errorf("the head has %d bytes", len(head))
	}

	page := fields(t, "events", w.give(sess, "events", 1, 1), "events cursor")
	e := fields(t, "an event", page["events"].([]any)[0], "cursor method key schema payload ref actor op batch at outbox hash purged hidden sum")
	same(t, "the event", []any{e["cursor"], e["method"], e["payload"], e["purged"]}, []any{2.0, "begin", `{"role":"assistant"}`, false})
	same(t, "all events", len(w.give(sess, "events").(object)["events"].([]any)), 3)

	state := fields(t, "snapshot", w.give(sess, "snapshot"), "cursor hash entries turns compacted leftOut")
	same(t, "its cursor", state["cursor"], 3.0)
	same(t, "what is left out", []any{state["compacted"], len(state["leftOut"].([]any))}, []any{nil, 0})
	entry := fields(t, "an entry", state["entries"].([]any)[1], "key cursor schema payload ord ordIndex claim")
	same(t, "the entry", []any{entry["key"], entry["payload"]}, []any{"message/msg_2", `{"n":2}`})
	turn := fields(t, "a turn", state["turns"].([]any)[0], "message status begun ended outbox ref")
	same(t, "the turn", []any{turn["message"], turn["status"], turn["ref"]}, []any{"msg_1", "streaming", m.owner.ID})
	same(t, "an earlier one", w.give(sess, "snapshot", 1).(object)["cursor"], 1.0)
	k := newWebRecorder()
	same(t, "in pieces", w.give(sess, "snapshot", 0, k), 3.0)
	if k.keys["message/msg_2"] != `{"n":2}` || k.stateAt != 3 || !k.last {
		t.Errorf("the pieces: %v at %d, last %v", k.keys, k.stateAt, k.last)
	}

	const entryFields = "key cursor schema payload ord ordIndex bytes ref actor at claim"
	got := fields(t, "get", w.give(sess, "get", []any{"message/msg_2", "message/none", "message/msg_1"}), "entries cursor next")
	entry = fields(t, "an entry by key", got["entries"].([]any)[0], entryFields)
	same(t, "the entry by key", []any{got["cursor"], got["next"], len(got["entries"].([]any)), entry["key"], entry["payload"], entry["bytes"], entry["cursor"], entry["ref"], entry["actor"]},
		[]any{3.0, 0.0, 2, "message/msg_2", `{"n":2}`, 7.0, 3.0, m.owner.ID, "owner"})
	_, err := w.ask(sess, "get", []any{})
	wantCode(t, "no keys", err, fault.BadArgument)
	_, err = w.ask(sess, "get", []any{"message/a", "not a key"})
	wantCode(t, "no key", err, fault.BadKey)
	_, err = w.ask(sess, "get", []any{strings.Repeat("x", 1<<20)})
	wantCode(t, "a long key", err, fault.BadKey)

	listed := fields(t, "list", w.give(sess, "list", "message/", "", 1, "put", true), "entries more next cursor")
	entry = fields(t, "a listed entry", listed["entries"].([]any)[0], entryFields)
	same(t, "the page", []any{listed["cursor"], listed["more"], listed["next"], entry["key"], entry["payload"]}, []any{3.0, true, "2.0.message/msg_1", "message/msg_1", `{"role":"assistant"}`})
	listed = w.give(sess, "list", object{"prefix": "message/", "after": listed["next"], "order": "put"}).(object)
	entry = listed["entries"].([]any)[0].(object)
	same(t, "the last page", []any{listed["more"], listed["next"], len(listed["entries"].([]any)), entry["key"], entry["payload"], entry["bytes"]}, []any{false, "", 1, "message/msg_2", "", 7.0})
	for name, q := range map[string]object{"an order": {"order": "size"}, "a prefix": {"prefix": "message"}, "a limit": {"limit": 1001}, "a place": {"after": "~"}} {
		_, err = w.ask(sess, "list", q)
		wantCode(t, name+" that there is not", err, fault.BadArgument)
	}

	for name, options := range map[string]any{"a cursor": 1, "options": object{"from": 1, "windowBytes": 8192}} {
		k := newWebRecorder()
		sub := w.give(sess, "subscribe", options, k).(*capnweb.Stub)
		k.untilCursor(t, 3)
		k.consecutive(t, 1)
		same(t, name+": cancel", w.give(sub, "cancel"), capnweb.Undefined{})
	}
	k = newWebRecorder()
	w.give(sess, "subscribe", object{"snapshot": true}, k)
	k.until(t, "the state", func() bool { return k.last })
	w.must(m.stream, m.batch(put(3)))
	k.untilCursor(t, 4)
	k.consecutive(t, 3)
	w.must(m.stream, m.batch(op("put", "key", "message/msg_9", "payload", map[string]string{"text": "Login fails"})))
	found := fields(t, "search", w.give(sess, "search", "login", "", 1), "found next indexing cursor")
	hit := fields(t, "what is found", found["found"].([]any)[0], "entry place excerpt")
	entry = fields(t, "its entry", hit["entry"], entryFields)
	same(t, "the search", []any{len(found["found"].([]any)), found["next"], found["indexing"], found["cursor"], hit["place"], hit["excerpt"], entry["key"], entry["payload"], entry["bytes"]},
		[]any{1, "", false, 5.0, "/text", []any{"", "Login", " fails"}, "message/msg_9", "", 22.0})
	for name, q := range map[string]object{"no words": {"query": "?"}, "a limit": {"query": "2", "limit": 101}, "a place": {"query": "2", "after": "~"}, "a length": {"query": strings.Repeat("2 ", 501)}} {
		_, err = w.ask(sess, "search", q)
		wantCode(t, name+" of a search", err, fault.BadArgument)
	}
	none := fields(t, "children", w.give(sess, "children", "", 1), "sessions more next")
	same(t, "no children", []any{len(none["sessions"].([]any)), none["more"], none["next"]}, []any{0, false, ""})
	_, err = w.ask(sess, "open", "x")
	wantCode(t, "a child by another name", err, fault.BadArgument)
	_, err = w.ask(sess, "children", "x")
	wantCode(t, "children after no id", err, fault.BadArgument)
}

func webStreamMethods(t *testing.T, r *rig, w *webClient) {
	m := r.createWeb(w)
	for name, open := range map[string][]any{
		"positional": {m.box.id, m.box.secret, 1},
		"named":      {object{"outbox": m.box.id, "secret": base64.RawURLEncoding.EncodeToString(m.box.secret), "incarnation": 1}},
	} {
		stream := w.give(m.sess, "openStream", open...).(*capnweb.Stub)
		last, err := awaitWeb(t, stream.Get("lastSeq"))
		acked, err2 := awaitWeb(t, stream.Get("ackedThrough"))
		other, err3 := awaitWeb(t, stream.Get("nothing"))
		if err != nil || err2 != nil || err3 != nil || last != 1.0 || acked != 0.0 || other != (capnweb.Undefined{}) {
			t.Errorf("%s: lastSeq %v, ackedThrough %v, nothing %v: %v %v %v", name, last, acked, other, err, err2, err3)
		}
	}
	v := w.give(m.stream, "apply", webBatch(m.batch(put(1), op("put", "key", "message/msg_1", "payload", 5))))
	ack := fields(t, "the ack", v, "cursor applied duplicates rejected outcomes")
	same(t, "its counts", []any{ack["cursor"], ack["applied"], ack["duplicates"], ack["rejected"]}, []any{2.0, 1.0, 0.0, 1.0})
	good := fields(t, "an outcome", ack["outcomes"].([]any)[0], "op status duplicate reason message cursor result cause at")
	bad := ack["outcomes"].([]any)[1].(object)
	same(t, "what applied", []any{good["status"], good["reason"]}, []any{"applied", nil})
	same(t, "what did not", []any{bad["status"], bad["reason"]}, []any{"rejected", object{"code": float64(fault.BadPayload), "name": "bad_payload"}})
	same(t, "acknowledge", w.give(m.stream, "acknowledge", 3), capnweb.Undefined{})
	_, err := w.ask(m.stream, "acknowledge", 9)
	wantCode(t, "acknowledging what is not there", err, fault.ServerBehind)

	// In one round trip, of what is not there yet: a restored session is forked.
	fork := &webMade{id: capability.SessionPrefix + ulid.Make().String(), box: newBox()}
	fork.owner = r.owner.New(fork.id)
	source := w.restore(m.owner)
	stream := w.open(w.restore(r.owner).Call(within(t), "create", fork.id, fork.owner.ID), fork.box)
	forking := w.apply(stream, fork.batch(op("fork", "ref", fork.owner.ID, "hash", hashText(fork.owner.Secret), "source", m.id, "via", m.owner.ID, "at", 2)), source)
	if forking.refusal != nil || forking.outcomes[0].Status != ledger.Applied {
		t.Fatalf("fork: %+v", forking)
	}
	_, err = w.ask(stream, "apply", webBatch(fork.batch(put(1))), []any{"no session"})
	if e, ok := err.(*capnweb.Error); !ok || e.Message != "with[0]: want an object of this server, got a string" {
		t.Errorf("with something else: %v", err)
	}
}

func webAuthorityMethods(t *testing.T, r *rig, w *webClient) {
	m := r.createWeb(w)
	sess := w.give(w.main, "restore", m.owner.Text()).(*capnweb.Stub)
	helper := m.owner.New(m.id)
	hash := helper.Secret.Hash()
	made := object{"id": helper.ID, "hash": hash[:], "limits": object{"rights": []any{"read", "append", "share", "revoke"}, "methods": []any{"put"}, "actor": "owner/h"}, "redemptions": 2}
	for range 2 {
		same(t, "share", w.give(sess, "share", made), capnweb.Undefined{})
	}
	hers := w.give(w.main, "restore", helper.Text()).(*capnweb.Stub)
	narrow := w.give(hers, "attenuate", object{"rights": []any{"read"}, "message": "msg_1"}).(*capnweb.Stub)
	grant := w.give(narrow, "info").(object)["grant"].(object)
	same(t, "narrowed", []any{grant["rights"], grant["message"], grant["actor"]}, []any{[]any{"read"}, "msg_1", "owner/h"})
	_, err := w.ask(narrow, "attenuate", object{"rights": []any{"append"}})
	wantCode(t, "wider", err, fault.Widening)
	_, err = w.ask(hers, "attenuate", object{"rights": []any{"fly"}})
	wantCode(t, "a right that there is not", err, fault.BadArgument)
	_, err = w.ask(hers, "attenuate", object{"rights": []any{}})
	wantCode(t, "no rights", err, fault.BadArgument)

	tree := w.give(sess, "refs").(object)
	same(t, "refs", len(tree["refs"].([]any)), 2)
	saved := fields(t, "save", w.give(hers, "save"), "id secret")
	if _, err := w.ask(w.main.Call(within(t), "restore", saved), "info"); err != nil {
		t.Errorf("what was saved: %v", err)
	}
	cut := fields(t, "revoke", w.give(sess, "revoke", helper.ID), "cut epoch children childCount")
	same(t, "its cut", cut["cut"], 3.0)
	dead := w.give(hers, "info").(object)["grant"].(object)
	same(t, "what killed it", dead["dead"], any(object{"code": float64(fault.Revoked), "name": "revoked"}))
	_, err = w.ask(hers, "events")
	wantCode(t, "after it", err, fault.Revoked)
	same(t, "every share", w.give(sess, "revoke", nil, true), any(object{"cut": 4.0, "epoch": 2.0, "children": []any{}, "childCount": 0.0}))
	_, err = w.ask(sess, "revoke")
	wantCode(t, "revoking nothing", err, fault.BadArgument)

	page := fields(t, "audit", w.give(sess, "audit"), "rows seq head")
	acts := []string{}
	for _, row := range page["rows"].([]any) {
		acts = append(acts, row.(object)["act"].(string))
	}
	if !slices.Contains(acts, "share") || !slices.Contains(acts, "revoke") {
		t.Errorf("the audit has %v", acts)
	}
	const hookFields = "id url kinds ref created cursor delivered failingSince failures error next restarted ended endedAt"
	hook := object{"id": "h", "url": "https://localhost/", "secret": webhookSecret, "kinds": []any{"turn.finished"}}
	for range 2 {
		added := fields(t, "addWebhook", w.give(sess, "addWebhook", hook), hookFields)
		same(t, "the webhook", []any{added["id"], added["kinds"], added["ref"], added["ended"]}, []any{"h", []any{"turn.finished"}, m.owner.ID, ""})
	}
	hook["url"] = "http://127.0.0.1/"
	_, err = w.ask(sess, "addWebhook", hook)
	wantCode(t, "a webhook without TLS", err, fault.BadArgument)
	hooks := fields(t, "webhooks", w.give(sess, "webhooks"), "webhooks now")["webhooks"].([]any)
	same(t, "webhooks", len(hooks), 1)
	fields(t, "a listed one", hooks[0], hookFields)
	same(t, "removeWebhook", w.give(sess, "removeWebhook", "h"), any(true))
	same(t, "again", w.give(sess, "removeWebhook", "h"), any(false))
	fresh := m.owner.New(m.id)
	same(t, "rotate", w.give(sess, "rotate", newHash(fresh)...), any(object{"cut": 5.0}))
	same(t, "again", w.give(sess, "rotate", newHash(fresh)...), any(object{"cut": 5.0}))
	if _, err := w.ask(w.restore(fresh), "info"); err != nil {
		t.Errorf("the fresh one: %v", err)
	}

	// Sealed refs take a proof over the connection's own challenge.
	key := newKey(t)
	sealed := fresh.NewSealed(m.id)
	hash = sealed.Secret.Hash()
	w.give(w.restore(fresh), "share", object{"id": sealed.ID, "hash": hash[:], "seal": []byte(key.Public().(ed25519.PublicKey)), "limits": object{"rights": []any{"read"}}})
	_, err = w.ask(w.main, "restore", sealed.Text())
	wantCode(t, "a sealed ref without a proof", err, fault.Sealed)
	nonce := w.give(w.main, "challenge").([]byte)
	proof := capability.Prove(key, nonce, audience, sealed.ID, "r")
	if _, err := w.ask(w.main, "restore", sealed.Text(), "r", object{"nonce": proof.Nonce, "audience": proof.Audience, "signature": proof.Signature}); err != nil {
		t.Errorf("with one: %v", err)
	}
}

// Batches that leave together are applied in the order in which they left, also
// where one of them waits for a session that is being restored.
func TestPipelinedBatchesKeepTheirOrder(t *testing.T) {
	t.Parallel()
	r := start(t, sqliteStore(t), nil)
	w := r.dialWeb()
	m := r.createWeb(w)
	for range 20 {
		b := newBox()
		var answers []*capnweb.Promise
		stream := w.open(w.restore(m.owner), b)
		for i := range 10 {
			with := []any{}
			if i%3 == 0 {
				with = append(with, w.restore(m.owner))
			}
			answers = append(answers, stream.Call(t.Context(), "apply", webBatch(b.batch(m.id, put(i))), with))
		}
		for i, p := range answers {
			if ack := readWebReply(t, p); ack.refusal != nil || ack.outcomes[0].Status != ledger.Applied {
				t.Fatalf("batch %d: %+v, %v", i, ack, ack.refusal)
			}
		}
	}
}
