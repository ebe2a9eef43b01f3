// Functions as objects: signatures and arguments.

package capnweb

import (
	"context"
	"errors"
	"math/big"
	"reflect"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb/internal/convert"
)

func TestSignatures(t *testing.T) {
	good := []any{
		func() {}, func() error { return nil }, func() int { return 1 }, func() (any, error) { return nil, nil },
		func(context.Context) {}, func(*Call) {}, func(context.Context, *Call, int) (string, error) { return "", nil },
		func(...string) {}, func(int, *string, **Stub, ...any) {}, func() Object { return nil }, func() func(int) { return nil },
		func([]record, map[string]tree) record { return record{} }, func(*Stub) *Promise { return nil }, func(error) {},
	}
	for _, f := range good {
		if _, err := newFunction(f); err != nil {
			t.Errorf("%T: %v", f, err)
		}
	}
	bad := map[string]any{
		"is not a function": 1, "<nil> is not": nil, "is nil": (func())(nil),
		"argument 1: capnweb: no value can be converted into a chan int": func(chan int) {},
		"argument 2: capnweb: no value can be converted into a func()":   func(int, []func()) {},
		"into a map[int]int: its keys are no strings":                    func(map[int]int) {},
		"(field C of struct { C chan int })":                             func(struct{ C chan int }) {},
		"one result and an error":                                        func() (int, int) { return 0, 0 },
		"func() (error, error): it may give one result":                  nil,
		"come first": func(int, context.Context) {},
		"func(*capnweb.Call, context.Context): the context and the call":           func(*Call, context.Context) {},
		"its result: a chan int cannot be sent":                                    func() chan int { return nil },
		"its result: a map[int]int cannot be sent":                                 func() ([]map[int]int, error) { return nil, nil },
		"argument 1: capnweb: no value can be converted into a capnweb.Object":     func(Object) {},
		"no value can be converted into a interface { Do() }":                      func(interface{ Do() }) {},
		"no value can be converted into a complex128":                              func(complex128) {},
		"func(int, ...chan int): argument 2: capnweb: no value can be converted i": func(int, ...chan int) {},
	}
	delete(bad, "func() (error, error): it may give one result")
	for want, f := range bad {
		if _, err := newFunction(f); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%T: %v, want %s", f, err, want)
		}
	}
	for what, f := range map[string]func(){
		"capnweb: method m: int is not a function": func() { NewMethods(map[string]any{"m": 1}) },
		"capnweb: int is not a function":           func() { Func(1) },
	} {
		func() {
			defer func() {
				if got := recover(); got != what {
					t.Errorf("panic: %v, want %s", got, what)
				}
			}()
			f()
		}()
	}
}

func TestArguments(t *testing.T) {
	square := func(int) {}
	opt := func(string, *int, **Stub) {}
	rest := func(string, ...int) {}
	for _, c := range []struct {
		f    any
		args []any
		want []any
		err  string
	}{
		{square, list(3.0), list(3), ""},
		{square, list("x"), nil, "argument 1 of m: want a number, got a string"},
		{square, nil, nil, "m takes 1 argument, got 0"},
		{square, list(1.0, 2.0, 3.0), nil, "m takes 1 argument, got 3"},
		{square, list(1.0, Undefined{}, Undefined{}), list(1), ""},
		{square, list(1.0, Undefined{}, 3.0), nil, "m takes 1 argument, got 3"},
		{square, list(Undefined{}), nil, "argument 1 of m: want a number, got undefined"},
		{square, list(list(1.0)), nil, "argument 1 of m: want a number, got an array"},
		{func() {}, nil, nil, ""}, {func() {}, list(Undefined{}), nil, ""},
		{func() {}, list(nil), nil, "m takes no arguments, got 1"},
		{func(int, string) {}, list(1.0), nil, "m takes 2 arguments, got 1"},
		{opt, list("a"), list("a", (*int)(nil), (**Stub)(nil)), ""},
		{opt, list("a", Undefined{}, aStub), list("a", (*int)(nil), ptr(aStub)), ""},
		{opt, list("a", nil), list("a", (*int)(nil), (**Stub)(nil)), ""},
		{opt, list("a", 4.0, nil, nil), nil, "m takes 1 to 3 arguments, got 4"},
		{opt, nil, nil, "m takes 1 to 3 arguments, got 0"},
		{rest, list("a"), list("a"), ""}, {rest, list("a", 1.0, 2.0), list("a", 1, 2), ""},
		{rest, nil, nil, "m takes at least 1 argument, got 0"},
		{rest, list("a", 1.0, "b"), nil, "argument 3 of m: want a number, got a string"},
		{rest, list("a", Undefined{}), nil, "argument 2 of m: want a number, got undefined"},
		{func(any) {}, list(Undefined{}), list(Undefined{}), ""}, {func(any) {}, list(nil), list(nil), ""},
		{func(any) {}, nil, nil, "m takes 1 argument, got 0"},
		{func(...any) {}, list(nil, Undefined{}), list(nil, Undefined{}), ""},
		{func(*Stub) {}, nil, nil, "m takes 1 argument, got 0"},
		{func(*Stub) {}, list(nil), nil, "argument 1 of m: want a function or an object with methods, got null"},
		{func(record) {}, list(obj("next", obj("count", -1.0))), nil,
			"argument 1 of m at next.count: want a whole number from 0 to 65535, got another number"},
		{func([]inner) {}, list(list(obj(), obj("X", ""))), nil, "argument 1 of m at [1].X: want a number, got a string"},
		{func(int64) {}, list(big.NewInt(1 << 60)), list(int64(1 << 60)), ""},
	} {
		fn, err := newFunction(c.f)
		if err != nil {
			t.Fatal(err)
		}
		in, err := fn.Arguments(nil, "m", c.args)
		if c.err != "" || err != nil {
			if err == nil || err.Error() != c.err {
				t.Errorf("%T of %v: %v, want %s", c.f, c.args, err, c.err)
			}
			continue
		}
		var got []any
		for _, v := range in {
			got = append(got, v.Interface())
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%T of %v: %#v", c.f, c.args, got)
		}
		if len(in) == fn.F.Type().NumIn() || fn.F.Type().IsVariadic() {
			fn.F.Call(in)
		}
	}
}

func TestArgumentsOfFunction(t *testing.T) {
	fn, _ := newFunction(func(int) {})
	for want, args := range map[string][]any{
		"argument 1: want a number, got null":  {nil},
		"the function takes 1 argument, got 2": {1.0, 2.0},
	} {
		if _, err := fn.Arguments(nil, "", args); err == nil || err.Error() != want {
			t.Errorf("%v: %v", args, err)
		}
	}
}

func TestScan(t *testing.T) {
	fn, _ := newFunction(func(int) {})
	var (
		n    int
		s    *string
		stub *Stub
	)
	if err := convert.Scan("m", list(1.0, aStub, "x"), []any{&n, &stub, &s}); err != nil || n != 1 || stub != aStub || *s != "x" {
		t.Error(n, stub, s, err)
	}
	if err := convert.Scan("m", list(2.0, aStub), []any{&n, &stub, &s}); err != nil || n != 2 || s != nil {
		t.Error(n, s, err)
	}
	for want, f := range map[string]func() error{
		"m takes 2 to 3 arguments, got 1":                    func() error { return convert.Scan("m", list(1.0), []any{&n, &stub, &s}) },
		"m takes no arguments, got 1":                        func() error { return convert.Scan("m", list(1.0), nil) },
		"argument 2 of m: want a string, got a n":            func() error { return convert.Scan("m", list(1.0, 2.0), []any{&n, &s}) },
		"capnweb: Scan takes pointers, and its argument 1 i": func() error { return convert.Scan("m", list(1.0), []any{n}) },
		"capnweb: no value can be converted into a chan int": func() error { return convert.Scan("m", list(1.0), []any{new(chan int)}) },
	} {
		if err := f(); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	c := &Call{path: []string{"m"}, argValues: list("x")}
	if err := c.Scan(&n); !errors.As(err, new(*Error)) || err.Error() != "TypeError: argument 1 of m: want a number, got a string" {
		t.Error("not an *Error", err)
	}
	if _, err := fn.arguments(nil, c); !errors.As(err, new(*Error)) {
		t.Error("not an *Error", err)
	}
}

func TestMethodsProperties(t *testing.T) {
	n := 0
	m := NewMethods(map[string]any{"f": func() {}}).WithProperty("n", func() any { n++; return n })
	for range 2 {
		m.Get("n")
	}
	if v, ok := m.Get("n"); !ok || v != 3 {
		t.Error(v, ok)
	}
	if v, ok := m.Get("f"); !ok || v != Object(m.functions["f"]) {
		t.Error(v, ok)
	}
	if v, ok := m.Get("toString"); ok {
		t.Error(v)
	}
}

func BenchmarkArguments(b *testing.B) {
	fn, _ := newFunction(func(n int, r inner) int { return n })
	args := list(1.0, obj("X", 1.0, "Y", 2.0))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := fn.Arguments(nil, "m", args); err != nil {
			b.Fatal(err)
		}
	}
}
