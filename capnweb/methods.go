// Go functions as objects: typed arguments in, results and errors out.

package capnweb

import (
	"context"
	"fmt"
	"reflect"
	"strconv"

	"github.com/mooring-rpc/mooring/capnweb/internal/convert"
)

// Methods is an Object made of functions by name, each as Func takes it.
//
//	capnweb.NewMethods(map[string]any{
//		"square": func(i float64) float64 { return i * i },
//		"slow":   func(ctx context.Context, d int) (string, error) { … }, // takes a context: may block
//	})
type Methods struct {
	functions  map[string]*function
	properties map[string]func() any
}

// NewMethods makes an Object of functions by name. It panics for a value that is no function as Func takes it: a
// mistake in the program.
func NewMethods(methods map[string]any) *Methods {
	m := &Methods{functions: make(map[string]*function, len(methods))}
	for name, f := range methods {
		fn, err := newFunction(f)
		if err != nil {
			panic(fmt.Sprintf("capnweb: method %s: %v", name, err))
		}
		m.functions[name] = fn
	}
	return m
}

// WithProperty adds a property that is read by get at each access, like Getter's Get: get must not block. It is called
// before the object is served, and returns the object itself.
func (m *Methods) WithProperty(name string, get func() any) *Methods {
	if m.properties == nil {
		m.properties = map[string]func() any{}
	}
	m.properties[name] = get
	return m
}

// Serve implements Object.
func (m *Methods) Serve(c *Call) {
	f := m.functions[c.Method()]
	if f == nil || len(c.Path()) > 1 {
		c.Fail(noMethod(c.Method()))
		return
	}
	f.Serve(c)
}

func noMethod(name string) *Error {
	if name == "" {
		return TypeErrorf("this is an object, and cannot be called as a function")
	}
	return TypeErrorf("%s is not a method", convert.ClipName(name))
}

// Get implements Getter. A method is a property too: a function.
func (m *Methods) Get(name string) (any, bool) {
	if get := m.properties[name]; get != nil {
		return get(), true
	}
	if f := m.functions[name]; f != nil {
		return f, true
	}
	return nil, false
}

// Func makes an Object of a Go function: func([context.Context,] [*Call,] args…) [result] [, error].
//
// Arguments are converted: numbers and bigints to integers that hold them exactly, arrays to slices and arrays, objects
// to maps and to structs by their json tags (members without a field are ignored, unless the struct has a field
// `_ struct{}` tagged `capnweb:"strict"`), text to types that implement encoding.TextUnmarshaler; *Stub, any and the other
// types of the package comment are passed unchanged. A wrong type or count is a TypeError to the caller. Pointers to other
// types are optional: nil for null, for undefined and, where only optional parameters follow, for an omitted argument. A
// variadic parameter at the end takes the rest.
//
// With a context the function runs on a goroutine of its own (Call.Go) and may block; without one it runs as Serve does
// and must not. A function that takes the *Call and has no results answers the call itself.
//
// It panics for any other value: a mistake in the program.
func Func(f any) Object {
	fn, err := newFunction(f)
	if err != nil {
		panic("capnweb: " + err.Error())
	}
	return fn
}

// function is a Go function that can be called with received values.
type function struct {
	f            reflect.Value
	params       []reflect.Type
	setters      []convert.Setter // of params
	variadic     reflect.Type
	setVariadic  convert.Setter // setter of the variadic parameter, else nil
	required     int
	takesCtx     bool
	takesCall    bool
	result       bool // it returns a value
	returnsError bool // its last result is an error
}

var (
	typeContext = reflect.TypeFor[context.Context]()
	typeCall    = reflect.TypeFor[*Call]()
	typeOfError = reflect.TypeFor[error]()
)

func newFunction(f any) (*function, error) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Func {
		return nil, fmt.Errorf("%T is not a function", f)
	}
	if v.IsNil() {
		return nil, fmt.Errorf("%T is nil", f)
	}
	t := v.Type()
	fn := &function{f: v}
	i := 0
	if i < t.NumIn() && t.In(i) == typeContext {
		fn.takesCtx = true
		i++
	}
	if i < t.NumIn() && t.In(i) == typeCall {
		fn.takesCall = true
		i++
	}
	for ; i < t.NumIn(); i++ {
		p := t.In(i)
		variadic := t.IsVariadic() && i == t.NumIn()-1
		if variadic {
			p = p.Elem()
		}
		if p == typeContext || p == typeCall {
			return nil, fmt.Errorf("%s: the context and the call come first, in that order", t)
		}
		set, err := convert.SetterOf(p)
		if err != nil {
			return nil, fmt.Errorf("%s: argument %d: %w", t, len(fn.params)+1, err)
		}
		if variadic {
			fn.variadic, fn.setVariadic = p, set
			continue
		}
		fn.params, fn.setters = append(fn.params, p), append(fn.setters, set)
		if !convert.Optional(p) {
			fn.required = len(fn.params)
		}
	}
	n := t.NumOut()
	if n > 0 && t.Out(n-1) == typeOfError {
		fn.returnsError = true
		n--
	}
	if n > 1 {
		return nil, fmt.Errorf("%s: it may give one result and an error", t)
	}
	if fn.result = n == 1; fn.result {
		if err := sendable(t.Out(0), nil); err != nil {
			return nil, fmt.Errorf("%s: its result: %w", t, err)
		}
	}
	return fn, nil
}

// sendable returns an error for a result type of which no value can be sent.
func sendable(t reflect.Type, seen []reflect.Type) error {
	for _, s := range seen {
		if s == t {
			return nil
		}
	}
	switch t.Kind() {
	case reflect.Chan, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return fmt.Errorf("a %s cannot be sent", t)
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		if t.Kind() == reflect.Map && t.Key().Kind() != reflect.String {
			return fmt.Errorf("a %s cannot be sent: its keys are no strings", t)
		}
		return sendable(t.Elem(), append(seen, t))
	}
	return nil
}

// Serve implements Object.
func (fn *function) Serve(c *Call) {
	if fn.takesCtx {
		in, err := fn.arguments([]reflect.Value{{}}, c)
		if err != nil {
			c.Fail(err)
			return
		}
		c.Go(func(ctx context.Context) {
			in[0] = reflect.ValueOf(ctx)
			fn.answer(c, fn.f.Call(in))
		})
		return
	}
	var room [4]reflect.Value
	in, err := fn.arguments(room[:0], c)
	if err != nil {
		c.Fail(err)
		return
	}
	fn.answer(c, fn.f.Call(in))
}

// answer answers the call with the function's results.
func (fn *function) answer(c *Call, out []reflect.Value) {
	if fn.returnsError {
		if err, _ := out[len(out)-1].Interface().(error); err != nil {
			c.Fail(err)
			return
		}
	}
	switch {
	case fn.result:
		c.Return(out[0].Interface())
	case fn.returnsError || !fn.takesCall:
		c.Return(Undefined{})
	}
}

// arguments appends the function's arguments after its context to in. The error is a TypeError to the caller.
func (fn *function) arguments(in []reflect.Value, c *Call) ([]reflect.Value, error) {
	if fn.takesCall {
		in = append(in, reflect.ValueOf(c))
	}
	return fn.convert(in, c.Method(), c.Args())
}

func (fn *function) convert(in []reflect.Value, method string, args []any) ([]reflect.Value, error) {
	args, err := countArguments(method, args, fn.required, len(fn.params), fn.setVariadic != nil)
	if err != nil {
		return nil, err
	}
	for i := range max(len(args), len(fn.params)) {
		t, set := fn.variadic, fn.setVariadic
		if i < len(fn.params) {
			t, set = fn.params[i], fn.setters[i]
		}
		if i < len(args) && reflect.TypeOf(args[i]) == t {
			in = append(in, reflect.ValueOf(args[i]))
			continue
		}
		to := reflect.New(t).Elem()
		if i < len(args) {
			if bad := set(to, args[i]); bad != nil {
				return nil, typeError(bad, argumentName(method, i))
			}
		}
		in = append(in, to)
	}
	return in, nil
}

// countArguments checks the number of arguments, and drops superfluous undefined ones.
func countArguments(method string, args []any, required, most int, variadic bool) ([]any, error) {
	got := len(args)
	for !variadic && len(args) > most && args[len(args)-1] == any(Undefined{}) {
		args = args[:len(args)-1]
	}
	if len(args) >= required && (variadic || len(args) <= most) {
		return args, nil
	}
	takes := "no arguments"
	switch {
	case variadic:
		takes = "at least " + plural(required)
	case required != most:
		takes = strconv.Itoa(required) + " to " + plural(most)
	case most > 0:
		takes = plural(most)
	}
	if method == "" {
		method = "the function"
	}
	return nil, TypeErrorf("%s takes %s, got %d", convert.ClipName(method), takes, got)
}

func plural(n int) string {
	if n == 1 {
		return "1 argument"
	}
	return strconv.Itoa(n) + " arguments"
}

func argumentName(method string, i int) string {
	name := "argument " + strconv.Itoa(i+1)
	if method != "" {
		name += " of " + convert.ClipName(method)
	}
	return name
}

// Scan converts the arguments into the variables that dst point at, as Func does: a wrong type, too many or too few are a
// TypeError that names the argument, to be passed to Fail. A pointer type that is optional for Func is optional here.
func (c *Call) Scan(dst ...any) error { return scan(c.Method(), c.Args(), dst) }

func scan(method string, args, dst []any) error {
	required := 0
	for i, d := range dst {
		t := reflect.TypeOf(d)
		if t == nil || t.Kind() != reflect.Pointer {
			return fmt.Errorf("capnweb: Scan takes pointers, and its argument %d is a %T", i+1, d)
		}
		if !convert.Optional(t.Elem()) {
			required = i + 1
		}
	}
	args, err := countArguments(method, args, required, len(dst), false)
	if err != nil {
		return err
	}
	for i, d := range dst {
		to := reflect.ValueOf(d).Elem()
		if i >= len(args) {
			to.SetZero()
			continue
		}
		set, err := convert.SetterOf(to.Type())
		if err != nil {
			return err
		}
		if bad := set(to, args[i]); bad != nil {
			return typeError(bad, argumentName(method, i))
		}
	}
	return nil
}
