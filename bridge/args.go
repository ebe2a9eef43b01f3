// Arguments: positional ones, or one object with the parameters' names.

package bridge

import (
	"fmt"

	"capnproto.org/go/capnp/v3"
)

// arguments returns a call's arguments in the parameters' order; omitted ones are nil.
func (m *methodPlan) arguments(given []any) ([]any, error) {
	args := make([]any, len(m.params.fields))
	if len(given) == 1 {
		if object, ok := given[0].(map[string]any); ok && m.isNamed(object) {
			known := 0
			for i := range m.params.fields {
				v, there := object[m.params.fields[i].name]
				if there {
					known++
					args[i] = v
				}
			}
			if known < len(object) {
				return nil, m.params.unknownFieldError(object)
			}
			return args, nil
		}
	}
	for len(given) > len(args) && isAbsent(given[len(given)-1]) {
		given = given[:len(given)-1]
	}
	if len(given) > len(args) {
		return nil, &typeError{text: fmt.Sprintf("%s.%s takes at most %d arguments, got %d", m.owner, m.name, len(args), len(given))}
	}
	copy(args, given)
	return args, nil
}

// isNamed reports whether the only argument holds all parameters by name. If the first parameter is an object too, an
// argument that has one of that object's fields is that object.
func (m *methodPlan) isNamed(object map[string]any) bool {
	if len(m.params.fields) == 0 {
		return false
	}
	first := m.params.fields[0].typ
	if first.kind != kindStruct && first.kind != kindGroup {
		return true
	}
	parameter := false
	for name := range object {
		if first.of.field(name) != nil {
			return false
		}
		parameter = parameter || m.params.field(name) != nil
	}
	return parameter
}

// params writes a call's params.
func (w *writer) params(m *methodPlan, s capnp.Struct, args []any) error {
	for i := range m.params.fields {
		f := &m.params.fields[i]
		if isAbsent(args[i]) {
			continue
		}
		if err := w.field(f, s, args[i]); err != nil {
			return withPath(f.name, err)
		}
	}
	return nil
}
