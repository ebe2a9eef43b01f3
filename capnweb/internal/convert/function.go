// Functions: their signatures, and received values as their arguments.

package convert

import (
	"context"
	"fmt"
	"reflect"
	"strconv"
)

// Function is a Go function that can be called with received values.
type Function struct {
	F            reflect.Value
	TakesContext bool // before all
	TakesCall    bool // before all others
	HasResult    bool
	ReturnsError bool // its last result is an error

	params      []reflect.Type
	setters     []setter // of params
	variadic    reflect.Type
	setVariadic setter // of the variadic parameter, else nil
	required    int
}

var (
	typeContext = reflect.TypeFor[context.Context]()
	typeOfError = reflect.TypeFor[error]()
)

// NewFunction returns f, a function whose arguments after its context and call, and whose result, can be converted. call is the type of
// a call.
func NewFunction(f any, call reflect.Type) (*Function, error) {
	v := reflect.ValueOf(f)
	if v.Kind() != reflect.Func {
		return nil, fmt.Errorf("%T is not a function", f)
	}
	if v.IsNil() {
		return nil, fmt.Errorf("%T is nil", f)
	}
	t := v.Type()
	fn := &Function{F: v}
	i := 0
	if i < t.NumIn() && t.In(i) == typeContext {
		fn.TakesContext = true
		i++
	}
	if i < t.NumIn() && t.In(i) == call {
		fn.TakesCall = true
		i++
	}
	for ; i < t.NumIn(); i++ {
		p := t.In(i)
		variadic := t.IsVariadic() && i == t.NumIn()-1
		if variadic {
			p = p.Elem()
		}
		if p == typeContext || p == call {
			return nil, fmt.Errorf("%s: the context and the call come first, in that order", t)
		}
		set, err := setterOf(p)
		if err != nil {
			return nil, fmt.Errorf("%s: argument %d: %w", t, len(fn.params)+1, err)
		}
		if variadic {
			fn.variadic, fn.setVariadic = p, set
			continue
		}
		fn.params, fn.setters = append(fn.params, p), append(fn.setters, set)
		if !optional(p) {
			fn.required = len(fn.params)
		}
	}
	n := t.NumOut()
	if n > 0 && t.Out(n-1) == typeOfError {
		fn.ReturnsError = true
		n--
	}
	if n > 1 {
		return nil, fmt.Errorf("%s: it may give one result and an error", t)
	}
	if fn.HasResult = n == 1; fn.HasResult {
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

// Arguments appends to in the arguments that args are converted to. The error names the method and the argument.
func (fn *Function) Arguments(in []reflect.Value, method string, args []any) ([]reflect.Value, error) {
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
				return nil, bad.in(argumentName(method, i))
			}
		}
		in = append(in, to)
	}
	return in, nil
}

// countArguments checks the number of arguments, and drops superfluous undefined ones.
func countArguments(method string, args []any, required, most int, variadic bool) ([]any, error) {
	got := len(args)
	for !variadic && len(args) > most && args[len(args)-1] == undefined {
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
	return nil, typeErrorf("%s takes %s, got %d", ClipName(method), takes, got)
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
		name += " of " + ClipName(method)
	}
	return name
}

// Scan converts args, the arguments of a call of method, to the variables that dst point at.
func Scan(method string, args, dst []any) error {
	required := 0
	for i, d := range dst {
		t := reflect.TypeOf(d)
		if t == nil || t.Kind() != reflect.Pointer {
			return fmt.Errorf("capnweb: Scan takes pointers, and its argument %d is a %T", i+1, d)
		}
		if !optional(t.Elem()) {
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
		set, err := setterOf(to.Type())
		if err != nil {
			return err
		}
		if bad := set(to, args[i]); bad != nil {
			return bad.in(argumentName(method, i))
		}
	}
	return nil
}
