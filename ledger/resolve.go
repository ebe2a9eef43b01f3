package ledger

// References: durable promise pipelining. A reference is replaced by the exact bytes at its
// path in an earlier op's result.

import (
	"strconv"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
)

// Resolve returns the JSON text at path in result, byte for byte: a dot-separated walk through
// objects by key and arrays by index; "" is the whole. Keys with a dot in them cannot be named.
// The bytes are a copy. ok is false if the path does not exist.
func Resolve(result []byte, path string) (value []byte, ok bool) {
	at := gjson.ParseBytes(result)
	if path == "" {
		return []byte(at.Raw), at.Exists()
	}
	for _, step := range strings.Split(path, ".") {
		var next gjson.Result
		switch {
		case at.IsObject():
			at.ForEach(func(k, v gjson.Result) bool {
				if k.Str == step {
					next = v
					return false
				}
				return true
			})
		case at.IsArray():
			i, err := strconv.ParseUint(step, 10, 31)
			if err != nil || strconv.FormatUint(i, 10) != step {
				return nil, false
			}
			at.ForEach(func(_, v gjson.Result) bool {
				if i == 0 {
					next = v
					return false
				}
				i--
				return true
			})
		}
		if !next.Exists() {
			return nil, false
		}
		at = next
	}
	return []byte(at.Raw), true
}

// resolve returns op with a value in place of each reference that has one, and the error of the
// first that has none, or too large a one. op itself is not changed, and is returned as it is
// if it has no references. References to unknown ops stay, without an error here.
func (d *decision) resolve(op *Intent) (*Intent, *fault.Error) {
	if !op.hasRefs() {
		return op, nil
	}
	var first *fault.Error
	value := func(r *Ref) ([]byte, bool) {
		o, ok := d.outcome(r.Op)
		if !ok {
			return nil, false
		}
		v, ok := Resolve(o.Result, r.Path)
		if !ok && first == nil {
			first = fault.BadReference.With("the result of op %s has nothing at %q", r.Op, fault.Clip(r.Path))
		}
		return v, ok
	}
	in := *op
	copied := false
	for i, a := range op.Args {
		if a.Ref == nil {
			continue
		}
		if v, ok := value(a.Ref); ok {
			if !copied {
				in.Args, copied = append([]Arg(nil), op.Args...), true
			}
			in.Args[i] = Arg{Name: a.Name, JSON: v}
			if err := checkPayloadSize(&in.Args[i], d.lim); err != nil && first == nil {
				first = err
			}
		}
	}
	if r := op.Expected.Ref; r != nil {
		if v, ok := value(r); ok {
			n, err := strconv.ParseUint(string(v), 10, 64)
			if err == nil {
				in.Expected = Expect{Set: op.Expected.Set, Cursor: n}
			} else if first == nil {
				first = fault.BadReference.With("expected_cursor refers to %q of op %s, which is not a cursor", fault.Clip(r.Path), r.Op)
			}
		}
	}
	return &in, first
}

func isJSONObject(b []byte) bool {
	at := skipSpace(b, 0)
	return at < len(b) && b[at] == '{' && IsJSON(b)
}
