//go:build interop

// Our client: calls, errors, values, pipelining and map.

package npm

import (
	"strings"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/capnweb/testserver/target"
)

var callScenarios = []scenario{
	{name: "calls/result", batch: true, run: func(t *trial) { t.equal(t.ask("square", 3), 9.0) }},
	{name: "calls/several at once", batch: true, run: func(t *trial) {
		a, b, c, d := t.call("square", 2), t.call("returnNull"), t.call("returnUndefined"), t.call("generateFibonacci", 7)
		t.send()
		t.is(a, 4.0)
		t.is(b, nil)
		t.is(c, capnweb.Undefined{})
		t.is(d, []any{0.0, 1.0, 1.0, 2.0, 3.0, 5.0, 8.0})
	}},
	{name: "calls/Go's types", batch: true, run: func(t *trial) {
		type inner struct {
			A int    `json:"a"`
			B string `json:"b,omitempty"`
		}
		t.equal(t.ask("echo", []inner{{1, "x"}, {2, ""}}), []any{map[string]any{"a": 1.0, "b": "x"}, map[string]any{"a": 2.0}})
	}},
	{name: "calls/default argument", batch: true, run: func(t *trial) {
		c := t.call("makeCounter", 4)
		a, b, d := own(t, c.Call(t.ctx, "increment")), own(t, c.Call(t.ctx, "increment", 5)), t.call("incrementCounter", c)
		t.send()
		t.is(a, 5.0)
		t.is(b, 10.0)
		t.is(d, 11.0)
	}},
	{name: "calls/property", batch: true, run: func(t *trial) {
		p, q := own(t, t.main().Get("answer")), own(t, t.main().Get("nested", "a", "b"))
		after := t.call("makeCounter", 4)
		r := own(t, after.Get("value"))
		none, element := own(t, t.main().Get("noSuchThing")), own(t, t.main().Get("nested", "a", "b", "1"))
		if t.batched { // what a batch is to ask for must be known to it
			for _, p := range []*capnweb.Promise{p, q, r, none, element} {
				p.Then(func(any, error) {})
			}
		}
		t.send()
		t.is(p, 42.0)
		t.is(q, []any{1.0, 2.0, 3.0})
		t.is(r, 4.0)
		t.is(none, capnweb.Undefined{})
		t.is(element, 2.0)
	}},
	{name: "calls/missing method", batch: true, run: func(t *trial) {
		p := t.call("noSuchThing", 1)
		t.send()
		t.fails(p, "TypeError", "")
	}},
	{name: "calls/more arguments than there are", batch: true, run: func(t *trial) {
		p := t.call("square", 3, 4)
		t.send()
		if t.version == ours {
			t.fails(p, "TypeError", "square takes 1 argument, got 2")
		} else { // the package leaves them unread
			t.is(p, 9.0)
		}
	}},
	{name: "calls/method as a stub", run: func(t *trial) {
		square, ok := t.await(own(t, t.main().Get("square"))).(*capnweb.Stub)
		if !ok {
			t.Fatal("no stub")
		}
		t.is(own(t, square.Call(t.ctx, "", 5)), 25.0)
	}},
	{name: "calls/large", run: func(t *trial) {
		text := strings.Repeat("x", 3_000_000)
		t.equal(t.ask("echo", []any{text, text}), []any{text, text})
	}},
	{name: "calls/into", batch: true, run: func(t *trial) {
		p := t.call("echo", map[string]any{"name": "n", "list": []int{1, 2}})
		t.send()
		var v struct {
			Name string `json:"name"`
			List []int  `json:"list"`
		}
		if err := p.Into(t.ctx, &v); err != nil || v.Name != "n" || len(v.List) != 2 {
			t.Fatalf("%v, %+v", err, v)
		}
	}},

	{name: "errors/names", batch: true, run: func(t *trial) {
		for _, name := range []string{"TypeError", "RangeError", "SyntaxError", "Error"} {
			p := t.call("fail", name, "of it\u2028\"é😀")
			t.send()
			t.fails(p, name, "of it\u2028\"é😀")
		}
	}},
	{name: "errors/thrown", batch: true, run: func(t *trial) {
		p := t.call("throwError")
		t.send()
		t.fails(p, "RangeError", "test error")
	}},
	{name: "errors/properties", since: "0.8.0", batch: true, run: func(t *trial) {
		p := t.call("fail", "TypeError", "m", map[string]any{"code": 7, "detail": map[string]any{"list": []int{1}}})
		t.send()
		e := t.fails(p, "TypeError", "m")
		t.equal(e.Props, map[string]any{"code": 7.0, "detail": map[string]any{"list": []any{1.0}}})
	}},
	{name: "errors/rewritten", batch: true, run: func(t *trial) {
		p := t.call("failSecret")
		t.send()
		t.fails(p, "Error", "internal error")
	}},
}

// valueScenarios send, receive and echo a value of every type.
func valueScenarios() []scenario {
	var all []scenario
	for _, v := range target.Values() {
		blob := strings.Contains(v.Name, "blob")
		all = append(all,
			scenario{name: "values/sent/" + v.Name, since: v.Since, batch: true, run: func(t *trial) {
				t.equal(t.ask("describe", v.Make()), v.Text)
			}},
			scenario{name: "values/received/" + v.Name, since: v.Since, batch: !blob, sole: blob, run: func(t *trial) {
				t.equal(target.Describe(t.ask("make", v.Name)), v.Text)
			}},
			scenario{name: "values/echoed/" + v.Name, since: v.Since, batch: !blob, sole: blob, run: func(t *trial) {
				t.equal(target.Describe(t.ask("echo", v.Make())), v.Text)
			}})
	}
	return append(all,
		scenario{name: "values/blobs/several in one value", since: "0.8.0", sole: true, run: func(t *trial) {
			got := t.ask("echo", map[string]any{"a": &capnweb.Blob{Data: []byte("1")}, "list": []any{&capnweb.Blob{Type: "x/y", Data: []byte("22")}}})
			t.equal(target.Describe(got), "{a: blob::31, list: [blob:x/y:3232]}")
		}},
		scenario{name: "fetch/request", since: "0.5.0", batch: true, run: func(t *trial) {
			t.equal(t.ask("describeBody", &capnweb.Request{
				URL: "https://example.com/a?b=c", Method: "PUT", Headers: capnweb.Headers{{"x-a", "1"}}, Body: t.stream(nil, []byte("some "), []byte("body")),
			}), "PUT https://example.com/a?b=c x-a=1 some body")
		}},
		scenario{name: "fetch/request with text", since: "0.5.0", batch: true, run: func(t *trial) {
			t.equal(t.ask("describeBody", &capnweb.Request{
				URL: "https://example.com/", Method: "POST", Headers: capnweb.Headers{{"content-type", "a/b"}}, Body: "text",
			}), "POST https://example.com/ content-type=a/b text")
		}},
		scenario{name: "fetch/response", since: "0.5.0", batch: true, run: func(t *trial) {
			t.equal(t.ask("describeBody", &capnweb.Response{
				Status: 404, StatusText: "Not there", Headers: capnweb.Headers{{"x-a", "1"}}, Body: t.stream(nil, []byte("some body")),
			}), "404 Not there x-a=1 some body")
		}},
		scenario{name: "fetch/without a body", since: "0.5.0", batch: true, run: func(t *trial) {
			t.equal(t.ask("describeBody", &capnweb.Response{Status: 204}), "204   (none)")
			t.equal(t.ask("describeBody", &capnweb.Request{URL: "https://example.com/"}), "GET https://example.com/  (none)")
		}},
		scenario{name: "fetch/received", since: "0.5.0", sole: true, run: func(t *trial) {
			for method, want := range map[string]string{
				"makeRequest": "POST https://example.com/made x-made=yes request body", "makeResponse": "201 Made x-made=yes response body",
			} {
				text, err := target.DescribeBody(t.ctx, t.ask(method))
				if err != nil {
					t.Fatal(err)
				}
				t.equal(text, want)
			}
		}},
	)
}

var pipeliningScenarios = []scenario{
	{name: "pipelining/call on a promise", batch: true, run: func(t *trial) {
		p := own(t, t.call("makeCounter", 5).Call(t.ctx, "increment", 3))
		t.send()
		t.is(p, 8.0)
	}},
	{name: "pipelining/three deep", batch: true, run: func(t *trial) {
		a := t.call("self")
		b := own(t, a.Call(t.ctx, "self"))
		c := own(t, b.Call(t.ctx, "makeCounter", 1))
		p := own(t, c.Call(t.ctx, "increment", 2))
		t.send()
		t.is(p, 3.0)
	}},
	{name: "pipelining/in arguments", batch: true, run: func(t *trial) {
		p := t.call("square", t.call("square", t.call("square", 2)))
		t.send()
		t.is(p, 256.0)
	}},
	{name: "pipelining/deep in an argument", batch: true, run: func(t *trial) {
		p := t.call("echo", map[string]any{"a": []any{t.call("square", 2), map[string]any{"b": t.call("square", 3)}}})
		t.send()
		t.is(p, map[string]any{"a": []any{4.0, map[string]any{"b": 9.0}}})
	}},
	{name: "pipelining/promise in a result", batch: true, run: func(t *trial) {
		p := t.call("callSquare", t.main(), 3)
		t.send()
		t.is(p, map[string]any{"result": 9.0})
	}},
	{name: "pipelining/late promise in a result", since: ours, batch: true, run: func(t *trial) {
		p := t.call("later", 20, "v")
		t.send()
		t.is(p, map[string]any{"later": "v"})
	}},
	{name: "pipelining/promise as a capability", batch: true, run: func(t *trial) {
		c := t.call("makeCounter", 2)
		a, b := own(t, c.Call(t.ctx, "increment", 3)), t.call("incrementCounter", c, 4)
		t.send()
		t.is(a, 5.0)
		t.is(b, 9.0)
	}},
	{name: "pipelining/on a late result", batch: true, run: func(t *trial) {
		c := t.call("laterCounter", 20, 10)
		a, b := own(t, c.Call(t.ctx, "increment")), own(t, c.Call(t.ctx, "increment"))
		t.send()
		t.is(a, 11.0)
		t.is(b, 12.0)
	}},
	{name: "pipelining/by a path", batch: true, run: func(t *trial) {
		tree := t.call("tree")
		deep := own(t, tree.Get("deep"))
		a := own(t, own(t, tree.Get("deep", "counter")).Call(t.ctx, "increment"))
		b := own(t, deep.Call(t.ctx, "double", 4))
		t.send()
		t.is(a, 11.0)
		t.is(b, 8.0)
	}},
	{name: "pipelining/property as an argument", batch: true, run: func(t *trial) {
		p := t.call("square", own(t, t.main().Get("answer")))
		t.send()
		t.is(p, 1764.0)
	}},
	{name: "pipelining/method as an argument", batch: true, run: func(t *trial) {
		p := t.call("callFunction", own(t, t.main().Get("square")), 4)
		t.send()
		t.is(p, map[string]any{"result": 16.0})
	}},
	{name: "pipelining/errors", batch: true, run: func(t *trial) {
		failed := t.call("throwError")
		all := []*capnweb.Promise{failed, own(t, failed.Call(t.ctx, "thing")), t.call("square", failed), t.call("echo", []any{failed})}
		t.send()
		for _, p := range all {
			t.fails(p, "RangeError", "test error")
		}
	}},
	{name: "pipelining/not awaited", run: func(t *trial) {
		t.call("push", "x")
		t.equal(t.ask("takeLog"), []any{"x"})
	}},
}

var mapScenarios = []scenario{
	{name: "map/null, undefined, scalar, empty", batch: true, run: func(t *trial) {
		m := t.main()
		square := func(in *capnweb.Promise) any { return m.Call(t.ctx, "square", in) }
		a, b := own(t, t.call("returnNull").Map(square)), own(t, t.call("returnUndefined").Map(square))
		c, d := own(t, t.call("returnNumber", 3).Map(square)), own(t, t.call("generateFibonacci", 0).Map(square))
		t.send()
		t.is(a, nil)
		t.is(b, capnweb.Undefined{})
		t.is(c, 9.0)
		t.is(d, []any{})
	}},
	{name: "map/array", batch: true, run: func(t *trial) {
		m := t.main()
		p := own(t, t.call("generateFibonacci", 6).Map(func(in *capnweb.Promise) any { return m.Call(t.ctx, "square", in) }))
		t.send()
		t.is(p, []any{0.0, 1.0, 1.0, 4.0, 9.0, 25.0})
	}},
	{name: "map/nested", batch: true, run: func(t *trial) {
		m := t.main()
		p := own(t, t.call("generateFibonacci", 5).Map(func(i *capnweb.Promise) any {
			return m.Call(t.ctx, "generateFibonacci", i).Map(func(j *capnweb.Promise) any { return m.Call(t.ctx, "square", j) })
		}))
		t.send()
		t.is(p, []any{[]any{}, []any{0.0}, []any{0.0}, []any{0.0, 1.0}, []any{0.0, 1.0, 1.0}})
	}},
	{name: "map/result with literals", batch: true, run: func(t *trial) {
		m := t.main()
		p := own(t, t.call("range", 2).Map(func(in *capnweb.Promise) any {
			return map[string]any{"i": in, "square": m.Call(t.ctx, "square", in), "list": []any{in, "x", nil}}
		}))
		t.send()
		t.is(p, []any{
			map[string]any{"i": 0.0, "square": 0.0, "list": []any{0.0, "x", nil}},
			map[string]any{"i": 1.0, "square": 1.0, "list": []any{1.0, "x", nil}},
		})
	}},
	{name: "map/element's properties, several steps", batch: true, run: func(t *trial) {
		m := t.main()
		p := own(t, t.call("echo", []any{map[string]any{"a": map[string]any{"b": 2}}}).Map(func(in *capnweb.Promise) any {
			return m.Call(t.ctx, "square", m.Call(t.ctx, "square", in.Get("a", "b")))
		}))
		t.send()
		t.is(p, []any{16.0})
	}},
	{name: "map/of a property", batch: true, run: func(t *trial) {
		m := t.main()
		p := own(t, own(t, m.Get("nested", "a", "b")).Map(func(in *capnweb.Promise) any { return m.Call(t.ctx, "square", in) }))
		t.send()
		t.is(p, []any{1.0, 4.0, 9.0})
	}},
	{name: "map/of capabilities", batch: true, run: func(t *trial) {
		p := own(t, own(t, t.call("tree").Get("list")).Map(func(in *capnweb.Promise) any { return in.Call(t.ctx, "increment", 5) }))
		t.send()
		t.is(p, []any{25.0, 5.0})
	}},
	{name: "map/captures", batch: true, run: func(t *trial) {
		c := t.call("makeCounter", 0)
		p := own(t, t.call("range", 5).Map(func(in *capnweb.Promise) any { return c.Call(t.ctx, "increment", in) }))
		t.send()
		t.is(p, []any{0.0, 1.0, 3.0, 6.0, 10.0})
	}},
	{name: "map/captures of ours", loose: true, run: func(t *trial) {
		f := own(t, capnweb.NewStub(func(i float64) float64 { return i * 10 }))
		p := own(t, t.call("range", 4).Map(func(in *capnweb.Promise) any { return f.Call(t.ctx, "", in) }))
		t.is(p, []any{0.0, 10.0, 20.0, 30.0})
	}},
	{name: "map/errors", batch: true, run: func(t *trial) {
		m := t.main()
		p := own(t, t.call("range", 3).Map(func(*capnweb.Promise) any { return m.Call(t.ctx, "throwError") }))
		q := own(t, t.call("throwError").Map(func(in *capnweb.Promise) any { return m.Call(t.ctx, "square", in) }))
		t.send()
		t.fails(p, "RangeError", "test error")
		t.fails(q, "RangeError", "test error")
	}},
}
