package capnweb

import (
	"errors"
	"math"
	"math/big"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestEncodedArgsAreSentAsOthers to peers of each version, within each limit.
func TestEncodedArgsAreSentAsOthers(t *testing.T) {
	t.Parallel()
	deep := any("x")
	for range maxDepth - 3 {
		deep = []any{deep}
	}
	for name, args := range map[string][]any{
		"none":    {},
		"plain":   {nil, true, "a\"\u2028\\", 1.5, math.NaN(), Undefined{}, 7, int64(1 << 52)},
		"bytes":   {[]byte{1, 2, 3, 4}, Bytes{"Uint16Array", []byte{1, 2}}},
		"dates":   {time.UnixMilli(5), time.Time{}},
		"nested":  {[]any{}, []any{[]any{1}}, map[string]any{"b": []any{nil}, "a": map[string]any{"": "x"}}, struct{ A, B int }{1, 2}},
		"bigints": {big.NewInt(1 << 60), []any{big.NewInt(-1)}},
		"errors":  {&Error{Name: "TypeError", Message: "no", Props: map[string]any{"why": []any{1}}}},
		"http":    {URL("http://x"), Headers{{"a", "b"}}, &Request{URL: "u", Method: "PUT", Body: []byte{9}}, &Response{Status: 404, Body: "x"}},
		"deep":    {deep},
		"long":    {string(make([]byte, 3000))},
	} {
		encoded, err := EncodeArgs(args...)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, limits := range []Limits{{}, {BigIntDigits: 5}, {MessageBytes: 2000}} {
			for version := range 12 {
				synctest.Test(t, func(t *testing.T) {
					near, far := Pipe()
					c := NewConn(near, Config{Limits: limits})
					go func() { _ = c.Run(t.Context()) }()
					defer c.Close("test over")
					c.notePeerVersion(version)
					main := c.Main()
					defer main.Release()
					sent := func(p *Promise) (string, error) {
						defer p.Release()
						if _, ok := p.node.(*importNode); !ok {
							_, err := p.Await(t.Context())
							return "", err
						}
						for {
							b, err := far.Read(t.Context())
							if err != nil || strings.HasPrefix(string(b), `["push"`) {
								return string(b), err
							}
						}
					}
					want, wantErr := sent(main.Call(t.Context(), "m", args...))
					got, err := sent(main.CallEncoded(t.Context(), "m", encoded))
					if got != want || !reflect.DeepEqual(err, wantErr) || (want == "") != (wantErr != nil) {
						t.Errorf("%s to version %d, with %+v: sent %.200s (%v), want %.200s (%v)", name, version, limits, got, err, want, wantErr)
					}
				})
			}
		}
		first, _ := encoded.text(9)
		if again, _ := encoded.text(11); &first[0] != &again[0] {
			t.Errorf("%s: encoded again for another peer of the same kind", name)
		}
	}
}

// TestEncodedArgsWithinTheProcess: an object here gets the values themselves.
func TestEncodedArgsWithinTheProcess(t *testing.T) {
	t.Parallel()
	encoded, err := EncodeArgs("x", []any{1, map[string]any{"a": []byte{7}}})
	if err != nil {
		t.Fatal(err)
	}
	stub := NewStub(NewMethods(map[string]any{"both": func(a, b any) []any { return []any{a, b} }}))
	defer stub.Release()
	for range 2 {
		p := stub.CallEncoded(t.Context(), "both", encoded)
		got, err := p.Await(t.Context())
		if want := []any{"x", []any{1.0, map[string]any{"a": []byte{7}}}}; err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%#v, %v, want %#v", got, err, want)
		}
		p.Release()
	}
	stub.Release()
	p := stub.CallEncoded(t.Context(), "both", encoded)
	defer p.Release()
	if _, err := p.Await(t.Context()); err == nil {
		t.Error("a released stub was called")
	}
}

// TestArgsThatCannotBeEncodedOnce name what they have.
func TestArgsThatCannotBeEncodedOnce(t *testing.T) {
	t.Parallel()
	stub := NewStub(NewMethods(nil))
	defer stub.Release()
	promise, resolve := NewPromise()
	defer promise.Release()
	defer resolve(nil, nil)
	for name, v := range map[string]any{
		"a stub": stub, "a promise": promise, "a function": func() {}, "an object": NewMethods(nil), "a blob": &Blob{Data: []byte{1}},
		"a blob in an error": &Error{Props: map[string]any{"b": &Blob{}}},
	} {
		if _, err := EncodeArgs(1, []any{map[string]any{"x": v}}); !errors.Is(err, errEncodedReference) {
			t.Errorf("%s: %v, want %v", name, err, errEncodedReference)
		}
	}
	if _, err := EncodeArgs(make(chan int)); err == nil || errors.Is(err, errEncodedReference) {
		t.Errorf("a channel: %v", err)
	}
	loop := []any{nil}
	loop[0] = loop
	if _, err := EncodeArgs(loop); !errors.Is(err, errTooDeepOut) {
		t.Errorf("a value that contains itself: %v", err)
	}
}
