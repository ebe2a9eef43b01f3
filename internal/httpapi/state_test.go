//go:build unix

package httpapi

import (
	"encoding/json"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

// TestState: values by key and pages of a prefix, byte for byte, with who changed them last; a
// limited ref is shown its part, and each wrong request has its error.
func TestState(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		payload := json.RawMessage(`{ "n":1.0, "text":"<é>" }`)
		var ops []ledger.Intent
		want := []string{}
		for i := range 5 {
			key := fmt.Sprintf("part/m/%d", (i*3)%5)
			want = append(want, key)
			ops = append(ops, op("put", "key", key, "payload", payload))
		}
		ops = append(ops, op("put", "key", "message/other", "payload", obj{}))
		r.must(200, "POST", "/sessions/"+m.id+"/batches", m.owner.Text(), m.box.json(m.box.batch(m.id, ops...)))
		reader := r.share(m, obj{"rights": []string{"read"}, "message": "m"})
		at := "/sessions/" + m.id + "/state"
		for query, want := range map[string][]string{
			"prefix=part/m/&order=put": want,
			"prefix=part/m/&order=key": slices.Sorted(slices.Values(want)),
			"prefix=part/&values=true": slices.Sorted(slices.Values(want)),
			"prefix=message/":          {"message/other"},
			"prefix=model/":            nil,
		} {
			for _, limit := range []string{"&limit=2", ""} {
				var got []string
				for next, more := "", true; more; {
					page := r.must(200, "GET", at+"?"+query+limit+next, m.owner.Text(), nil)
					for _, e := range page["entries"].([]any) {
						entry := e.(obj)
						got = append(got, entry["key"].(string))
						if _, has := entry["payload"]; has != strings.Contains(query, "values=true") || entry["actor"] != "owner" || entry["ref"] != m.owner.ID || entry["at"] == nil {
							t.Errorf("%s: %v", query, entry)
						}
					}
					if more = page["more"].(bool); more {
						next = "&after=" + url.QueryEscape(page["next"].(string))
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("%s%s: %v, not %v", query, limit, got, want)
				}
			}
		}
		if last := r.must(200, "GET", at+"?prefix=part/&after=part/m/3", m.owner.Text(), nil); len(last["entries"].([]any)) != 1 || last["more"] != false {
			t.Errorf("after a key: %v", last)
		}
		one := r.ask("GET", at+"?key=part/m/3", m.owner.Text(), nil)
		if one.status != 200 || !strings.HasSuffix(string(one.text), `,"payload":`+string(payload)+`}`) || one.json["bytes"] != json.Number(fmt.Sprint(len(payload))) || one.json["cursor"] != json.Number("3") {
			t.Errorf("one key: %d %s", one.status, one.text)
		}
		if all := r.ask("GET", at+"?values=true", reader, nil); strings.Count(string(all.text), string(payload)) != 5 || strings.Contains(string(all.text), "other") {
			t.Errorf("of one message: %s", all.text)
		}
		for _, ask := range []struct{ query, ref, code string }{
			{"key=message/other", reader, "not_found"}, {"key=message/none", m.owner.Text(), "not_found"}, {"key=", m.owner.Text(), "bad_key"}, {"key=a+b", m.owner.Text(), "bad_key"},
			{"key=message/other&values=true", m.owner.Text(), "bad_argument"}, {"prefix=part", m.owner.Text(), "bad_argument"}, {"order=size", m.owner.Text(), "bad_argument"}, {"limit=0", m.owner.Text(), "bad_argument"},
			{"limit=1001", m.owner.Text(), "bad_argument"}, {"limit=x", m.owner.Text(), "bad_argument"}, {"values=1", m.owner.Text(), "bad_argument"}, {"after=~x", m.owner.Text(), "bad_argument"},
			{"order=put&after=part/m/1", m.owner.Text(), "bad_argument"}, {"from=1", m.owner.Text(), "bad_argument"},
			{"", r.share(m, obj{"rights": []string{"append"}}), "missing_right"},
		} {
			if got := r.ask("GET", at+"?"+ask.query, ask.ref, nil); got.code() != ask.code {
				t.Errorf("%s: %d %s, want %s", ask.query, got.status, got.text, ask.code)
			}
		}
	})
}

// TestSharesWaitForTheirFeature: while a server of the database is of the version before, no ref is minted that
// has what that server does not know.
func TestSharesWaitForTheirFeature(t *testing.T) {
	t.Parallel()
	st := teststore.Postgres(t, teststore.PostgresURL(t))
	if _, err := st.RecordReplica(t.Context(), "of the version before", 0, time.Hour); err != nil {
		t.Fatal(err)
	}
	r := start(t, st, nil)
	m := r.create()
	for _, body := range []obj{{"rights": []string{"read"}, "read_keys": []string{"todo/"}}, {"rights": []string{"append"}, "write_keys": []string{"todo/"}},
		{"rights": []string{"break"}}, {"rights": []string{"append"}, "methods": []string{"claim"}}} {
		if got := r.ask("POST", "/sessions/"+m.id+"/refs", m.owner.Text(), body); got.code() != "unsupported" {
			t.Errorf("%v: %d %s", body, got.status, got.text)
		}
	}
	r.share(m, obj{"rights": []string{"read", "append"}, "methods": []string{"put"}})
}

// TestBreak: a ref with the right ends another's claim, by its cursor; append does not do.
// TestSearch: pages of what has the words, with what they stand in; a limited ref finds in its part, and
// each wrong request has its error.
func TestSearch(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		r.must(200, "POST", "/sessions/"+m.id+"/batches", m.owner.Text(), m.box.json(m.box.batch(m.id,
			op("put", "key", "session", "payload", obj{"title": "Login fails"}), op("put", "key", "part/m/1", "payload", obj{"text": "checkLogin <é>"}),
			op("put", "key", "todo/1", "payload", []any{"x", obj{"a/b": "log in, login"}}), op("put", "key", "todo/login", "payload", nil))))
		at := "/sessions/" + m.id + "/search"
		var got []string
		for next, more := "", true; more; {
			page := r.must(200, "GET", at+"?limit=1&q=LOGIN"+next, m.owner.Text(), nil)
			for _, f := range page["found"].([]any) {
				entry := f.(obj)["entry"].(obj)
				got = append(got, fmt.Sprintf("%s %s %q", entry["key"], f.(obj)["place"], f.(obj)["excerpt"]))
				if entry["actor"] != "owner" || entry["payload"] != nil {
					t.Errorf("%v", entry)
				}
			}
			if page["indexing"] != false {
				t.Errorf("%v", page)
			}
			next = "&after=" + url.QueryEscape(page["next"].(string))
			more = page["next"] != ""
		}
		want := []string{`todo/login key ["" "login" ""]`, `todo/1 /1/a~1b ["log in, " "login" ""]`, `part/m/1 /text ["check" "Login" " <é>"]`, `session /title ["" "Login" " fails"]`}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		if page := r.must(200, "GET", at+"?q=%22log+in%22", m.owner.Text(), nil); len(page["found"].([]any)) != 1 {
			t.Errorf("a phrase: %v", page)
		}
		if page := r.must(200, "GET", at+"?q=login", r.share(m, obj{"rights": []string{"read"}, "message": "m"}), nil); len(page["found"].([]any)) != 1 || page["next"] != "" {
			t.Errorf("of one message: %v", page)
		}
		for _, ask := range []struct{ query, ref, code string }{
			{"", m.owner.Text(), "bad_argument"}, {"q=", m.owner.Text(), "bad_argument"}, {"q=%3F", m.owner.Text(), "bad_argument"}, {"q=%00a", m.owner.Text(), "bad_argument"}, {"q=a&limit=0", m.owner.Text(), "bad_argument"},
			{"q=a&limit=101", m.owner.Text(), "bad_argument"}, {"q=a&after=1", m.owner.Text(), "bad_argument"}, {"q=a&order=key", m.owner.Text(), "bad_argument"}, {"q=" + strings.Repeat("a-b-", 33), m.owner.Text(), "bad_argument"},
			{"q=" + strings.Repeat("a", 1001), m.owner.Text(), "bad_argument"}, {"q=a", r.share(m, obj{"rights": []string{"append"}}), "missing_right"},
		} {
			if got := r.ask("GET", at+"?"+ask.query, ask.ref, nil); got.code() != ask.code {
				t.Errorf("%.40q: %d %s, want %s", ask.query, got.status, got.text, ask.code)
			}
		}
	})
}

func TestBreak(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		at := "/sessions/" + m.id
		apply := func(ref string, in ledger.Intent) string {
			b := newBox()
			return string(r.ask("POST", at+"/batches", ref, b.json(b.batch(m.id, in))).text)
		}
		appender, breaker := r.share(m, obj{"rights": []string{"append"}}), r.share(m, obj{"rights": []string{"read", "break"}})
		apply(appender, op("put", "key", "todo/1", "payload", 1))
		apply(appender, op("claim", "key", "todo/1", "lease", 3_600_000))
		claim := r.must(200, "GET", at+"/state?key=todo/1", breaker, nil)["claim"].(obj)["cursor"]
		for _, c := range []struct {
			ref  string
			in   ledger.Intent
			want string
		}{
			{appender, op("release", "key", "todo/1", "claim", claim), "under a ref with the right break"},
			{breaker, op("release", "key", "todo/1"), `"bad_argument"`},
			{breaker, op("release", "key", "todo/1", "claim", 1), `"conflict"`},
			{breaker, op("put", "key", "todo/1", "payload", 2, "claim", claim), `"missing_right"`},
			{breaker, op("release", "key", "todo/1", "claim", claim), `"applied"`},
			{appender, op("put", "key", "todo/1", "payload", 2), `"applied"`},
		} {
			if got := apply(c.ref, c.in); !strings.Contains(got, c.want) {
				t.Errorf("%s %v: %s", c.in.Method, c.in.Args, got)
			}
		}
		log := r.ask("GET", at+"/events?after=0", breaker, nil)
		if want := fmt.Sprintf(`{"claim":%v,"broken":true}`, claim); !strings.Contains(string(log.text), want) {
			t.Errorf("the log does not have %s: %s", want, log.text)
		}
	})
}

// TestSchemas: a ref that may puts one, values are valid by it or rejected, and its key says since when.
func TestSchemas(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		at := "/sessions/" + m.id
		keeper := r.share(m, obj{"rights": []string{"read", "schema"}})
		appender := r.share(m, obj{"rights": []string{"append"}})
		schema := json.RawMessage(`{ "type":"object", "properties":{"n":{"type":"integer"}} }`)
		apply := func(ref string, in ledger.Intent) string {
			b := newBox()
			return string(r.ask("POST", at+"/batches", ref, b.json(b.batch(m.id, in))).text)
		}
		for _, c := range []struct {
			ref  string
			in   ledger.Intent
			want string
		}{
			{appender, op("put", "key", "schema/todo", "payload", schema), `"missing_right"`},
			{keeper, op("put", "key", "schema/todo", "payload", obj{"type": "objekt"}), `"bad_payload"`},
			{keeper, op("put", "key", "schema/todo", "payload", schema), `"applied"`},
			{appender, op("put", "key", "todo/1", "payload", obj{"n": 1.5}), `todo/1 breaks schema/todo at /n (type)`},
			{appender, op("put", "key", "todo/1", "payload", obj{"n": 1}), `"applied"`},
			{appender, op("patch", "key", "todo/1", "patch", obj{"n": "hush"}), `"bad_payload"`},
			{m.owner.Text(), op("put", "key", "schema/plan", "payload", false), `"applied"`},
		} {
			if got := apply(c.ref, c.in); !strings.Contains(got, c.want) || strings.Contains(got, "hush") {
				t.Errorf("%s %v: %s", c.in.Method, c.in.Args, got)
			}
		}
		one := r.ask("GET", at+"/state?key=schema/todo", keeper, nil)
		if one.status != 200 || !strings.HasSuffix(string(one.text), `,"payload":`+string(schema)+`}`) || one.json["cursor"] == nil {
			t.Errorf("the schema: %d %s", one.status, one.text)
		}
		if page := r.must(200, "GET", at+"/state?prefix=schema/", keeper, nil); len(page["entries"].([]any)) != 2 {
			t.Errorf("all schemas: %v", page)
		}
	})
}

// TestReverted: what a session is reverted to is in its description, for a ref that shows all of it, and what is
// hidden in none of the answers.
func TestReverted(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		do := func(ops ...ledger.Intent) {
			r.must(200, "POST", "/sessions/"+m.id+"/batches", m.owner.Text(), m.box.json(m.box.batch(m.id, ops...)))
		}
		reverted := func(ref string) any {
			return r.must(200, "GET", "/sessions/"+m.id, ref, nil)["session"].(obj)["reverted"]
		}
		do(op("put", "key", "message/a", "payload", obj{}), op("put", "key", "message/b", "payload", obj{}))
		part := r.share(m, obj{"rights": []string{"read"}, "message": "a"})
		do(op("revert", "to", "message/b"))
		all, some := reverted(m.owner.Text()), reverted(part)
		if of, is := all.(obj); !is || of["to"] != "message/b" || of["cursor"] != json.Number("5") || of["actor"] != "owner" || of["at"] == nil {
			t.Errorf("it is reverted to %v", all)
		}
		if fmt.Sprint(some) != "map[cursor:5]" {
			t.Errorf("to a ref of one message it is reverted to %v", some)
		}
		if snapshot := r.must(200, "GET", "/sessions/"+m.id+"/snapshot", m.owner.Text(), nil); len(snapshot["entries"].([]any)) != 1 {
			t.Errorf("a snapshot has %v", snapshot)
		}
		do(op("unrevert"))
		if now := reverted(m.owner.Text()); now != nil {
			t.Errorf("shown again, it is reverted to %v", now)
		}
		if snapshot := r.must(200, "GET", "/sessions/"+m.id+"/snapshot", m.owner.Text(), nil); len(snapshot["entries"].([]any)) != 2 {
			t.Errorf("a snapshot has %v", snapshot)
		}
	})
}
