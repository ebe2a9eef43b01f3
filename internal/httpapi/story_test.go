//go:build unix

package httpapi

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
)

// Everything there is, as somebody with curl alone does it.
func TestTheStory(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		space := "/spaces/" + r.owner.Target() + "/sessions"
		made := r.must(201, "POST", space, r.owner.Text(), obj{"external": "mine", "label": "a label"})
		id, owner := made["session"].(string), made["text"].(string)
		at := "/sessions/" + id
		if ref, err := capability.ParseRef(owner); err != nil || ref.ID != made["ref"] || ref.Target() != id || ref.Hosts[0] != r.host {
			t.Fatal(made["ref"], err)
		}
		if got := r.ask("POST", space, r.owner.Text(), obj{"external": "mine"}); got.status != 409 || got.code() != "already_exists" {
			t.Errorf("made again: %d %s", got.status, got.text)
		}
		list := r.must(200, "GET", space+"?limit=10", r.owner.Text(), nil)
		if one := list["sessions"].([]any)[0].(obj); list["more"] != false || one["id"] != id || one["external"] != "mine" || one["cursor"] != json.Number("1") {
			t.Errorf("listed: %v", list)
		}

		// A batch as a person writes it; every payload is kept byte for byte.
		payload := `{ "text" : "a<b>&\u00e9é\/", "n":1.50, "n": 12345678901234567890 }`
		b := newBox()
		secret := base64.RawURLEncoding.EncodeToString(b.secret)
		ids := []string{ulid.Make().String(), ulid.Make().String(), ulid.Make().String()}
		batch := fmt.Sprintf(`{"outbox":%q,"secret":%q,"incarnation":1,"batch_id":%q,"ops":[
			{"op_id":%q,"seq":1,"method":"put","args":{"key":"session","payload":{"title":"Hi"}}},
			{"op_id":%q,"seq":"2","method":"put","args":[{"name":"key","value":"message/m"},{"name":"payload","value":%s},{"name":"schema_version","value":3}]},
			{"op_id":%q,"seq":3,"method":"put","depends_on":[%q],"expected_cursor":3,"args":{"key":"message/m","payload":{"late":true}}}]}`,
			b.id, secret, ulid.Make(), ids[0], ids[1], payload, ids[2], ids[1])
		for again := range 2 {
			ack := r.must(200, "POST", at+"/batches", owner, batch)
			if want := [2]string{"2 0 1", "0 3 0"}[again]; fmt.Sprintf("%s %s %s", ack["applied"], ack["duplicates"], ack["rejected"]) != want {
				t.Fatalf("time %d: %v", again+1, ack)
			}
			last := ack["outcomes"].([]any)[2].(obj)
			if last["status"] != "conflict" || last["error"].(obj)["code"] != "conflict" || last["cursor"] != json.Number("1") {
				t.Errorf("%v", last)
			}
		}
		described := r.must(200, "GET", at, owner, nil)
		if s, g := described["session"].(obj), described["grant"].(obj); s["title"] != "Hi" || s["cursor"] != json.Number("3") || g["owner"] != true {
			t.Errorf("%v", described)
		}

		stat := r.must(200, "GET", at+"/stat", owner, nil)
		if kinds, want := fmt.Sprint(stat["kinds"]), fmt.Sprintf("[map[bytes:%d keys:1 kind:message] map[bytes:14 keys:1 kind:session]]", len(payload)); stat["cursor"] != json.Number("3") || stat["events"] != json.Number("3") || stat["first"] == json.Number("0") || kinds != want {
			t.Errorf("%v, want %s", stat, want)
		}

		// A child of it, without an outbox, and in one's first batch.
		child := r.must(201, "POST", space, r.owner.Text(), obj{"parent": owner, "part": "message/m"})
		one := r.must(200, "GET", at+"/children?limit=1", owner, nil)["sessions"].([]any)[0].(obj)
		if one["id"] != child["session"] || one["key"] != "message/m" {
			t.Errorf("the children: %v", one)
		}
		of := r.must(200, "GET", "/sessions/"+child["session"].(string), child["text"].(string), nil)["session"].(obj)["parent"].(obj)
		under := r.must(200, "GET", space+"?parent="+id, r.owner.Text(), nil)["sessions"].([]any)
		if of["session"] != id || of["key"] != "message/m" || len(under) != 1 || under[0].(obj)["id"] != child["session"] {
			t.Errorf("its parent is %v, in the space there are %v", of, under)
		}
		if got := r.ask("POST", space, r.owner.Text(), obj{"part": "message/m"}); got.status != 400 || got.code() != "bad_argument" {
			t.Errorf("a part of no parent: %d %s", got.status, got.text)
		}

		// One that was forked from another before it was brought here.
		brought := r.must(201, "POST", space, r.owner.Text(), obj{"origin": obj{"session": id, "cursor": 3, "message": "m"}})
		from := r.must(200, "GET", "/sessions/"+brought["session"].(string), brought["text"].(string), nil)["session"].(obj)["origin"].(obj)
		if from["session"] != id || from["cursor"] != json.Number("3") || from["message"] != "m" {
			t.Errorf("its origin is %v", from)
		}
		if got := r.ask("POST", space, r.owner.Text(), obj{"origin": obj{"cursor": 3}}); got.status != 400 || got.code() != "bad_argument" {
			t.Errorf("an origin without a session: %d %s", got.status, got.text)
		}

		// Read: whole, by pages, and as it was.
		shot := r.ask("GET", at+"/snapshot", owner, nil)
		if want := `{"key":"message/m","cursor":3,"schema_version":3,"ord":[3,0],"payload":` + payload + `}`; shot.status != 200 || !strings.Contains(string(shot.text), want) || shot.json["cursor"] != json.Number("3") || len(shot.json["entries"].([]any)) != 2 {
			t.Errorf("the snapshot is %d %s", shot.status, shot.text)
		}
		if earlier := r.must(200, "GET", at+"/snapshot?at=2", owner, nil); len(earlier["entries"].([]any)) != 1 || earlier["cursor"] != json.Number("2") {
			t.Errorf("the snapshot at 2 is %v", earlier)
		}
		if first := r.must(200, "GET", at+"/snapshot?at=1", owner, nil); len(first["entries"].([]any)) != 0 || len(first["turns"].([]any)) != 0 {
			t.Errorf("the snapshot at 1 is %v", first)
		}
		state := r.ask("GET", at+"/state?prefix=message/&values=true", owner, nil)
		if want := fmt.Sprintf(`{"cursor":3,"more":false,"entries":[{"key":"message/m","cursor":3,"schema_version":3,"ord":[3,0],"bytes":%d,"ref":"`, len(payload)); state.status != 200 || !strings.HasPrefix(string(state.text), want) || !strings.HasSuffix(string(state.text), `,"payload":`+payload+`}]}`) {
			t.Errorf("the state below a prefix is %d %s", state.status, state.text)
		}
		if found := r.must(200, "GET", at+"/search?q=hi", owner, nil)["found"].([]any); len(found) != 1 || found[0].(obj)["place"] != "/title" {
			t.Errorf("a search finds %v", found)
		}
		page := r.ask("GET", at+"/events?after=1&limit=1", owner, nil)
		if page.status != 200 || page.json["after"] != json.Number("2") || page.json["more"] != true || page.json["cursor"] != json.Number("3") {
			t.Errorf("the page is %s", page.text)
		}
		page = r.ask("GET", at+"/events?after=2", owner[strings.Index(owner, "ses_"):], nil) // ID#SECRET alone
		if !strings.Contains(string(page.text), `"payload":`+payload+`}`) || page.json["more"] != false {
			t.Errorf("the page is %s", page.text)
		}

		// Ask, wait for what becomes of it, answer one and withdraw another.
		asked := "/sessions/" + child["session"].(string) + "/requests"
		agent := child["text"].(string)
		question := r.must(201, "POST", asked, agent, obj{"kind": "question", "payload": "Red or blue?"})["request"].(string)
		other := r.must(201, "POST", asked, agent, obj{"request": "mine", "kind": "prompt"})["request"].(string)
		if open := askedIDs(r.must(200, "GET", asked, agent, nil)); open != question+" open, mine open" {
			t.Errorf("open are %s", open)
		}
		r.must(200, "POST", asked+"/"+question+"/answer", agent, obj{"payload": "blue"})
		r.must(200, "POST", asked+"/"+other+"/withdraw", agent, obj{})
		if got := r.must(200, "GET", asked+"/"+question+"?wait=55000", agent, nil)["state"].(obj); got["state"] != "answered" || got["payload"] != "blue" {
			t.Errorf("it became %v", got)
		}

		// Share, follow, revoke.
		reader := r.must(201, "POST", at+"/refs", owner, obj{"rights": []string{"read"}, "label": "for a friend", "redemptions": 1})
		text := reader["text"].(string)
		follow, refused := r.open(r.request("GET", at+"/events?after=1", text, nil))
		if refused != nil {
			t.Fatalf("%d %s", refused.status, refused.text)
		}
		for want := 2; want <= 4; want++ {
			e, ok := follow.next()
			if !ok || e.id != fmt.Sprint(want) || want == 3 && (e.name != "put" || !strings.HasSuffix(e.data, `"payload":`+payload+`}`)) || want == 4 && e.name != "share" {
				t.Fatalf("event %d is %+v, %v", want, e, ok)
			}
		}
		if got := r.ask("POST", at+"/batches", text, b.json(b.batch(id, op("put", "key", "message/x", "payload", obj{})))); got.status != 409 {
			t.Errorf("a copied outbox: %d %s", got.status, got.text)
		}
		cut := r.must(200, "DELETE", at+"/refs/"+reader["ref"].(string), owner, nil)
		if e, ok := follow.next(); !ok || e.name != "ended" || !strings.Contains(e.data, `"code":"revoked","number":41`) || e.id != "" {
			t.Errorf("it ends with %+v, %v", e, ok)
		}
		if e, ok := follow.next(); ok {
			t.Errorf("and then comes %+v", e)
		}
		if got := r.ask("GET", at+"/events", text, nil); got.status != 403 || got.code() != "revoked" || cut["cut"] != json.Number("5") {
			t.Errorf("a dead ref reads: %d %s; the cut is %v", got.status, got.text, cut)
		}
		if _, refused := r.open(r.request("GET", at+"/events", text, nil)); refused == nil || refused.status != 403 {
			t.Errorf("a dead ref follows: %+v", refused)
		}
		refs := r.must(200, "GET", at+"/refs", owner, nil)["refs"].([]any)
		if len(refs) != 2 || refs[1].(obj)["ref"] != reader["ref"] || refs[1].(obj)["dead"] != "revoked" {
			t.Errorf("the refs are %v", refs)
		}
		if of := r.must(200, "GET", "/spaces/"+r.owner.Target(), r.owner.Text(), nil)["grant"].(obj); of["ref"] != r.owner.ID || len(of["rights"].([]any)) != 5 {
			t.Errorf("the space's ref allows %v", of)
		}
		if all := r.must(200, "GET", "/spaces/"+r.owner.Target()+"/refs", r.owner.Text(), nil)["refs"].([]any); len(all) != 1+len(refs)+2 { // the child's, and of what was brought here
			t.Errorf("the space's refs are %v", all)
		}

		// Say what is stored, look at the audit, and put new refs in the places of those that one has.
		r.must(200, "POST", at+"/acknowledge", owner, b.acknowledgement(3))
		if audit := r.must(200, "GET", at+"/audit?limit=1", owner, nil); audit["more"] != true || len(audit["rows"].([]any)) != 1 {
			t.Errorf("the audit is %v", audit)
		}
		rotated := r.must(201, "POST", at+"/rotate", owner, obj{})
		if got := r.ask("GET", at, owner, nil); got.status != 403 || rotated["cut"] != json.Number("6") {
			t.Errorf("the old ref: %d %s; it was rotated to %v", got.status, got.text, rotated["ref"])
		}
		r.must(200, "GET", at, rotated["text"].(string), nil)
		ofSpace := "/spaces/" + r.owner.Target()
		lists := r.must(201, "POST", ofSpace+"/refs", r.owner.Text(), obj{"rights": []string{"list"}})
		r.must(200, "GET", space, lists["text"].(string), nil)
		if died := r.must(200, "DELETE", ofSpace+"/refs/"+lists["ref"].(string), r.owner.Text(), nil); died["refs"] != json.Number("1") {
			t.Errorf("%v refs died", died["refs"])
		}
		r.must(200, "GET", ofSpace+"/audit", r.owner.Text(), nil)
		root := r.must(201, "POST", ofSpace+"/rotate", r.owner.Text(), obj{})
		r.must(200, "GET", space, root["text"].(string), nil)
		if old := r.must(200, "POST", ofSpace+"/older", root["text"].(string), obj{"method": "delete", "age": 1 << 30}); old["done"] != json.Number("0") || old["more"] != false {
			t.Errorf("of the sessions that are 34 years old: %v", old)
		}
		for _, item := range openAPI(t).doc.Paths.Map() {
			for _, op := range item.Operations() {
				if r.seen.count(op.OperationID+" 200")+r.seen.count(op.OperationID+" 201") == 0 && op.OperationID != "description" {
					t.Errorf("nobody has asked for %s", op.OperationID)
				}
			}
		}
	})
}

// A client that makes names and refs itself loses nothing with an answer.
func TestMadeByTheClient(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	space := "/spaces/" + r.owner.Target() + "/sessions"
	id := capability.SessionPrefix + ulid.Make().String()
	owner := r.owner.New(id)
	body := obj{"session": id, "ref": owner.ID, "hash": hashText(owner.Secret), "actor": "me"}
	if made := r.must(201, "POST", space, r.owner.Text(), body); made["session"] != id || made["text"] != nil {
		t.Errorf("%v", made)
	}
	if got := r.ask("POST", space, r.owner.Text(), body); got.status != 409 {
		t.Errorf("again: %d %s", got.status, got.text)
	}
	reader := owner.New(id)
	share := obj{"ref": reader.ID, "hash": hashText(reader.Secret), "rights": []string{"read"}, "from": 1, "expires_at": int64(1) << 50, "message": "m", "actor": "me/you"}
	for range 2 {
		if got := r.must(201, "POST", "/sessions/"+id+"/refs", owner.Text(), share); got["ref"] != reader.ID || got["text"] != nil {
			t.Errorf("%v", got)
		}
	}
	d := r.must(200, "GET", "/sessions/"+id, reader.Text(), nil)
	if g := d["grant"].(obj); g["message"] != "m" || g["actor"] != "me/you" || g["from"] != json.Number("1") {
		t.Errorf("%v", d)
	}
	// What it does not cover it is shown as marks.
	m := &made{id: id, owner: owner, box: newBox()}
	r.put(m, 2)
	events := r.must(200, "GET", "/sessions/"+id+"/events?after=1", reader.Text(), nil)
	if list := events["events"].([]any); len(list) != 1 || list[0].(obj)["hidden"] != true || list[0].(obj)["cursor"] != json.Number("4") {
		t.Errorf("%v", events)
	}
	if e, ok := r.follow(m, reader.Text(), 1).next(); !ok || e.name != "hidden" {
		t.Errorf("%+v", e)
	}
	// A first batch may come again, at either place, and by the session's own ref.
	n := r.create()
	again := n.box.batch(n.id, op("put", "key", "message/a", "payload", obj{}))
	for i, s := range []struct {
		path, ref string
		body      any
	}{
		{"/sessions/" + n.id + "/batches", n.owner.Text(), n.box.json(again)},
		{space, r.owner.Text(), obj{"session": n.id, "ref": n.owner.ID, "batch": n.box.json(again)}},
	} {
		if ack := r.must(200, "POST", s.path, s.ref, s.body); (ack["duplicates"] == json.Number("1")) != (i == 1) {
			t.Errorf("%d: %v", i, ack)
		}
	}
}

// A ref that is limited to keys, and requests for some keys, are shown those.
func TestSomeKeys(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	at, owner := "/sessions/"+m.id, m.owner.Text()
	put := func(key string) ledger.Intent { return op("put", "key", key, "payload", obj{"text": key}) }
	r.must(200, "POST", at+"/batches", owner, m.box.json(m.box.batch(m.id, put("message/a"), put("part/a/1"), put("session"), put("part/a/2"))))
	limited := r.share(m, obj{"rights": []string{"read", "append"}, "read_keys": []string{"part/", "session"}, "write_keys": []string{"part/a/3"}})
	d := r.must(200, "GET", at, limited, nil)
	if g := fmt.Sprint(d["grant"].(obj)["read_keys"], d["grant"].(obj)["write_keys"]); g != "[part/ session] [part/a/3]" {
		t.Errorf("its keys are %s", g)
	}
	shown := func(list any) (keys []string) {
		for _, e := range list.([]any) {
			if key, ok := e.(obj)["key"].(string); ok {
				keys = append(keys, key)
			} else {
				keys = append(keys, "-")
			}
		}
		return keys
	}
	for _, c := range []struct{ path, ref, list, want string }{
		{"/events", limited, "events", "- part/a/1 session part/a/2 -"},
		{"/snapshot", limited, "entries", "part/a/1 part/a/2 session"},
		{"/events?keys=part/", owner, "events", "- part/a/1 - part/a/2 -"},
		{"/events?keys=message/,part/a/2&after=1", owner, "events", "message/a - part/a/2 -"},
		{"/events?keys=part/a/2,message/", limited, "events", "- part/a/2 -"},
		{"/snapshot?keys=part/a/2,message/", owner, "entries", "message/a part/a/2"},
		{"/snapshot?keys=part/a/2,message/", limited, "entries", "part/a/2"},
	} {
		if got := strings.Join(shown(r.must(200, "GET", at+c.path, c.ref, nil)[c.list]), " "); got != c.want {
			t.Errorf("%s shows %s, want %s", c.path, got, c.want)
		}
	}
	box := newBox()
	ack := r.must(200, "POST", at+"/batches", limited, box.json(box.batch(m.id, put("part/a/3"), put("part/a/1"))))
	if ack["applied"] != json.Number("1") || ack["rejected"] != json.Number("1") {
		t.Errorf("%v", ack)
	}
	s, refused := r.open(r.request("GET", at+"/events?keys=part/a/&after=0", owner, nil))
	if refused != nil {
		t.Fatalf("%d %s", refused.status, refused.text)
	}
	for _, want := range []string{"hidden", "part/a/1", "hidden", "part/a/2", "hidden", "part/a/3"} {
		if e, ok := s.next(); !ok || e.name != want && !strings.Contains(e.data, `"key":"`+want+`"`) {
			t.Errorf("the stream has %+v, want %s", e, want)
		}
	}
}

// The compacted view of a session has the summary and what follows; to a ref of a part of it nothing is left out.
func TestCompactedView(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	at, owner := "/sessions/"+m.id, m.owner.Text()
	put := func(key string) ledger.Intent { return op("put", "key", key, "payload", obj{"text": key}) }
	r.must(200, "POST", at+"/batches", owner, m.box.json(m.box.batch(m.id, put("message/a"), put("part/a/1"), put("message/b"), put("message/s"), put("todo/1"),
		op("begin", "message", "c", "payload", obj{}), op("compact", "upto", "message/b", "summary", "message/s"))))
	keys := r.share(m, obj{"rights": []string{"read"}, "read_keys": []string{"message/"}})
	for _, c := range []struct{ path, ref, want string }{
		{"/snapshot", owner, "message/a message/b message/c message/s part/a/1 todo/1"},
		{"/snapshot?compacted=true", owner, "[a b] message/c message/s todo/1"},
		{"/snapshot?compacted=true&at=7", owner, "message/a message/b message/c message/s part/a/1 todo/1"},
		{"/snapshot?compacted=true&keys=part/,todo/", owner, "[a b] todo/1"},
		{"/snapshot?compacted=true", keys, "message/a message/b message/c message/s"},
		{"/state?compacted=true", owner, "message/c message/s todo/1"},
		{"/state?compacted=true&prefix=message/&order=put&limit=1", owner, "message/s"},
		{"/state?compacted=true", keys, "message/a message/b message/c message/s"},
	} {
		got := r.must(200, "GET", at+c.path, c.ref, nil)
		var shown []string
		for _, e := range got["entries"].([]any) {
			shown = append(shown, e.(obj)["key"].(string))
		}
		slices.Sort(shown)
		text := strings.Join(shown, " ")
		if left, compacted := got["left_out"]; compacted {
			if by := got["compacted"].(obj); by["upto"] != "message/b" || by["summary"] != "message/s" || by["cursor"] != json.Number("8") {
				t.Errorf("%s: it is compacted to %v", c.path, by)
			}
			text = fmt.Sprint(left, " ", text)
		}
		if text != c.want {
			t.Errorf("%s has %s, want %s", c.path, text, c.want)
		}
	}
	if by := r.must(200, "GET", at, owner, nil)["session"].(obj)["compacted"].(obj); by["upto"] != "message/b" || fmt.Sprint(by["ord"], by["place"]) != "[4 0] [5 0]" {
		t.Errorf("the session is compacted to %v", by)
	}
	if by, told := r.must(200, "GET", at, keys, nil)["session"].(obj)["compacted"]; told {
		t.Errorf("a ref of some keys is told of %v", by)
	}
	r.must(400, "GET", at+"/snapshot?compacted=yes", owner, nil)
}

// Turns are in the snapshot, and what was purged is nowhere.
func TestTurnsAndPurges(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	at, owner := "/sessions/"+m.id, m.owner.Text()
	begun := op("appendText", "key", "part/m/p", "text", "Hello, ", "offset", 0)
	further := op("appendText", "key", "part/m/p", "text", "wörld")
	further.Args = append(further.Args, ledger.Arg{Name: "offset", Ref: &ledger.Ref{Op: begun.OpID, Path: "length"}})
	b := m.box.batch(m.id, op("begin", "message", "m", "payload", obj{"role": "assistant"}), op("put", "key", "part/m/p", "payload", obj{"type": "text", "text": ""}),
		begun, further, op("put", "key", "message/n", "payload", obj{"password": "hunter2"}))
	if ack := r.must(200, "POST", at+"/batches", owner, m.box.json(b)); ack["applied"] != json.Number("5") {
		t.Fatal(ack)
	}
	shot := r.must(200, "GET", at+"/snapshot", owner, nil)
	turn, part := shot["turns"].([]any)[0].(obj), shot["entries"].([]any)[2].(obj)
	if turn["status"] != "streaming" || turn["message"] != "m" || turn["ref"] != m.owner.ID || part["payload"].(obj)["text"] != "Hello, wörld" {
		t.Errorf("%v", shot)
	}
	b = m.box.batch(m.id, op("finalize", "message", "m", "status", "completed"), op("purge", "key", "message/n"))
	if ack := r.must(200, "POST", at+"/batches", owner, m.box.json(b)); ack["applied"] != json.Number("2") {
		t.Fatal(ack)
	}
	if shot = r.must(200, "GET", at+"/snapshot", owner, nil); shot["turns"].([]any)[0].(obj)["status"] != "completed" {
		t.Errorf("%v", shot)
	}
	page := r.ask("GET", at+"/events", owner, nil)
	if e := page.json["events"].([]any)[5].(obj); e["purged"] != true || e["payload"] != nil || strings.Contains(string(page.text), "hunter2") {
		t.Errorf("%s", page.text)
	}
	s := r.follow(m, owner, 0)
	for range 8 {
		if e, ok := s.next(); !ok || strings.Contains(e.data, "hunter2") {
			t.Errorf("%+v, %v", e, ok)
		}
	}
}

// Turns of others are ended as docs/http.md says: by their refs, in a stream of its own.
func TestTurnsThatNobodyEnds(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	at, owner := "/sessions/"+m.id, m.owner.Text()
	guest := r.must(201, "POST", at+"/refs", owner, obj{"rights": []string{"append"}})
	commit := func(ref string, ops ...ledger.Intent) json.Number {
		t.Helper()
		b := newBox()
		return r.must(200, "POST", at+"/batches", ref, b.json(b.batch(m.id, ops...)))["applied"].(json.Number)
	}
	begin := func(message string) ledger.Intent { return op("begin", "message", message, "payload", obj{}) }
	if n := commit(guest["text"].(string), begin("a"), begin("b")); n != "2" {
		t.Fatalf("the guest began %s turns", n)
	}
	if n := commit(owner, begin("c")); n != "1" {
		t.Fatalf("the owner began %s turns", n)
	}
	r.must(200, "DELETE", at+"/refs/"+guest["ref"].(string), owner, nil)
	dead := map[any]bool{}
	for _, ref := range r.must(200, "GET", at+"/refs", owner, nil)["refs"].([]any) {
		dead[ref.(obj)["ref"]] = ref.(obj)["dead"] != nil
	}
	var ops []ledger.Intent
	for _, turn := range r.must(200, "GET", at+"/snapshot", owner, nil)["turns"].([]any) {
		if turn := turn.(obj); turn["ended"] == nil && dead[turn["ref"]] {
			ops = append(ops, op("finalize", "message", turn["message"], "status", "aborted"))
		}
	}
	if n := commit(owner, ops...); n != "2" {
		t.Errorf("%s turns were ended", n)
	}
	for _, turn := range r.must(200, "GET", at+"/snapshot", owner, nil)["turns"].([]any) {
		if turn := turn.(obj); (turn["status"] == "aborted") != (turn["message"] != "c") {
			t.Errorf("%v", turn)
		}
	}
}

// A fork takes its source's ref along.
func TestFork(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	r.put(m, 1)
	for _, holds := range []bool{false, true} {
		id := capability.SessionPrefix + ulid.Make().String()
		owner, b := r.owner.New(id), newBox()
		var batch obj
		if err := json.Unmarshal(b.json(b.batch(id, op("fork", "ref", owner.ID, "hash", hashText(owner.Secret), "source", m.id, "via", m.owner.ID))), &batch); err != nil {
			t.Fatal(err)
		}
		if holds {
			batch["with"] = []string{m.owner.Text()}
		}
		ack := r.must(200, "POST", "/spaces/"+r.owner.Target()+"/sessions", r.owner.Text(), obj{"session": id, "ref": owner.ID, "batch": batch})
		if applied := ack["applied"] == json.Number("1"); applied != holds {
			t.Errorf("with the source's ref %v: %v", holds, ack)
		}
	}
}

// A large fork is copied in pieces, and asked for again until it is there, with what its batch has besides.
func TestForkInPieces(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(c *node.Config, _ *Config) { c.Session.Limits.ForkBytes = 1 })
		m := r.create()
		for i := range 20 {
			r.put(m, i)
		}
		source := r.must(200, "GET", "/sessions/"+m.id+"/snapshot", m.owner.Text(), nil)
		want := source["entries"].([]any)
		id := capability.SessionPrefix + ulid.Make().String()
		owner, b := r.owner.New(id), newBox()
		var batch obj
		if err := json.Unmarshal(b.json(b.batch(id, op("fork", "ref", owner.ID, "hash", hashText(owner.Secret), "source", m.id, "via", m.owner.ID),
			op("put", "key", "message/more", "payload", obj{}))), &batch); err != nil {
			t.Fatal(err)
		}
		batch["with"] = []string{m.owner.Text()}
		waited := 0
		until.True(t, "the fork is there", func() bool {
			got := r.ask("POST", "/spaces/"+r.owner.Target()+"/sessions", r.owner.Text(), obj{"session": id, "ref": owner.ID, "batch": batch})
			if got.status == 200 && got.json["applied"] == json.Number("2") {
				return true
			}
			if waited++; got.status != 404 || got.code() != "not_yet_known" && got.code() != "unsupported" {
				t.Fatalf("%d %s", got.status, got.text)
			}
			if at := got.json["error"].(obj)["at"]; got.code() == "not_yet_known" && at != source["cursor"] {
				t.Fatalf("it is copied as of %v: %s", at, got.text)
			}
			if got := r.ask("GET", "/sessions/"+id, owner.Text(), nil); got.status != 404 || got.code() != "not_yet_known" {
				t.Fatalf("meanwhile the session is %d %s", got.status, got.text)
			}
			return false
		})
		if waited == 0 {
			t.Error("it was there at once")
		}
		got := r.must(200, "GET", "/sessions/"+id+"/snapshot", owner.Text(), nil)["entries"].([]any)
		if len(got) != len(want)+1 {
			t.Errorf("it has %d entries, the source %d", len(got), len(want))
		}
	})
}

// A ref for one redemption is one client's: that of an address, or of a header.
func TestRedemptions(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	text := r.share(m, obj{"rights": []string{"read"}, "redemptions": 2})
	ask := func(redemption string) *reply {
		req := r.request("GET", "/sessions/"+m.id, text, nil)
		if redemption != "" {
			req.Header.Set(redemptionHeader, redemption)
		}
		return r.do(req)
	}
	for i, c := range []struct {
		redemption string
		status     int
	}{{"", 200}, {"", 200}, {"one", 200}, {"one", 200}, {"", 200}, {"two", 403}, {strings.Repeat("x", 65), 400}, {"a b", 400}} {
		if got := ask(c.redemption); got.status != c.status || c.status == 403 && got.code() != "exhausted" {
			t.Errorf("%d, %q: %d %s", i, c.redemption, got.status, got.text)
		}
	}
}
