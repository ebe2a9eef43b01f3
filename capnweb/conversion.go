// Conversion between values and Go types, which package convert decides: the kinds of values of this package, and its errors.

package capnweb

import (
	"context"
	"reflect"
	"time"

	"github.com/mooring-rpc/mooring/capnweb/internal/convert"
)

// As converts a value as arguments of Func are converted. The error is a TypeError that names the expected type.
func As[T any](v any) (T, error) {
	var to T
	if same, ok := v.(T); ok {
		return same, nil
	}
	err := convertInto(&to, v)
	return to, err
}

// Into awaits the result and converts it to the variable dst points at, as arguments of Func are.
func (p *Promise) Into(ctx context.Context, dst any) error {
	v, err := p.Await(ctx)
	if err != nil {
		return err
	}
	return convertInto(dst, v)
}

// convertInto converts v to the variable dst points at.
func convertInto(dst, v any) error {
	bad, err := convert.Into(dst, v)
	if bad != nil {
		err = typeError(bad, "")
	}
	return err
}

func typeError(bad *convert.Mismatch, where string) *Error {
	return &Error{Name: "TypeError", Message: bad.Text(where)}
}

// goValue converts a Go value to one to send, one level of it.
func goValue(v any) (any, error) {
	w, err := convert.FromGo(v, func(f any) (any, error) { return newFunction(f) })
	return w, sendError(err)
}

// exactInt returns a number to send.
func exactInt(n int64) (any, error) {
	v, err := convert.ExactInt(n)
	return v, sendError(err)
}

// sendError returns the error of a value that cannot be sent as a TypeError.
func sendError(err error) error {
	if e, ok := err.(convert.Unsendable); ok {
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
