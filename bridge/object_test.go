package bridge

import (
	"context"
	"errors"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/testschema/kinds"
	"github.com/mooring-rpc/mooring/rpc"
)

func errorText(err error) string {
	var e *capnweb.Error
	if errors.As(err, &e) {
		return e.Name + ": " + e.Message
	}
	return ""
}

// withoutIncident has the name of an incident replaced, which is another each time.
func withoutIncident(text string) string { return incidents.ReplaceAllString(text, "incident ID") }

var incidents = regexp.MustCompile(`\bincident [A-Z2-7]{12}\b`)

func TestCallsAndWhatTheyGive(t *testing.T) {
	t.Parallel()
	r := newRig(t, kindsConfig())
	two := map[string]any{"first": "x", "second": 4.0}
	for _, c := range []struct {
		method string
		args   []any
		want   any
	}{
		{"nothing", nil, capnweb.Undefined{}},
		{"nothing", []any{nil}, capnweb.Undefined{}},
		{"two", []any{"x"}, two},
		{"two", []any{"x", nil}, two},
		{"two", []any{"x", 4}, two},
		{"two", []any{map[string]any{"first": "x"}}, two},
		{"two", []any{map[string]any{"second": 4, "first": "x"}}, two},
		{"keep", []any{map[string]any{"n": 3}}, map[string]any{"n": 3.0, "next": nil}},
		{"keep", []any{map[string]any{"value": map[string]any{"n": 3}}}, map[string]any{"n": 3.0, "next": nil}},
		{"keep", []any{map[string]any{}}, map[string]any{"n": 0.0, "next": nil}},
		{"keep", nil, nil},
	} {
		got, err := r.call(c.method, c.args...)
		if err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s%v: %#v, %v, want %#v", c.method, c.args, got, err, c.want)
		}
	}
}

func TestCallsThatDoNotFit(t *testing.T) {
	t.Parallel()
	r := newRig(t, kindsConfig())
	for _, c := range []struct {
		method string
		args   []any
		want   string
	}{
		{"nope", nil, `TypeError: Server has no method "nope"`},
		{"two", []any{"x", 1, 2}, "TypeError: Server.two takes at most 2 arguments, got 3"},
		{"two", []any{map[string]any{"frist": "x"}}, "TypeError: frist: there is no such field: there are first, second"},
		{"two", []any{"x", "y"}, "TypeError: second: want a whole number from 0 to 4294967295, got a string"},
		{"keep", []any{map[string]any{"n": 300}}, "TypeError: value.n: out of range: a whole number from 0 to 255"},
		{"keep", []any{map[string]any{"value": map[string]any{}, "vlaue": 1}}, "TypeError: vlaue: there is no such field: there are value"},
		{"listen", []any{"no function"}, "TypeError: listener: want a function, got a string"},
		{"any", []any{[]any{func() {}}}, "TypeError: of[0]: not an object of this server"},
		{"any", []any{[]any{1}}, "TypeError: of[0]: want an object of this server, got a number"},
		{"fail", []any{"for a reason"}, "Error: for a reason"},
		{"fail", []any{"panic"}, "Error: internal error: the log says why at incident ID"},
		{"echo", []any{map[string]any{"data": make([]byte, 1<<20)}}, "RangeError: the arguments take more than 1048576 bytes"},
	} {
		_, err := r.call(c.method, c.args...)
		if withoutIncident(errorText(err)) != c.want {
			t.Errorf("%s: %v, want %s", c.method, err, c.want)
		}
	}
	if _, err := r.await(r.main.Call(context.Background(), "")); errorText(err) != "TypeError: a Server is not a function" {
		t.Errorf("called as a function: %v", err)
	}
	if _, err := r.await(r.main.Get("child").Call(context.Background(), "two", "x")); err == nil {
		t.Error("a method's method was called")
	}
	if _, err := r.call("nothing"); err != nil {
		t.Errorf("after all that: %v", err)
	}
}

// A child is called before it is there, in order; passed back it is the very object; nobody holds it afterwards.
func TestObjectsOfTheVat(t *testing.T) {
	t.Parallel()
	r := newRig(t, kindsConfig())
	child := r.main.Call(context.Background(), "child", "a")
	var answers []*capnweb.Promise
	for _, name := range []string{"1", "2", "3"} {
		answers = append(answers, child.Call(context.Background(), "two", name))
	}
	settle := func() {
		for _, a := range answers {
			if _, err := r.await(a); err != nil {
				t.Fatal(err)
			}
			a.Release()
		}
		answers = nil
	}
	settle() // two objects' calls have no order between them
	back := r.main.Call(context.Background(), "any", []any{r.main, child})
	answers = append(answers, back.Call(context.Background(), "two", "4"))
	settle()
	want := []string{"main/a two 1", "main/a two 2", "main/a two 3", "any main/a", "main/a two 4"}
	if got := r.noted(); !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	// Another interface than is wanted, and calls on what failed.
	if _, err := r.call("listen", r.main, 1); errorText(err) != "TypeError: listener: want an object of Listener, got one of Server" {
		t.Errorf("an object of another interface: %v", err)
	}
	if _, err := r.await(r.main.Call(context.Background(), "child", "").Call(context.Background(), "two", "5")); errorText(err) != "Error: a child needs a name" {
		t.Errorf("a call on what failed: %v", err)
	}
	child.Release()
	back.Release()
	r.leave()
	r.log.mu.Lock()
	defer r.log.mu.Unlock()
	if r.log.released != 2 {
		t.Errorf("%d of 2 objects are released", r.log.released)
	}
}

func TestCallbacks(t *testing.T) {
	t.Parallel()
	r := newRig(t, kindsConfig())
	var heard []any
	listener := func(call map[string]any) any {
		heard = append(heard, call)
		counted, ok := call["counted"].(map[string]any)
		if !ok {
			return "whatever"
		}
		return counted["a"].(float64) + counted["b"].(float64)
	}
	got, err := r.call("listen", listener, 3)
	want := []any{map[string]any{"heard": "begins"}, map[string]any{"counted": map[string]any{"a": 0.0, "b": 100.0}},
		map[string]any{"counted": map[string]any{"a": 1.0, "b": 100.0}}, map[string]any{"counted": map[string]any{"a": 2.0, "b": 100.0}}}
	if err != nil || got != 303.0 || !reflect.DeepEqual(heard, want) {
		t.Errorf("%v, %v: heard %v", got, err, heard)
	}
	_, err = r.call("listen", func(call map[string]any) (any, error) {
		return nil, &capnweb.Error{Name: "RangeError", Message: "no more"}
	}, 1)
	if text := errorText(err); text != "Error: RangeError: no more" {
		t.Errorf("a listener that fails: %v", err)
	}
	_, err = r.call("listen", func(call map[string]any) any { return "no number" }, 1)
	if text := errorText(err); !strings.Contains(text, "sum: want a whole number") {
		t.Errorf("a listener that returns something else: %v", err)
	}
	_, err = r.call("listen", nil, 1)
	if text := errorText(err); !strings.Contains(text, "null capability") {
		t.Errorf("no listener: %v", err)
	}
}

// A peer that gives a call up, or goes away, cancels it in the vat.
func TestCallsAreGivenUp(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(r *rig, p *capnweb.Promise){
		"the promise is released": func(_ *rig, p *capnweb.Promise) { p.Release() },
		"the connection ends":     func(r *rig, _ *capnweb.Promise) { r.client.Close("test") },
	} {
		r := newRig(t, kindsConfig())
		p := r.main.Call(context.Background(), "fail", "hang")
		if _, err := r.call("nothing"); err != nil { // it has arrived
			t.Fatal(err)
		}
		end(r, p)
		<-r.log.hangs
		r.leave()
		_ = how
	}
}

func TestRulesOfAnInterface(t *testing.T) {
	t.Parallel()
	refused := errors.New("refused")
	cfg := kindsConfig()
	cfg.MapException = func(ex *rpc.Exception) error { return &capnweb.Error{Name: "Error", Message: "told: " + ex.Reason} }
	cfg.TooLarge = func(limit int) error { return &capnweb.Error{Name: "Error", Message: "too large"} }
	cfg.Rules = Rules{
		Structs: map[uint64]StructRule{kinds.Inner_TypeID: {
			In: func(v any) (any, error) {
				if n, ok := v.(float64); ok {
					return map[string]any{"n": n}, nil
				}
				return v, nil
			},
			Out: func(o map[string]any) (any, error) {
				if o["n"] == uint64(99) {
					return nil, &capnweb.Error{Name: "Error", Message: "no 99"}
				}
				return o["n"], nil
			},
		}},
		Fields: map[FieldKey]FieldRule{{kinds.Kinds_TypeID, "byte"}: {
			In:  func(v any) (any, error) { return float64(len(v.(string))), nil },
			Out: func(v any) (any, error) { return strings.Repeat("x", int(v.(uint64))), nil },
		}},
		Methods: map[MethodKey]MethodRule{
			{kinds.Server_TypeID, "two"}: {Name: "pair", Alias: "duo", Results: func(o map[string]any) (any, error) { return []any{o["first"], o["second"]}, nil }},
			{kinds.Server_TypeID, "nothing"}: {Args: func(args []any) ([]any, func(any, error) (any, error), error) {
				return args, func(any, error) (any, error) { return "done", nil }, nil
			}},
			{kinds.Server_TypeID, "listen"}: {Args: func(args []any) ([]any, func(any, error) (any, error), error) {
				if args[1] == 7.0 {
					return nil, nil, TypeError("no 7")
				}
				args[0] = Func(func(call any) (any, error) {
					if _, first := call.(map[string]any)["heard"]; first {
						return nil, nil
					}
					return 5, nil
				})
				return args, nil, nil
			}},
		},
		Results: func(o map[string]any) error {
			switch o["first"] {
			case "refuse":
				return refused
			case "panic":
				panic("it was asked for")
			}
			return nil
		},
	}
	r := newRig(t, cfg)
	for _, c := range []struct {
		method string
		args   []any
		want   any
		err    string
	}{
		{"keep", []any{7}, 7.0, ""},
		{"keep", []any{99}, nil, "Error: no 99"},
		{"pair", []any{"a", 2}, []any{"a", 2.0}, ""},
		{"duo", []any{"a", 2}, []any{"a", 2.0}, ""},
		{"pair", []any{"refuse"}, nil, "Error: internal error"}, // an error that is made for nobody
		{"pair", []any{"panic"}, nil, "Error: internal error: the log says why at incident ID"},
		{"two", nil, nil, `TypeError: Server has no method "two"`},
		{"nothing", nil, "done", ""},
		{"listen", []any{nil, 2}, 10.0, ""},
		{"listen", []any{nil, 7}, nil, "TypeError: no 7"},
		{"fail", []any{"x"}, nil, "Error: told: x"},
		{"echo", []any{map[string]any{"data": make([]byte, 1<<20)}}, nil, "Error: too large"},
	} {
		got, err := r.call(c.method, c.args...)
		if withoutIncident(errorText(err)) != c.err || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %#v, %v, want %#v, %s", c.method, got, err, c.want, c.err)
		}
	}
	got, err := r.call("echo", map[string]any{"byte": "four"})
	if err != nil || got.(map[string]any)["byte"] != "xxxx" {
		t.Errorf("a field's rule: %v, %v", got, err)
	}
}
