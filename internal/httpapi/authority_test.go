//go:build unix

// The refs of a space, rotations, audits and acknowledgements.

package httpapi

import (
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// refOf parses a ref's text.
func refOf(t testing.TB, text string) capability.Ref {
	t.Helper()
	ref, err := capability.ParseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	return ref
}

// named is a ref that a client has made, as a body has it.
func named(ref capability.Ref, more obj) obj {
	body := obj{"ref": ref.ID, "hash": hashText(ref.Secret)}
	for name, value := range more {
		body[name] = value
	}
	return body
}

// A space's refs are minted and revoked, those of its sessions with them.
func TestRefsOfASpace(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		space := "/spaces/" + r.owner.Target()
		helper := r.must(201, "POST", space+"/refs", r.owner.Text(), obj{"rights": []string{"create", "list", "share", "revoke"}, "label": "helper", "actor": "helper", "expires_in": 3600_000})
		text := helper["text"].(string)
		if ref := refOf(t, text); helper["space"] != r.owner.Target() || helper["session"] != nil || ref.ID != helper["ref"] || ref.Hosts[0] != r.host {
			t.Errorf("minted is %v", helper)
		}
		made := r.must(201, "POST", space+"/sessions", text, obj{})
		ours := r.must(201, "POST", space+"/refs", text, obj{"rights": []string{"list"}, "redemptions": 2, "seal": base64.RawURLEncoding.EncodeToString(make([]byte, 32))})
		if got := r.ask("GET", space+"/sessions", ours["text"].(string), nil); got.code() != "sealed" {
			t.Errorf("a sealed one: %d %s", got.status, got.text)
		}

		// Made by the client, it may be minted again, as it is.
		own := r.owner.New(r.owner.Target())
		for range 2 {
			if got := r.must(201, "POST", space+"/refs", text, named(own, obj{"rights": []string{"list"}})); got["ref"] != own.ID || got["text"] != nil {
				t.Errorf("minted by the client: %v", got)
			}
		}
		for i, c := range []struct {
			ref  string
			body obj
			code fault.Code
		}{
			{text, named(own, obj{"rights": []string{"list", "create"}}), fault.AlreadyExists},
			{text, named(own, obj{"rights": []string{"list"}, "label": "x"}), fault.AlreadyExists},
			{text, named(r.owner.New(made["session"].(string)), obj{"rights": []string{"list"}}), fault.BadArgument},
			{text, obj{"rights": []string{"read"}}, fault.BadArgument},
			{text, obj{"rights": []string{"list"}, "expires_in": 7200_000}, fault.Widening},
			{text, obj{"rights": []string{"list"}, "actor": "other"}, fault.Widening},
			{text, obj{"rights": []string{"list"}, "from": 2}, fault.BadArgument},
			{text, obj{"rights": []string{"list"}, "methods": []string{"put"}}, fault.BadArgument},
			{text, obj{"rights": []string{"list"}, "read_keys": []string{"todo/"}}, fault.BadArgument},
			{text, obj{"rights": []string{"list"}, "write_keys": []string{"todo/"}}, fault.BadArgument},
			{own.Text(), obj{"rights": []string{"list"}}, fault.MissingRight},
			{made["text"].(string), obj{"rights": []string{"read"}}, fault.NotFound},
		} {
			if got := r.ask("POST", space+"/refs", c.ref, c.body); got.code() != c.code.String() || got.status != c.code.HTTPStatus() {
				t.Errorf("%d: %d %s, want %s", i, got.status, got.text, c.code)
			}
		}
		if rows := r.must(200, "GET", space+"/refs?under="+helper["ref"].(string), r.owner.Text(), nil)["refs"].([]any); len(rows) != 4 {
			t.Errorf("below the helper's ref are %v", rows)
		}

		// What revokes may revoke below itself alone, and takes the sessions' refs along.
		for id, code := range map[string]fault.Code{"x": fault.NotFound, r.owner.ID: fault.MissingRight, r.owner.New(r.owner.Target()).ID: fault.MissingRight} {
			if got := r.ask("DELETE", space+"/refs/"+id, text, nil); got.code() != code.String() {
				t.Errorf("%s: %d %s, want %s", id, got.status, got.text, code)
			}
		}
		if got := r.ask("DELETE", space+"/refs/"+own.ID, own.Text(), nil); got.code() != "missing_right" {
			t.Errorf("without the right: %d %s", got.status, got.text)
		}
		for i, want := range []json.Number{"4", "0"} {
			if died := r.must(200, "DELETE", space+"/refs/"+helper["ref"].(string), r.owner.Text(), nil); died["refs"] != want {
				t.Errorf("time %d: %v died, want %s", i+1, died["refs"], want)
			}
		}
		for path, ref := range map[string]string{space + "/sessions": own.Text(), "/sessions/" + made["session"].(string): made["text"].(string)} {
			if got := r.ask("GET", path, ref, nil); got.status != 403 || got.code() != "revoked" {
				t.Errorf("%s afterwards: %d %s", path, got.status, got.text)
			}
		}
		one := r.create()
		if died := r.must(200, "DELETE", space+"/refs/"+one.owner.ID, r.owner.Text(), nil); died["refs"] != json.Number("1") {
			t.Errorf("of a session: %v died", died["refs"])
		}
	})
}

// A ref of the space with manage stands for the owner's in every request to a session, whoever made it, and
// takes it over only if it says so.
func TestManage(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		space := "/spaces/" + r.owner.Target()
		maker := r.must(201, "POST", space+"/refs", r.owner.Text(), obj{"rights": []string{"create", "share", "list", "revoke"}})["text"].(string)
		manager := r.must(201, "POST", space+"/refs", r.owner.Text(), obj{"rights": []string{"manage", "share"}})["text"].(string)
		made := r.must(201, "POST", space+"/sessions", maker, obj{})
		at, owner := "/sessions/"+made["session"].(string), made["text"].(string)
		for _, ref := range []string{r.owner.Text(), manager} {
			if d := r.must(200, "GET", at, ref, nil)["grant"].(obj); d["ref"] != refOf(t, ref).ID || d["owner"] != true {
				t.Errorf("it is reached under %v", d)
			}
			minted := r.must(201, "POST", at+"/refs", ref, obj{"rights": []string{"read"}})
			r.must(200, "GET", at+"/events", minted["text"].(string), nil)
			if rows := r.must(200, "GET", at+"/refs", ref, nil)["refs"].([]any); rows[0].(obj)["ref"] != made["ref"] {
				t.Errorf("the refs are %v", rows)
			}
			r.must(200, "GET", at+"/audit", ref, nil)
			r.must(200, "DELETE", at+"/refs/"+minted["ref"].(string), ref, nil)
			for path, body := range map[string]any{"/rotate": obj{}, "/refs/" + made["ref"].(string): nil, "/refs/" + made["ref"].(string) + "?take_over=false": nil} {
				method := map[bool]string{true: "POST", false: "DELETE"}[body != nil]
				if got := r.ask(method, at+path, ref, body); got.code() != "not_an_owner" {
					t.Errorf("%s %s without a word: %d %s", method, path, got.status, got.text)
				}
			}
		}
		if got := r.ask("GET", at, maker, nil); got.code() != "missing_right" {
			t.Errorf("without the right: %d %s", got.status, got.text)
		}
		if got := r.ask("GET", "/sessions/"+capability.SessionPrefix+ulid.Make().String(), manager, nil); got.code() != "not_found" {
			t.Errorf("no session of the space: %d %s", got.status, got.text)
		}
		if got := r.ask("POST", space+"/refs", manager, obj{"rights": []string{"manage"}}); got.code() != "widening" {
			t.Errorf("giving it on: %d %s", got.status, got.text)
		}
		if got := r.ask("DELETE", at+"/refs/"+made["ref"].(string)+"?take_over=yes", manager, nil); got.code() != "bad_argument" {
			t.Errorf("take_over=yes: %d %s", got.status, got.text)
		}
		fresh := r.must(201, "POST", at+"/rotate", manager, obj{"take_over": true})
		if got := r.ask("GET", at, owner, nil); got.code() != "revoked" {
			t.Errorf("who had it: %d %s", got.status, got.text)
		}
		r.must(200, "GET", at, fresh["text"].(string), nil)
		r.must(200, "DELETE", at+"/refs/"+fresh["ref"].(string)+"?take_over=true", manager, nil)
		r.must(200, "DELETE", space+"/refs/"+refOf(t, manager).ID, r.owner.Text(), nil)
		if got := r.ask("GET", at, manager, nil); got.code() != "revoked" {
			t.Errorf("afterwards: %d %s", got.status, got.text)
		}
	})
}

// A rotated ref is another's, with all that was minted from it, and a rotation that comes again
// changes nothing.
func TestRotate(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		at, space := "/sessions/"+m.id, "/spaces/"+r.owner.Target()
		reader, lists := r.share(m, obj{"rights": []string{"read"}}), r.must(201, "POST", space+"/refs", r.owner.Text(), obj{"rights": []string{"list", "revoke"}})["text"].(string)
		for _, c := range []struct {
			path, reads, under string
			old                capability.Ref
			cut                any
		}{{at, at, reader, m.owner, json.Number("3")}, {space, space + "/sessions", lists, r.owner, nil}} {
			for i, wrong := range []struct {
				ref  string
				body any
				code fault.Code
			}{
				{c.under, obj{}, fault.NotAnOwner},
				{c.old.Text(), named(refOf(t, c.under), nil), fault.AlreadyExists},
				{c.old.Text(), named(c.old, nil), fault.AlreadyExists},
				{c.old.Text(), named(c.old.New(capability.SessionPrefix+ulid.Make().String()), nil), fault.BadArgument},
				{c.old.Text(), named(c.old.New(capability.SpacePrefix+ulid.Make().String()), nil), fault.BadArgument},
				{c.old.Text(), named(c.old.NewSealed(c.old.Target()), nil), fault.BadArgument},
				{c.old.Text(), obj{"ref": capability.FixedID(c.old.Target(), "x"), "hash": hashText(c.old.Secret)}, fault.BadArgument},
			} {
				if got := r.ask("POST", c.path+"/rotate", wrong.ref, wrong.body); got.code() != wrong.code.String() || got.status != wrong.code.HTTPStatus() {
					t.Errorf("%s, %d: %d %s, want %s", c.path, i, got.status, got.text, wrong.code)
				}
			}
			next := c.old.New(c.old.Target())
			for range 2 {
				if got := r.must(201, "POST", c.path+"/rotate", c.old.Text(), named(next, nil)); got["ref"] != next.ID || got["text"] != nil || got["cut"] != c.cut {
					t.Errorf("%s: rotated to %v, want the cut %v", c.path, got, c.cut)
				}
			}
			if got := r.ask("POST", c.path+"/rotate", c.old.Text(), obj{}); got.code() != "revoked" {
				t.Errorf("%s, once more to another: %d %s", c.path, got.status, got.text)
			}
			for ref, code := range map[string]string{c.old.Text(): "revoked", next.Text(): "", c.under: ""} {
				if got := r.ask("GET", c.reads, ref, nil); got.code() != code {
					t.Errorf("%s afterwards: %d %s, want %q", c.reads, got.status, got.text, code)
				}
			}
			last := r.must(201, "POST", c.path+"/rotate", next.Text(), obj{})
			r.must(200, "GET", c.reads, last["text"].(string), nil)
			if id := cmp.Or(last["session"], last["space"]); id != c.old.Target() || refOf(t, last["text"].(string)).ID != last["ref"] {
				t.Errorf("%s: %v", c.path, last)
			}
			if rows := r.must(200, "GET", c.path+"/refs", last["text"].(string), nil)["refs"].([]any); len(rows) < 2 || rows[0].(obj)["ref"] != last["ref"] {
				t.Errorf("%s: the refs are %v", c.path, rows)
			}
		}
	})
}

// The pages of an audit are a chain of hashes, for who may see it.
func TestAudits(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		at, space := "/sessions/"+m.id, "/spaces/"+r.owner.Target()
		reader := r.share(m, obj{"rights": []string{"read", "revoke"}, "actor": "owner/reader"})
		lists := r.must(201, "POST", space+"/refs", r.owner.Text(), obj{"rights": []string{"list", "revoke"}})["text"].(string)
		if got := r.ask("POST", at+"/rotate", reader, obj{}); got.code() != "not_an_owner" {
			t.Fatalf("%d %s", got.status, got.text)
		}
		r.must(200, "DELETE", at+"/refs/"+refOf(t, reader).ID, m.owner.Text(), nil)
		for _, c := range []struct {
			path, target, under string
			owner               capability.Ref
			code                string
		}{{at, m.id, reader, m.owner, "revoked"}, {space, r.owner.Target(), lists, r.owner, "missing_right"}} {
			if got := r.ask("GET", c.path+"/audit", c.under, nil); got.code() != c.code {
				t.Errorf("by a ref that was minted: %d %s", got.status, got.text)
			}
			for _, limit := range []int{1, 2, 1000} {
				var hash [32]byte
				acts, after := map[string]int{}, uint64(0)
				for more := true; more; {
					page := r.must(200, "GET", fmt.Sprintf("%s/audit?after=%d&limit=%d", c.path, after, limit), c.owner.Text(), nil)
					rows := page["rows"].([]any)
					if len(rows) == 0 || len(rows) > limit {
						t.Fatalf("%d rows of %d", len(rows), limit)
					}
					for _, row := range rows {
						one := auditRow(c.target, row.(obj))
						hash = capability.HashAuditRow(hash, one)
						if after++; one.Seq != after || row.(obj)["hash"] != hex.EncodeToString(hash[:]) {
							t.Fatalf("row %d is %v", after, row)
						}
						if one.Act != capability.AuditShare || one.Ref == c.owner.ID && one.Subject == refOf(t, c.under).ID && one.Peer != "" {
							acts[one.Act.String()]++
						}
					}
					if wholeOf(page["after"]) != after {
						t.Errorf("goes on after %v", page["after"])
					}
					if more = page["more"].(bool); !more && (wholeOf(page["seq"]) != after || page["head"] != hex.EncodeToString(hash[:])) {
						t.Errorf("ends with %v", page)
					}
				}
				if acts["share"] != 1 || acts["revoke"] != map[bool]int{true: 1}[c.path == at] {
					t.Errorf("%s: the acts are %v", c.path, acts)
				}
			}
			beyond := r.must(200, "GET", c.path+"/audit?after=1000", c.owner.Text(), nil)
			if beyond["more"] != false || len(beyond["rows"].([]any)) != 0 || beyond["after"] != json.Number("1000") {
				t.Errorf("beyond the end: %v", beyond)
			}
			for _, query := range []string{"after=-1", "after=x", "after=1.5", "limit=0", "limit=x", "from=1", "after=1&after=2", "after=18446744073709551616"} {
				if got := r.ask("GET", c.path+"/audit?"+query, c.owner.Text(), nil); got.status != 400 || got.code() != "bad_argument" {
					t.Errorf("%s: %d %s", query, got.status, got.text)
				}
			}
		}
		r.must(200, "POST", at+"/batches", m.owner.Text(), m.box.json(m.box.batch(m.id, op("delete"))))
		if rows := r.must(200, "GET", at+"/audit", m.owner.Text(), nil)["rows"].([]any); len(rows) == 0 {
			t.Error("a deleted session has no audit")
		}
	})
}

// auditRow is a row as it was shown.
func auditRow(target string, row obj) *capability.AuditRow {
	text := func(name string) string { s, _ := row[name].(string); return s }
	number := func(name string) uint64 {
		n, _ := row[name].(json.Number)
		v, _ := strconv.ParseUint(cmp.Or(n.String(), "0"), 10, 64)
		return v
	}
	one := &capability.AuditRow{Target: target, Seq: number("seq"), At: int64(number("at")), Ref: text("ref"), Actor: text("actor"), Subject: text("subject"),
		Op: text("op"), Cursor: number("cursor"), Count: uint32(number("count")), Peer: text("peer")}
	for one.Act.String() != text("act") {
		one.Act++
	}
	one.Reason, _ = fault.ParseCode(text("reason"))
	return one
}

// An acknowledgement alone is one: what is acknowledged is forgotten, and known over other wires.
func TestAcknowledge(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		r.put(m, 3)
		at, owner := "/sessions/"+m.id, m.owner.Text()
		for _, c := range []struct{ through, want uint64 }{{2, 2}, {1, 2}, {2, 2}, {4, 4}} {
			if got := r.must(200, "POST", at+"/acknowledge", owner, m.box.acknowledgement(c.through)); wholeOf(got["acked_through"]) != c.want || wholeOf(got["last_seq"]) != 4 {
				t.Errorf("%d: %v", c.through, got)
			}
		}
		live, err := r.server.Caller(t.Context(), "127.0.0.1:1").Restore(m.owner, "")
		if err != nil {
			t.Fatal(err)
		}
		if s, err := live.OpenStream(t.Context(), m.box.id, m.box.secret, 1); err != nil || s.AckedThrough != 4 {
			t.Errorf("the stream has %+v, %v", s, err)
		}
		newer, stranger := m.box.acknowledgement(4), newBox().acknowledgement(1)
		newer["incarnation"] = 2
		r.must(200, "POST", at+"/acknowledge", owner, newer)
		for i, c := range []struct {
			body obj
			code fault.Code
		}{{m.box.acknowledgement(4), fault.Fenced}, {stranger, fault.ServerBehind}} {
			if got := r.ask("POST", at+"/acknowledge", owner, c.body); got.code() != c.code.String() || got.status != c.code.HTTPStatus() {
				t.Errorf("%d: %d %s, want %s", i, got.status, got.text, c.code)
			}
		}
	})
}

// TestWrongArguments: each argument of each verb that changes authority, in each way that it can be wrong, is refused by its
// name, and nothing has changed.
func TestWrongArguments(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	at, space := "/sessions/"+m.id, "/spaces/"+r.owner.Target()
	texts := []any{7, true, obj{}, []any{}}
	hashes := append([]any{"", "x", strings.Repeat("A", 42), strings.Repeat("A", 44), strings.Repeat("!", 43), strings.Repeat("A", 42) + "B"}, texts...)
	numbers := []any{-1, 1.5, "x", "", "01", true, obj{}, []any{}, json.RawMessage("18446744073709551616")}
	lists := []any{"read", 7, obj{}, []any{7}, []any{nil}}
	refs := append([]any{nil, "x", m.owner.ID + "#x", m.owner.Text()}, texts...)
	ofRef := map[string][]any{"rights": append([]any{[]any{"fly"}, []any{}}, lists...), "methods": lists, "read_keys": append([]any{[]any{}, []any{"a//b"}}, lists...), "write_keys": append([]any{[]any{}, []any{"/"}}, lists...),
		"from": numbers, "redemptions": numbers, "expires_at": append([]any{1}, numbers...), "expires_in": append([]any{int64(1) << 60}, numbers...), "message": texts, "label": texts,
		"actor": append([]any{"owner//x"}, texts...), "seal": hashes, "ref": refs, "hash": append([]any{nil}, hashes...), "other": texts}
	for _, c := range []struct {
		path, owner string
		good        obj
		wrong       map[string][]any
	}{
		{at + "/refs", m.owner.Text(), named(m.owner.New(m.id), obj{"rights": []string{"read", "append"}}), ofRef},
		{space + "/refs", r.owner.Text(), named(r.owner.New(r.owner.Target()), obj{"rights": []string{"list"}}), ofRef},
		{at + "/rotate", m.owner.Text(), named(m.owner.New(m.id), nil), map[string][]any{"ref": refs, "hash": append([]any{nil}, hashes...), "rights": {[]any{"read"}}}},
		{space + "/rotate", r.owner.Text(), named(r.owner.New(r.owner.Target()), nil), map[string][]any{"ref": refs, "hash": append([]any{nil}, hashes...), "rights": {[]any{"list"}}}},
		{at + "/acknowledge", m.owner.Text(), m.box.acknowledgement(1), map[string][]any{"outbox": append([]any{"", strings.Repeat("x", 65), nil}, texts...),
			"secret": append([]any{nil}, hashes...), "incarnation": append([]any{0, nil}, numbers...), "acked_through": append([]any{0, nil}, numbers...), "ops": {[]any{}}}},
	} {
		for name, values := range c.wrong {
			for _, value := range values {
				body := obj{name: value}
				for other, v := range c.good {
					if other != name {
						body[other] = v
					}
				}
				got := r.ask("POST", c.path, c.owner, body)
				if got.status != 400 && got.code() != "widening" || got.message() == "" || len(got.message()) > 500 {
					t.Errorf("%s with %s = %v: %d %s", c.path, name, value, got.status, got.text)
				}
			}
		}
		for _, body := range []any{nil, "", "{", "[]", "null", `"x"`, "7"} {
			if got := r.ask("POST", c.path, c.owner, body); got.status != 400 || got.code() != "malformed" {
				t.Errorf("%s with %v: %d %s", c.path, body, got.status, got.text)
			}
		}
		if got := r.ask("POST", c.path+"?x=1", c.owner, c.good); got.status != 400 || got.code() != "bad_argument" {
			t.Errorf("%s with a parameter: %d %s", c.path, got.status, got.text)
		}
	}
	for path, owner := range map[string]string{at: m.owner.Text(), space: r.owner.Text()} {
		if rows := r.must(200, "GET", path+"/refs", owner, nil)["refs"].([]any); len(rows) > 2 {
			t.Errorf("%s has refs: %v", path, rows)
		}
		for _, row := range r.must(200, "GET", path+"/audit", owner, nil)["rows"].([]any) {
			if act := row.(obj)["act"]; act == "share" && row.(obj)["subject"] != m.owner.ID || act == "rotate" || act == "revoke" {
				t.Errorf("%s: the audit has %v", path, row)
			}
		}
	}
	live, err := r.server.Caller(t.Context(), "127.0.0.1:1").Restore(m.owner, "")
	if err != nil {
		t.Fatal(err)
	}
	if s, err := live.OpenStream(t.Context(), m.box.id, m.box.secret, 1); err != nil || s.AckedThrough != 0 {
		t.Errorf("the stream has %+v, %v", s, err)
	}
}

// attenuated is a request with limits beside its ref's.
func (r *rig) attenuated(method, path, ref string, body, limits any) *http.Request {
	req := r.request(method, path, ref, body)
	text, ok := limits.(string)
	if !ok {
		b, err := json.Marshal(limits)
		if err != nil {
			r.t.Fatal(err)
		}
		text = string(b)
	}
	req.Header.Set(attenuationHeader, text)
	return req
}

// TestEveryRouteIsAttenuated: no route of a session or space takes limits that are none, or does without the right that they leave out.
func TestEveryRouteIsAttenuated(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	m := r.create()
	r.put(m, 1)
	r.must(201, "POST", "/sessions/"+m.id+"/requests", m.owner.Text(), obj{"request": "r", "kind": "question"})
	box := newBox()
	bodies := map[string]any{"POST sessions/batches": box.json(box.batch(m.id, op("put", "key", "message/x", "payload", obj{}))), "POST sessions/acknowledge": m.box.acknowledgement(1),
		"POST sessions/refs": obj{"rights": []string{"read"}}, "POST spaces/refs": obj{"rights": []string{"list"}}, "POST sessions/rotate": obj{}, "POST spaces/rotate": obj{}, "POST spaces/sessions": obj{},
		"POST sessions/requests": obj{"kind": "question"}, "POST sessions/requests/{request_id}/answer": obj{}, "POST sessions/requests/{request_id}/withdraw": obj{}, "POST spaces/older": obj{"age": 1000}}
	queries := map[string]string{"sessions/search": "?q=x"}
	// What is left has no right that a route needs.
	refused := map[string]fault.Code{"POST sessions/rotate": fault.NotAnOwner, "POST spaces/rotate": fault.NotAnOwner, "GET sessions/audit": fault.NotAnOwner}
	count := 0
	for pattern, methods := range r.api.routes() {
		kind, rest, ok := strings.Cut(strings.TrimPrefix(pattern, Path), "/{id}")
		if !ok {
			continue
		}
		id, owner, left := m.id, m.owner, []string{"break"}
		if kind == "spaces" {
			id, owner = r.owner.Target(), r.owner
		}
		path := "/" + kind + "/" + id + strings.NewReplacer("{ref_id}", owner.ID, "{request_id}", "r").Replace(rest) + queries[kind+rest]
		for method := range methods {
			count++
			name := method + " " + kind + strings.TrimSuffix(rest, "/{ref_id}")
			body := bodies[name]
			for limits, code := range map[string]fault.Code{"": fault.Malformed, "{": fault.Malformed, "[]": fault.Malformed, "null": fault.Malformed, "7": fault.Malformed, `{"x":1}`: fault.Malformed, `{"rights":[]}`: fault.BadArgument,
				`{"rights":["fly"]}`: fault.BadArgument, `{"from":-1}`: fault.Malformed, `{"redemptions":1}`: fault.Malformed, `{"ref":"x"}`: fault.Malformed, `{"rights":["list"],"rights":["list"]}`: fault.Malformed, "{\"label\":\"\xff\"}": fault.Malformed,
				`{"methods":[]}`: fault.BadArgument, `{"label":"\n"}`: fault.BadArgument, `{"actor":"a//b"}`: fault.BadArgument, `{"expires_at":1}`: fault.BadArgument, `{"expires_at":18446744073709551615}`: fault.BadArgument,
				`{"read_keys":[]}`: fault.BadArgument, `{} {}`: fault.Malformed, `{"rights":["` + map[string]string{"sessions": "create", "spaces": "append"}[kind] + `"]}`: fault.BadArgument} {
				if got := r.do(r.attenuated(method, path, owner.Text(), body, limits)); got.status != 400 || got.code() != code.String() || !strings.Contains(got.message(), attenuationHeader) {
					t.Errorf("%s with %s: %d %s, want %s", name, limits, got.status, got.text, code)
				}
			}
			twice := r.attenuated(method, path, owner.Text(), body, obj{})
			twice.Header.Add(attenuationHeader, "{}")
			if got := r.do(twice); got.status != 400 || got.code() != "malformed" {
				t.Errorf("%s with two: %d %s", name, got.status, got.text)
			}
			if kind == "spaces" {
				switch left = []string{"create"}; name {
				case "POST spaces/sessions":
					left = []string{"list"}
				case "GET spaces/audit":
					left = []string{"create", "revoke"}
				}
			}
			want := fault.MissingRight
			if code, ok := refused[name]; ok {
				want = code
			}
			got := r.do(r.attenuated(method, path, owner.Text(), body, obj{"rights": left}))
			switch name {
			case "POST sessions/acknowledge", "GET spaces": // take no right
				if got.status != 200 {
					t.Errorf("%s with no right: %d %s", name, got.status, got.text)
				}
			case "POST sessions/batches": // records it
				if got.status != 200 || got.json["applied"] != json.Number("0") || got.json["rejected"] != json.Number("1") {
					t.Errorf("%s with no right: %d %s", name, got.status, got.text)
				}
			default:
				if got.status != 403 || got.code() != want.String() {
					t.Errorf("%s with no right: %d %s, want %s", name, got.status, got.text, want)
				}
			}
		}
	}
	if count < 28 {
		t.Errorf("%d routes were tried", count)
	}
}

// A request may be for less than its ref, in every way that a ref may be for less, and for no more.
func TestAttenuatedRequests(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		r.put(m, 3)
		at, space, owner := "/sessions/"+m.id, "/spaces/"+r.owner.Target(), m.owner.Text()
		do := func(method, path, ref string, body, limits any) *reply {
			t.Helper()
			return r.do(r.attenuated(method, path, ref, body, limits))
		}
		limits := obj{"rights": []string{"read", "append"}, "methods": []string{"put"}, "read_keys": []string{"message/m2"}, "write_keys": []string{"message/"}, "from": 2,
			"actor": "owner/tool", "label": "a tool", "expires_in": 60_000}
		d := do("GET", at, owner, nil, limits)
		if g, _ := d.json["grant"].(obj); d.status != 200 || g["owner"] != false || g["actor"] != "owner/tool" || g["label"] != "a tool" || g["ref"] != m.owner.ID || g["expires_at"] == nil ||
			fmt.Sprint(g["rights"], g["methods"], g["read_keys"], g["write_keys"], g["from"]) != "[read append] [put] [message/m2] [message/]2" {
			t.Errorf("it is %d %s", d.status, d.text)
		}
		for path, shows := range map[string]string{"/events": "message/m2", "/snapshot": "message/m2", "/state?values=true": "message/m2"} {
			got := do("GET", at+path, owner, nil, limits)
			if text := string(got.text); got.status != 200 || !strings.Contains(text, shows) || strings.Contains(text, "message/m3") {
				t.Errorf("%s: %d %s", path, got.status, got.text)
			}
		}
		box := newBox()
		ack := do("POST", at+"/batches", owner, box.json(box.batch(m.id, op("put", "key", "message/a", "payload", obj{}), op("remove", "key", "message/a"), op("put", "key", "todo/1", "payload", obj{}))), limits)
		if ack.json["applied"] != json.Number("1") || ack.json["rejected"] != json.Number("2") {
			t.Errorf("written: %d %s", ack.status, ack.text)
		}
		page := r.must(200, "GET", at+"/events?after=4", owner, nil)["events"].([]any)
		if e := page[0].(obj); e["actor"] != "owner/tool" || e["ref"] != m.owner.ID {
			t.Errorf("the event is %v", page[0])
		}
		// What it makes is for no more.
		shared := do("POST", at+"/refs", owner, obj{"rights": []string{"read"}}, obj{"rights": []string{"read", "share"}, "message": "m2"})
		if shared.status != 201 {
			t.Fatalf("%d %s", shared.status, shared.text)
		}
		if g := r.must(200, "GET", at, shared.json["text"].(string), nil)["grant"].(obj); g["message"] != "m2" {
			t.Errorf("what was shared allows %v", g)
		}
		for i, c := range []struct {
			method, path, ref string
			body, limits      any
			code              fault.Code
		}{
			{"GET", at, shared.json["text"].(string), nil, obj{"rights": []string{"read", "append"}}, fault.Widening},
			{"GET", at, shared.json["text"].(string), nil, obj{"message": "m3"}, fault.Widening},
			{"GET", at, owner, nil, obj{"actor": "other"}, fault.Widening},
			{"POST", at + "/refs", owner, obj{"rights": []string{"append"}}, obj{"rights": []string{"read", "share"}}, fault.Widening},
			{"DELETE", at + "/refs/" + m.owner.ID, owner, nil, obj{"rights": []string{"revoke"}}, fault.MissingRight},
			{"POST", space + "/sessions", r.owner.Text(), obj{"actor": "y"}, obj{"actor": "x"}, fault.Widening},
			{"DELETE", space + "/refs/" + r.owner.ID, r.owner.Text(), nil, obj{"rights": []string{"revoke"}}, fault.MissingRight},
			{"GET", space + "/sessions", r.owner.Text(), nil, obj{"from": 2}, fault.BadArgument},
			{"GET", space + "/sessions", r.owner.Text(), nil, obj{"message": "m"}, fault.BadArgument},
			{"GET", space + "/sessions", r.owner.Text(), nil, obj{"read_keys": []string{"a"}}, fault.BadArgument},
			{"GET", space + "/sessions", r.owner.Text(), nil, obj{"methods": []string{"put"}}, fault.BadArgument},
		} {
			if got := do(c.method, c.path, c.ref, c.body, c.limits); got.code() != c.code.String() || got.status != c.code.HTTPStatus() {
				t.Errorf("%d: %s %s: %d %s, want %s", i, c.method, c.path, got.status, got.text, c.code)
			}
		}
		// A stream ends when its time is over.
		s, refused := r.open(r.attenuated("GET", at+"/events?after=0", owner, nil, obj{"rights": []string{"read"}, "read_keys": []string{"message/m2"}, "expires_in": 1500}))
		if refused != nil {
			t.Fatalf("%d %s", refused.status, refused.text)
		}
		for {
			e, ok := s.next()
			if !ok || strings.Contains(e.data, "message/m3") {
				t.Fatalf("the stream has %+v, %v", e, ok)
			}
			if e.name == "ended" {
				if !strings.Contains(e.data, `"code":"expired"`) {
					t.Errorf("it ends with %+v", e)
				}
				break
			}
		}
		// What was recorded is answered once the ref is dead, too.
		guest, mine := r.share(m, obj{"rights": []string{"read", "append"}, "expires_in": 3600_000}), newBox()
		batch, some := mine.json(mine.batch(m.id, op("put", "key", "message/b", "payload", obj{}))), obj{"rights": []string{"append"}}
		if got := do("POST", at+"/batches", guest, batch, some); got.json["applied"] != json.Number("1") {
			t.Fatalf("%d %s", got.status, got.text)
		}
		r.must(200, "POST", at+"/batches", owner, m.box.json(m.box.batch(m.id, op("bumpEpoch"))))
		if got := do("POST", at+"/batches", guest, batch, some); got.status != 200 || got.json["duplicates"] != json.Number("1") {
			t.Errorf("again, of a dead ref: %d %s", got.status, got.text)
		}
		if got := do("GET", at, guest, nil, some); got.code() != "stale_epoch" {
			t.Errorf("a dead ref: %d %s", got.status, got.text)
		}
	})
}
