// Go functions as objects, and values as Go types: package convert decides, and knows the types of this package as kinds.

package capnweb

import (
	"context"
	"fmt"
	"reflect"
	"time"

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
type function struct{ convert.Function }

func newFunction(f any) (*function, error) {
	fn, err := convert.NewFunction(f, reflect.TypeFor[*Call]())
	if err != nil {
		return nil, err
	}
	return &function{*fn}, nil
}

// Serve implements Object.
func (fn *function) Serve(c *Call) {
	if fn.TakesContext {
		in, err := fn.arguments([]reflect.Value{{}}, c)
		if err != nil {
			c.Fail(err)
			return
		}
		c.Go(func(ctx context.Context) {
			in[0] = reflect.ValueOf(ctx)
			fn.answer(c, fn.F.Call(in))
		})
		return
	}
	var room [4]reflect.Value
	in, err := fn.arguments(room[:0], c)
	if err != nil {
		c.Fail(err)
		return
	}
	fn.answer(c, fn.F.Call(in))
}

// answer answers the call with the function's results.
func (fn *function) answer(c *Call, out []reflect.Value) {
	if fn.ReturnsError {
		if err, _ := out[len(out)-1].Interface().(error); err != nil {
			c.Fail(err)
			return
		}
	}
	switch {
	case fn.HasResult:
		c.Return(out[0].Interface())
	case fn.ReturnsError || !fn.TakesCall:
		c.Return(Undefined{})
	}
}

// arguments appends the function's arguments after its context to in. The error is a TypeError to the caller.
func (fn *function) arguments(in []reflect.Value, c *Call) ([]reflect.Value, error) {
	if fn.TakesCall {
		in = append(in, reflect.ValueOf(c))
	}
	in, err := fn.Arguments(in, c.Method(), c.Args())
	return in, typeError(err)
}

// Scan converts the arguments into the variables that dst point at, as Func does: a wrong type, too many or too few are a
// TypeError that names the argument, to be passed to Fail. A pointer type that is optional for Func is optional here.
func (c *Call) Scan(dst ...any) error { return typeError(convert.Scan(c.Method(), c.Args(), dst)) }

// As converts a value as arguments of Func are converted. The error is a TypeError that names the expected type.
func As[T any](v any) (T, error) {
	var to T
	if same, ok := v.(T); ok {
		return same, nil
	}
	err := typeError(convert.Into(&to, v))
	return to, err
}

// Into awaits the result and converts it to the variable dst points at, as arguments of Func are.
func (p *Promise) Into(ctx context.Context, dst any) error {
	v, err := p.Await(ctx)
	if err != nil {
		return err
	}
	return typeError(convert.Into(dst, v))
}

// goValue converts a Go value to one to send, one level of it.
func goValue(v any) (any, error) {
	w, err := convert.FromGo(v, func(f any) (any, error) { return newFunction(f) })
	return w, typeError(err)
}

// exactInt returns a number to send.
func exactInt(n int64) (any, error) {
	v, err := convert.ExactInt(n)
	return v, typeError(err)
}

// typeError returns what package convert says of a value as a TypeError.
func typeError(err error) error {
	if e, ok := err.(convert.TypeError); ok {
		return TypeErrorf("%s", e)
	}
	return err
}

var _ = convert.Use(Undefined{}, map[reflect.Type]convert.Kind{
	reflect.TypeFor[Undefined](): {Want: "undefined", Got: "undefined"},
	reflect.TypeFor[time.Time](): {Want: "a Date", Got: "a Date"},
	reflect.TypeFor[Headers]():   {Want: "Headers", Got: "Headers"},
	reflect.TypeFor[*Request]():  {Want: "a Request", Got: "a Request"},
	reflect.TypeFor[*Response](): {Want: "a Response", Got: "a Response"},
	reflect.TypeFor[*Blob]():     {Want: "a Blob", Got: "a Blob"},
	reflect.TypeFor[*Error]():    {Want: "an Error", Got: "an Error"},
	reflect.TypeFor[*Stub]():     {Want: "a function or an object with methods", Got: "a stub"},
	reflect.TypeFor[*Promise]():  {Want: "a promise", Got: "a promise"},
	reflect.TypeFor[*Readable](): {Want: "a ReadableStream", Got: "a ReadableStream"},
	reflect.TypeFor[*Writable](): {Want: "a WritableStream", Got: "a WritableStream"},
	reflect.TypeFor[error](): {Want: "an Error", Set: func(dst reflect.Value, v any) bool {
		e, ok := v.(*Error)
		if ok {
			dst.Set(reflect.ValueOf(e))
		}
		return ok
	}},
	reflect.TypeFor[URL](): {Want: "a URL", Got: "a URL", Set: func(dst reflect.Value, v any) bool {
		if u, ok := v.(URL); ok {
			v = string(u)
		}
		s, ok := v.(string)
		if ok {
			dst.SetString(s)
		}
		return ok
	}},
	reflect.TypeFor[Bytes](): {Want: "a container of bytes", Got: "a container of bytes", Bytes: func(v any) []byte { return v.(Bytes).Data },
		Set: func(dst reflect.Value, v any) bool {
			switch v := v.(type) {
			case Bytes:
				dst.Set(reflect.ValueOf(v))
			case []byte:
				dst.Set(reflect.ValueOf(Bytes{Container: "Uint8Array", Data: v}))
			default:
				return false
			}
			return true
		}},
})
