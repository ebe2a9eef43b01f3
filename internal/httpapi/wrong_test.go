//go:build unix

// Wrong arguments: what each verb of values answers to them, over each of the three wires.

package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// wrongOps are the ops that a client refuses by itself, each with what it says: those of the table whose arguments
// are values. Servers are sent them too, by clients that check nothing.
func wrongOps(t *testing.T) (ops []ledger.Intent, says []string) {
	var table []struct {
		Method, Error string
		Args          []struct {
			Name, JSON string
			Ref        any
		}
	}
	if err := json.Unmarshal([]byte(readFile(t, "../../testdata/ops.json")), &table); err != nil {
		t.Fatal(err)
	}
rows:
	for _, row := range table {
		if row.Error == "" {
			continue
		}
		in := op(row.Method)
		for _, a := range row.Args {
			if a.Ref != nil {
				continue rows
			}
			in.Args = append(in.Args, ledger.Arg{Name: a.Name, JSON: []byte(a.JSON)})
		}
		ops, says = append(ops, in), append(says, row.Error)
	}
	return ops, says
}

// anew are the same ops with ids of their own.
func anew(ops []ledger.Intent) []ledger.Intent {
	out := make([]ledger.Intent, len(ops))
	for i := range ops {
		out[i] = op(ops[i].Method)
		out[i].Args = ops[i].Args
	}
	return out
}

// senders open a stream of a ref's, over each wire.
func (r *rig) senders(t *testing.T, ref capability.Ref) map[string]func(...ledger.Intent) []ledger.Outcome {
	out := map[string]func(...ledger.Intent) []ledger.Outcome{}
	for i, open := range []func(*box) func(*ledger.Batch) applyReply{
		func(b *box) func(*ledger.Batch) applyReply {
			return r.overHTTP(ref, b, func(ledger.Arg) bool { return true })
		},
		func(b *box) func(*ledger.Batch) applyReply { return r.overCapnp(t, ref, b) },
		func(b *box) func(*ledger.Batch) applyReply { return r.overWeb(t, ref, b) },
	} {
		b := newBox()
		send := open(b)
		out[wires[i]] = func(ops ...ledger.Intent) []ledger.Outcome {
			t.Helper()
			got := send(b.batch(ref.Target(), anew(ops)...))
			if got.refusal != fault.None {
				t.Fatalf("%s: %v", wires[i], got.refusal)
			}
			return got.outcomes
		}
	}
	return out
}

// TestWrongOps: an op with a wrong argument, or one that does not fit what is there, is recorded with one clear
// error, the same over every wire, and changes nothing.
func TestWrongOps(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		for i, out := range r.senders(t, m.owner)[wires[0]](
			op("put", "key", "todo/1", "payload", json.RawMessage(`{"n":9007199254740991,"t":"hush","a":1,"h":1.0}`)),
			op("put", "key", "todo/2", "payload", json.RawMessage(`{"a":"hush","a":2}`)),
			op("put", "key", "todo/3", "payload", []string{"hush"}),
			op("put", "key", "todo/taken", "payload", obj{"n": 1}),
			op("put", "key", "strict/1", "payload", obj{"n": 1}),
			op("put", "key", "schema/strict", "payload", json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","maximum":1}},"required":["n"],"maxProperties":1}`)),
			op("put", "key", "message/m", "payload", obj{}),
		) {
			if out.Status != ledger.Applied {
				t.Fatalf("op %d: %+v", i, out)
			}
		}
		taken := r.senders(t, m.owner)[wires[0]](op("claim", "key", "todo/taken", "lease", 3_600_000))[0].Cursor
		ref := func(wish obj) capability.Ref {
			ref, err := capability.ParseRef(r.share(m, wish))
			if err != nil {
				t.Fatal(err)
			}
			return ref
		}
		reader, appender := ref(obj{"rights": []string{"read"}}), ref(obj{"rights": []string{"read", "append"}})
		narrow := ref(obj{"rights": []string{"read", "append"}, "write_keys": []string{"todo/mine/"}})
		blind, putter := ref(obj{"rights": []string{"append"}}), ref(obj{"rights": []string{"append"}, "methods": []string{"put"}})
		at := "/sessions/" + m.id
		state := func() string { return string(r.ask("GET", at+"/snapshot", m.owner.Text(), nil).text) }
		before := state()

		ops, says := wrongOps(t)
		if len(ops) < 250 {
			t.Fatalf("the table has %d wrong ops", len(ops))
		}
		for name, send := range r.senders(t, m.owner) {
			for i, out := range send(ops...) {
				if got := out.Reason.String() + ": " + out.Message; out.Status != ledger.Rejected || got != says[i] || len(out.Result) > 0 {
					t.Errorf("%s: %s %v: %+v, want %s", name, ops[i].Method, ops[i].Args, out, says[i])
				}
			}
		}

		by := map[string]map[string]func(...ledger.Intent) []ledger.Outcome{} // a ref that can change nothing has few streams
		n := func(text string) json.RawMessage { return json.RawMessage(text) }
		for _, c := range []struct {
			by     capability.Ref
			op     ledger.Intent
			status ledger.Status
			reason fault.Code
			says   string
		}{
			{m.owner, op("add", "key", "todo/1", "member", "n", "by", 1), ledger.Rejected, fault.BadPayload, "the sum"},
			{m.owner, op("add", "key", "todo/1", "member", "t", "by", 1), ledger.Rejected, fault.BadPayload, "no integer"},
			{m.owner, op("add", "key", "todo/1", "member", "h", "by", 1), ledger.Rejected, fault.BadPayload, "no integer"},
			{m.owner, op("add", "key", "todo/2", "member", "b", "by", 1), ledger.Rejected, fault.BadPayload, "twice"},
			{m.owner, op("add", "key", "todo/3", "member", "a", "by", 1), ledger.Rejected, fault.BadPayload, "object"},
			{m.owner, op("patch", "key", "todo/2", "patch", n(`{"b":1}`)), ledger.Rejected, fault.BadPayload, "twice"},
			{m.owner, op("patch", "key", "todo/1", "patch", n(`{"b":{"c":1,"c":2}}`)), ledger.Rejected, fault.BadPayload, "twice"},
			{m.owner, op("patch", "key", "todo/1", "patch", n(`{"b":`)), ledger.Rejected, fault.Malformed, "patch"},
			{m.owner, op("put", "key", "todo/1", "payload", n(`{"b":`)), ledger.Rejected, fault.Malformed, "payload"},
			{m.owner, op("put", "key", "strict/1", "payload", obj{"n": 7}), ledger.Rejected, fault.BadPayload, "/n"},
			{m.owner, op("patch", "key", "strict/1", "patch", obj{"n": nil}), ledger.Rejected, fault.BadPayload, "required"},
			{m.owner, op("add", "key", "strict/1", "member", "n", "by", 1), ledger.Rejected, fault.BadPayload, "/n"},
			{m.owner, op("add", "key", "strict/1", "member", "m", "by", 1), ledger.Rejected, fault.BadPayload, "maxProperties"},
			{m.owner, op("put", "key", "schema/todo", "payload", obj{"type": "objekt"}), ledger.Rejected, fault.BadPayload, "schema"},
			{m.owner, op("put", "key", "schema/todo", "payload", obj{"$ref": "https://example.com/todo"}), ledger.Rejected, fault.BadPayload, "schema"},
			{m.owner, op("put", "key", "schema/todo", "payload", obj{"title": strings.Repeat("x", 64<<10)}), ledger.Rejected, fault.TooLarge, "65536"},
			{m.owner, op("put", "key", "schema/todo", "payload", 7), ledger.Rejected, fault.BadPayload, "schema"},
			{m.owner, op("put", "key", "todo/1", "payload", 1, "expect", 99), ledger.Conflict, fault.Conflict, "todo/1"},
			{m.owner, op("put", "key", "todo/1", "payload", 1, "expect", 0), ledger.Conflict, fault.Conflict, "todo/1"},
			{m.owner, op("patch", "key", "todo/none", "patch", obj{}, "expect", 1), ledger.Conflict, fault.Conflict, "todo/none"},
			{m.owner, op("add", "key", "todo/1", "member", "a", "by", 1, "expect", 1), ledger.Conflict, fault.Conflict, "todo/1"},
			{m.owner, op("remove", "key", "todo/1", "expect", 1), ledger.Conflict, fault.Conflict, "todo/1"},
			{m.owner, op("put", "key", "message/m", "payload", obj{"x": 1}, "expect", 1), ledger.Conflict, fault.Conflict, "message/m"},
			{m.owner, op("put", "key", "todo/1", "payload", 1, "claim", 1), ledger.Conflict, fault.Conflict, "not claimed"},
			{m.owner, op("put", "key", "todo/taken", "payload", 1), ledger.Conflict, fault.Conflict, "claimed by another"},
			{m.owner, op("put", "key", "todo/taken", "payload", 1, "claim", taken), ledger.Conflict, fault.Conflict, "claimed by another"},
			{m.owner, op("patch", "key", "todo/taken", "patch", obj{"x": 1}), ledger.Conflict, fault.Conflict, "claimed by another"},
			{m.owner, op("add", "key", "todo/taken", "member", "n", "by", 1, "claim", taken), ledger.Conflict, fault.Conflict, "claimed by another"},
			{m.owner, op("remove", "key", "todo/taken"), ledger.Conflict, fault.Conflict, "claimed by another"},
			{m.owner, op("claim", "key", "todo/taken", "lease", 1000), ledger.Conflict, fault.Conflict, "claimed by another"},
			{m.owner, op("claim", "key", "todo/none", "lease", 1000), ledger.Rejected, fault.NotFound, "todo/none"},
			{m.owner, op("claim", "key", "todo/1", "lease", "1s"), ledger.Rejected, fault.BadArgument, "lease"},
			{m.owner, op("release", "key", "todo/1", "claim", 1), ledger.Conflict, fault.Conflict, "todo/1"},
			{m.owner, op("release", "key", "todo/none", "claim", 1), ledger.Conflict, fault.Conflict, "todo/none"},
			{m.owner, op("release", "key", "todo/taken", "claim", 1), ledger.Conflict, fault.Conflict, "todo/taken"},
			{m.owner, op("release", "key", "todo/taken", "claim", "x"), ledger.Rejected, fault.BadArgument, "claim"},
			{appender, op("release", "key", "todo/taken", "claim", taken), ledger.Conflict, fault.Conflict, "break"},
			{appender, op("put", "key", "schema/todo", "payload", true), ledger.Denied, fault.MissingRight, "schema"},
			{appender, op("remove", "key", "schema/strict"), ledger.Denied, fault.MissingRight, "schema"},
			{appender, op("purge", "key", "todo/1"), ledger.Denied, fault.NotAnOwner, ""},
			{reader, op("put", "key", "todo/1", "payload", 1), ledger.Denied, fault.MissingRight, "append"},
			{reader, op("patch", "key", "todo/1", "patch", obj{}), ledger.Denied, fault.MissingRight, "append"},
			{reader, op("add", "key", "todo/1", "member", "a", "by", 1), ledger.Denied, fault.MissingRight, "append"},
			{reader, op("claim", "key", "todo/1", "lease", 1000), ledger.Denied, fault.MissingRight, "append"},
			{reader, op("claim", "prefix", "todo/", "lease", 1000), ledger.Denied, fault.MissingRight, "append"},
			{reader, op("release", "key", "todo/taken", "claim", taken), ledger.Denied, fault.MissingRight, "append"},
			{narrow, op("put", "key", "todo/1", "payload", 1), ledger.Denied, fault.MissingRight, "todo/1"},
			{narrow, op("patch", "key", "todo/1", "patch", obj{}), ledger.Denied, fault.MissingRight, "todo/1"},
			{narrow, op("add", "key", "todo/1", "member", "a", "by", 1), ledger.Denied, fault.MissingRight, "todo/1"},
			{narrow, op("remove", "key", "todo/1"), ledger.Denied, fault.MissingRight, "todo/1"},
			{narrow, op("claim", "key", "todo/1", "lease", 1000), ledger.Denied, fault.MissingRight, "todo/1"},
			{narrow, op("claim", "prefix", "todo/", "lease", 1000), ledger.Denied, fault.MissingRight, "todo/"},
			{narrow, op("release", "key", "todo/taken", "claim", taken), ledger.Denied, fault.MissingRight, "todo/taken"},
			{blind, op("claim", "prefix", "todo/", "lease", 1000), ledger.Denied, fault.MissingRight, "read"},
			{putter, op("patch", "key", "todo/1", "patch", obj{}), ledger.Denied, fault.MissingRight, "patch"},
			{putter, op("add", "key", "todo/1", "member", "a", "by", 1), ledger.Denied, fault.MissingRight, "add"},
			{putter, op("claim", "key", "todo/1", "lease", 1000), ledger.Denied, fault.MissingRight, "claim"},
			{putter, op("release", "key", "todo/taken", "claim", taken), ledger.Denied, fault.MissingRight, "release"},
		} {
			said := map[string]string{}
			if by[c.by.ID] == nil {
				by[c.by.ID] = r.senders(t, c.by)
			}
			for name, send := range by[c.by.ID] {
				out := send(c.op)[0]
				said[fmt.Sprintf("%v %v %q at %d", out.Status, out.Reason, out.Message, out.Cursor)] = name
				if out.Status != c.status || out.Reason != c.reason || !strings.Contains(out.Message, c.says) || len(out.Result) > 0 || strings.Contains(out.Message, "hush") {
					t.Errorf("%s: %s %v: %v %v %q %s, want %v %v with %q", name, c.op.Method, c.op.Args, out.Status, out.Reason, out.Message, out.Result, c.status, c.reason, c.says)
				}
			}
			if len(said) != 1 {
				t.Errorf("%s %v: %v", c.op.Method, c.op.Args, said)
			}
		}
		if after := state(); after != before {
			t.Errorf("the state was\n%s\nand is\n%s", before, after)
		}
	})
}

// TestWrongReads: get, list and search answer a wrong argument with the same error over every wire.
func TestWrongReads(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		m := r.create()
		r.put(m, 2)
		ref := func(wish obj) capability.Ref {
			ref, err := capability.ParseRef(r.share(m, wish))
			if err != nil {
				t.Fatal(err)
			}
			return ref
		}
		owner, appender := m.owner, ref(obj{"rights": []string{"append"}})
		at := "/sessions/" + m.id
		get := func(ref capability.Ref, key string) [3]func() error {
			return [3]func() error{
				func() error { return r.refused(at+"/state?key="+url.QueryEscape(key), ref) },
				func() error {
					return r.capnpRefused(t, ref, methods.SessionGet, func(s capnp.Struct, _ *rpc.CapTable) error {
						list, err := wire.Session_get_Params(s).NewKeys(1)
						return errors.Join(err, list.Set(0, key))
					})
				},
				func() error { return r.webRefused(t, ref, "get", []any{key}) },
			}
		}
		list := func(ref capability.Ref, q obj) [3]func() error {
			text := func(name string) string { s, _ := q[name].(string); return s }
			limit, _ := q["limit"].(int)
			query := url.Values{}
			for name, v := range q {
				query.Set(name, fmt.Sprint(v))
			}
			return [3]func() error{
				func() error { return r.refused(at+"/state?"+query.Encode(), ref) },
				func() error {
					return r.capnpRefused(t, ref, methods.SessionList, func(s capnp.Struct, _ *rpc.CapTable) error {
						p := wire.Session_list_Params(s)
						p.SetLimit(uint32(limit))
						return errors.Join(p.SetPrefix(text("prefix")), p.SetAfter(text("after")), p.SetOrder(text("order")))
					})
				},
				func() error { return r.webRefused(t, ref, "list", q) },
			}
		}
		search := func(ref capability.Ref, words, after string, limit int) [3]func() error {
			return [3]func() error{
				func() error {
					query := url.Values{"q": {words}}
					if after != "" {
						query.Set("after", after)
					}
					if limit != 0 {
						query.Set("limit", fmt.Sprint(limit))
					}
					return r.refused(at+"/search?"+query.Encode(), ref)
				},
				func() error {
					return r.capnpRefused(t, ref, methods.SessionSearch, func(s capnp.Struct, _ *rpc.CapTable) error {
						p := wire.Session_search_Params(s)
						p.SetLimit(uint32(limit))
						return errors.Join(p.SetQuery(words), p.SetAfter(after))
					})
				},
				func() error {
					return r.webRefused(t, ref, "search", obj{"query": words, "after": after, "limit": limit})
				},
			}
		}
		words := ""
		for i := range 65 {
			words += fmt.Sprint(i, " ")
		}
		for name, c := range map[string]struct {
			want fault.Code
			by   [3]func() error
		}{
			"get of no key":            {fault.BadKey, get(owner, "")},
			"get of a bad kind":        {fault.BadKey, get(owner, "Todo/1")},
			"get of a prefix":          {fault.BadKey, get(owner, "todo/")},
			"get of seven ids":         {fault.BadKey, get(owner, "todo/1/2/3/4/5/6/7")},
			"get of a long key":        {fault.BadKey, get(owner, "k/"+strings.Repeat("x", 600))},
			"get of a reserved kind":   {fault.BadKey, get(owner, "turn/1")},
			"get without read":         {fault.MissingRight, get(appender, "todo/1")},
			"a prefix without a slash": {fault.BadArgument, list(owner, obj{"prefix": "todo"})},
			"a prefix of two slashes":  {fault.BadArgument, list(owner, obj{"prefix": "todo//"})},
			"a prefix of a bad kind":   {fault.BadArgument, list(owner, obj{"prefix": "Todo/"})},
			"a prefix of seven ids":    {fault.BadArgument, list(owner, obj{"prefix": "todo/1/2/3/4/5/6/"})},
			"a prefix of a message":    {fault.BadArgument, list(owner, obj{"prefix": "message/m2/"})},
			"a reserved prefix":        {fault.BadArgument, list(owner, obj{"prefix": "turn/"})},
			"a slash":                  {fault.BadArgument, list(owner, obj{"prefix": "/"})},
			"an order":                 {fault.BadArgument, list(owner, obj{"order": "size"})},
			"a large page":             {fault.BadArgument, list(owner, obj{"limit": 1001})},
			"after no key":             {fault.BadArgument, list(owner, obj{"after": "~x"})},
			"after a key, by put":      {fault.BadArgument, list(owner, obj{"order": "put", "after": "message/m2"})},
			"list without read":        {fault.MissingRight, list(appender, obj{})},
			"search of nothing":        {fault.BadArgument, search(owner, "", "", 0)},
			"search of no word":        {fault.BadArgument, search(owner, "?!", "", 0)},
			"search of a null":         {fault.BadArgument, search(owner, "a\x00b", "", 0)},
			"search of much":           {fault.BadArgument, search(owner, strings.Repeat("a", 1001), "", 0)},
			"search of many words":     {fault.BadArgument, search(owner, words, "", 0)},
			"search after nothing":     {fault.BadArgument, search(owner, "a", "1", 0)},
			"a large page of results":  {fault.BadArgument, search(owner, "a", "", 101)},
			"search without read":      {fault.MissingRight, search(appender, "a", "", 0)},
		} {
			var said [3]string
			for i, ask := range c.by {
				err := ask()
				said[i] = fmt.Sprint(err)
				if fault.CodeOf(err) != c.want {
					t.Errorf("%s, %s: %v, want %s", name, wires[i], err, c.want)
				}
			}
			if said[0] != said[1] || said[0] != said[2] {
				t.Errorf("%s: %q", name, said)
			}
		}
	})
}

// refused is why HTTP refuses to read a path.
func (r *rig) refused(path string, ref capability.Ref) error {
	got := r.ask("GET", path, ref.Text(), nil)
	code, _ := fault.ParseCode(got.code())
	if code == fault.None || got.status != code.HTTPStatus() {
		return fmt.Errorf("%d %s", got.status, got.text)
	}
	return code.With("%s", got.message())
}

// capnpRefused is why a session refuses a call over Cap'n Proto.
func (r *rig) capnpRefused(t testing.TB, ref capability.Ref, method methods.Method, place func(capnp.Struct, *rpc.CapTable) error) error {
	_, _, err := r.capnpSession(t, ref).Call(within(t), method.Method, method.Params, place).Wait(within(t))
	if e, ok := errors.AsType[*rpc.Exception](err); ok {
		if f, ok := fault.ParseReason(e.Reason); ok {
			return f
		}
	}
	return err
}

// webRefused is why a session refuses a call over Cap'n Web.
func (r *rig) webRefused(t testing.TB, ref capability.Ref, method string, args ...any) error {
	_, err := r.webSession(t, ref).Call(within(t), method, args...).Await(within(t))
	if e, ok := errors.AsType[*capnweb.Error](err); ok {
		if f, ok := fault.ParseReason(e.Message); ok {
			return f
		}
	}
	return err
}
