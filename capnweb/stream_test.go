// Streams, blobs and maps between two connections.

package capnweb_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
)

func streamTarget() *capnweb.Methods {
	return capnweb.NewMethods(map[string]any{
		"sum": func(ctx context.Context, r *capnweb.Readable) (int, error) {
			n := 0
			for {
				v, err := r.Read(ctx)
				if err == io.EOF {
					return n, nil
				}
				if err != nil {
					return n, err
				}
				n += len(v.([]byte))
			}
		},
		"count": func(n int) *capnweb.Readable {
			r, w := capnweb.NewReadable()
			go func() {
				for i := range n {
					if w.Write(bg, i) != nil {
						return
					}
				}
				w.Close(bg)
			}()
			return r
		},
		"fill": func(ctx context.Context, w *capnweb.Writable, n int) error {
			for range n {
				if err := w.Write(ctx, bytes.Repeat([]byte("x"), 1000)); err != nil {
					return err
				}
			}
			return w.Close(ctx)
		},
		"echo":        func(v any) any { return v },
		"ignore":      func(r *capnweb.Readable) string { return "done" },
		"list":        func() []any { return []any{1, 2, 3} },
		"square":      func(i float64) float64 { return i * i },
		"makeCounter": func(i int) *counter { return &counter{n: i} },
		"null":        func() any { return nil },
		"nested":      func() []any { return []any{[]any{1, 2}, []any{3}} },
	})
}

func TestStreams(t *testing.T) {
	p := serve(t, streamTarget())
	m := p.client.Main()
	defer m.Release()

	r, w := capnweb.NewReadable()
	sum := m.Call(bg, "sum", r)
	for range 300 {
		if err := w.Write(bg, make([]byte, 10000)); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(bg); err != nil {
		t.Fatal(err)
	}
	if v := await(t, sum); v != 3e6 {
		t.Fatalf("sum: %v", v)
	}
	sum.Release()

	count := m.Call(bg, "count", 5)
	rd := await(t, count).(*capnweb.Readable)
	var got []any
	for {
		v, err := rd.Read(bg)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, v)
	}
	if fmt.Sprint(got) != "[0 1 2 3 4]" {
		t.Fatal(got)
	}
	count.Release()

	n, closed := 0, make(chan error, 1)
	sink := capnweb.NewWritable(func(_ context.Context, v any) error {
		n += len(v.([]byte))
		return nil
	}, func(err error) { closed <- err })
	fill := m.Call(bg, "fill", sink, 1000)
	await(t, fill)
	fill.Release()
	if err := <-closed; err != nil || n != 1e6 {
		t.Fatal(n, err)
	}

	// The reader gives up: the writer learns of it.
	r, w = capnweb.NewReadable()
	ign := m.Call(bg, "ignore", r)
	await(t, ign)
	ign.Release()
	var err error
	for err == nil {
		err = w.Write(bg, "x")
	}
	if !strings.Contains(err.Error(), "canceled") {
		t.Fatal(err)
	}
	w.Abort(nil)

	// The sink fails: so does the writer.
	sink = capnweb.NewWritable(func(_ context.Context, v any) error { return errors.New("secret") }, func(err error) { closed <- err })
	fill = m.Call(bg, "fill", sink, 1000)
	if err := awaitErr(t, fill); strings.Contains(err.Error(), "secret") {
		t.Fatal(err)
	}
	fill.Release()
	if err := <-closed; err.Error() != "secret" {
		t.Fatal(err)
	}

	blob := &capnweb.Blob{Type: "text/plain", Data: bytes.Repeat([]byte("blob"), 50000)}
	echo := m.Call(bg, "echo", blob)
	back := await(t, echo).(*capnweb.Blob)
	if back.Type != blob.Type || !bytes.Equal(back.Data, blob.Data) {
		t.Fatal("another blob came back")
	}
	echo.Release()
	p.settle(0, 0)
}

func TestMap(t *testing.T) {
	p := serve(t, streamTarget())
	m := p.client.Main()
	defer m.Release()
	list := m.Call(bg, "list")
	squares := list.Map(func(in *capnweb.Promise) any { return m.Call(bg, "square", in) })
	if v := await(t, squares); fmt.Sprint(v) != "[1 4 9]" {
		t.Fatal(v)
	}
	counters := list.Map(func(in *capnweb.Promise) any {
		c := m.Call(bg, "makeCounter", in)
		return map[string]any{"in": in, "c": c, "next": c.Call(bg, "increment", 5), "value": c.Get("value")}
	})
	v := await(t, counters).([]any)
	if x := v[2].(map[string]any); x["in"] != 3.0 || x["next"] != 8.0 {
		t.Fatal(v)
	}
	c := v[2].(map[string]any)["c"].(*capnweb.Stub).Call(bg, "increment", 1)
	if v := await(t, c); v != 9.0 {
		t.Fatal(v)
	}
	c.Release()
	counters.Release()
	nested := m.Call(bg, "nested")
	deep := nested.Map(func(row *capnweb.Promise) any {
		return row.Map(func(x *capnweb.Promise) any { return m.Call(bg, "echo", []any{row.Get("0"), x}) })
	})
	if v := await(t, deep); fmt.Sprint(v) != "[[[1 1] [1 2]] [[3 3]]]" {
		t.Fatal(v)
	}
	for _, pr := range []*capnweb.Promise{list, squares, nested, deep} {
		pr.Release()
	}
	null := m.Call(bg, "null")
	none := null.Map(func(in *capnweb.Promise) any { return m.Call(bg, "square", in) })
	if v := await(t, none); v != nil {
		t.Fatal(v)
	}
	null.Release()
	none.Release()
	p.settle(0, 0)
}
