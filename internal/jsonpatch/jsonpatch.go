// Package jsonpatch changes members of a JSON value without touching the bytes of the others.
//
// What folding a session's log gives depends on this rule for ever: it is ours, frozen, and
// written twice, here and in clients/js/src/patch.ts. testdata/patch.json has the cases that both
// are held to. It means what RFC 7396 (JSON Merge Patch) means, and says in addition which bytes
// come out:
//
//   - A patch that is no object is the result, byte for byte. If it is one, a value that is absent
//     or no object counts as {}.
//   - A member that the patch does not name keeps its bytes and its place.
//   - A member that the patch sets to null is removed together with all that stands before it,
//     back to the end of the member that is kept before it: the comma and the white space around
//     it. If none is kept before it, the comma after it goes instead, and the white space after
//     the opening brace stands before the first member that is kept; if none is kept at all, what
//     is left between the braces is the white space before the closing one.
//   - A member that the patch sets to an object is merged with it by the same rule; its name and
//     the white space around it stay. Where the old value is no object, it is replaced by the
//     patch merged into {}.
//   - The value of a member that the patch sets to anything else is replaced by the value in the
//     patch, byte for byte, without white space around it.
//   - Other members of the patch, if they are not null, are added in the patch's order after the
//     last member's value: a comma if a member stands before, the name as the patch spells it, a
//     colon, the value.
//
// Names are the same if they stand for the same text, however they are spelled. In an object that
// is merged, on either side, a name that stands twice is an error, and one that holds half a
// surrogate pair or is not UTF-8. All other objects, those in lists among them, are not examined.
//
// The cost is linear in the bytes of both, however they are nested: each byte is passed once by
// each step, and nothing recurses.
package jsonpatch

import (
	"bytes"
	"strconv"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pieces"
	"github.com/mooring-rpc/mooring/ledger"
)

// maxInteger bounds what Add takes and gives: the integers that JavaScript's numbers hold exactly.
const maxInteger = 1<<53 - 1

// Merge returns the value with the patch merged into it, and what it has of the old value: made is nil
// if that is nothing. A value of no bytes is absent. Errors are BadPayload, and name places by their
// offset in bytes, never what stands there: who may write a value may not read it, perhaps. The result
// shares no memory with the arguments; made shares the result's.
func Merge(value, patch []byte) (result []byte, made pieces.List, err error) {
	return merge(value, patch, nil)
}

// Add returns the value, which is an object or absent, with a number added to one of its members.
// It is Merge with a patch that sets the member to what is there and by together; a member that is
// absent counts as 0, and its name is spelled with no escapes but those that JSON demands (as in
// RFC 8785). What is there, what is added and the sum are integers within ±(2^53 − 1), the first
// written without fraction, exponent or the sign of -0; anything else is BadPayload.
func Add(value []byte, member string, by int64) (result []byte, made pieces.List, err error) {
	switch {
	case len(value) > 0 && ledger.IsJSON(value) && !isObject(value):
		return nil, nil, fault.BadPayload.With("the value is no object: a number is added to a member of one")
	case by < -maxInteger || by > maxInteger:
		return nil, nil, fault.BadPayload.With("what is added is not within ±9007199254740991")
	case !utf8.ValidString(member):
		return nil, nil, fault.BadPayload.With("the member's name is not Unicode text")
	}
	patch := strconv.AppendInt(append(appendName([]byte{'{'}, member), ':'), by, 10)
	return merge(value, append(patch, '}'), func(old []byte, at int) ([]byte, error) {
		n, err := strconv.ParseInt(string(old), 10, 64)
		if err != nil || string(old) == "-0" || n < -maxInteger || n > maxInteger {
			return nil, fault.BadPayload.With("the member at byte %d of the value is no integer within ±9007199254740991: put one first", at)
		}
		if n += by; n < -maxInteger || n > maxInteger {
			return nil, fault.BadPayload.With("the sum for the member at byte %d of the value is not within ±9007199254740991", at)
		}
		return strconv.AppendInt(nil, n, 10), nil
	})
}

// merge is Merge, with what replaces a member's old value, if that is not the patch's value.
func merge(value, patch []byte, sum func(old []byte, at int) ([]byte, error)) ([]byte, pieces.List, error) {
	switch {
	case !ledger.IsJSON(patch):
		return nil, nil, fault.BadPayload.With("the patch is not JSON text, or nested too deep")
	case len(value) > 0 && !ledger.IsJSON(value):
		return nil, nil, fault.BadPayload.With("the value is not JSON text, or nested too deep")
	case !isObject(patch):
		return bytes.Clone(patch), nil, nil
	}
	old := isObject(value)
	if !old {
		value = []byte("{}")
	}
	m := newMerger(value, patch, sum)
	if err := m.merge(); err != nil {
		return nil, nil, err
	}
	if !old {
		return m.out, nil, nil
	}
	return m.out, m.made(), nil
}

func isObject(b []byte) bool {
	b = b[skipSpace(b):]
	return len(b) > 0 && b[0] == '{'
}

func skipSpace(b []byte) int { return len(b) - len(bytes.TrimLeft(b, " \t\r\n")) }

// merger merges one patch into one value; both are JSON text, and objects.
type merger struct {
	value, patch []byte
	sum          func(old []byte, at int) ([]byte, error)
	members      []member       // the patch's, each before those in it; the first is the patch itself
	names        map[nameIn]int // members by name; unnamed, for names of the value that the patch does not have
	out          []byte
	kept         []kept // parts of the value in out, in order
	passed       int    // bytes of value and patch that were passed, for the test that each is passed once
}

// kept is bytes from to below to of the value, which stand at byte at of out.
type kept struct{ at, from, to int }

// member is a member of the patch.
type member struct {
	name, value []byte // as in the patch; the name with its quotes
	object      bool   // value is an object: nil here, its members are the next ones
	next        int    // the index after it and all members in it
	met         bool   // the value has it too
}

func (m *member) null() bool { return string(m.value) == "null" }

// nameIn is a name in the object that is merged with one object of the patch, given by its index.
type nameIn struct {
	object int
	name   string
}

// unnamed is the index of members that the patch does not have.
const unnamed = -1

func newMerger(value, patch []byte, sum func(old []byte, at int) ([]byte, error)) *merger {
	return &merger{value: value, patch: patch, sum: sum, names: make(map[nameIn]int)}
}

func (m *merger) merge() error {
	if err := m.readPatch(); err != nil {
		return err
	}
	return m.walk()
}

// readPatch fills members and names.
func (m *merger) readPatch() error {
	i := skipSpace(m.patch)
	m.members = []member{{object: true}}
	open := []int{0} // objects that have begun and not ended
	for {
		object := open[len(open)-1]
		from, to, at, more := ledger.NextName(m.patch, i)
		if m.passed += from - i; more {
			name, err := nameAt(m.patch, from, to, "patch")
			if err != nil {
				return err
			}
			key, k := nameIn{object, name}, len(m.members)
			if _, twice := m.names[key]; twice {
				return errTwice("patch", from)
			}
			m.names[key] = k
			m.passed += at - from
			if m.patch[at] == '{' {
				m.members = append(m.members, member{name: m.patch[from:to], object: true})
				open = append(open, k)
				i = at
				continue
			}
			end, next := m.skip(m.patch, at)
			m.members = append(m.members, member{name: m.patch[from:to], value: m.patch[at:end], next: k + 1})
			i = next
		} else {
			i = from
		}
		for m.patch[i] == '}' {
			m.members[open[len(open)-1]].next = len(m.members)
			if open = open[:len(open)-1]; len(open) == 0 {
				return nil
			}
			_, i = m.skip(m.patch, i+1)
		}
	}
}

func (m *merger) skip(b []byte, i int) (end, next int) {
	end, next = ledger.SkipValue(b, i)
	m.passed += next - i
	return end, next
}

// merged is an object of the value that is being merged with one of the patch.
type merged struct {
	object int  // the patch's
	brace  int  // where the opening brace is
	first  int  // where the first member's name begins
	kept   bool // a member is in out
	end    int  // where the last member's value ends in the value, or the brace
}

// walk merges the patch into the value: it writes out.
func (m *merger) walk() error {
	v := m.value
	i := skipSpace(v)
	m.out = make([]byte, 0, len(v)+len(m.patch))
	m.keep(0, i+1)
	open := []merged{{brace: i, end: i + 1}}
	for {
		o := &open[len(open)-1]
		from, to, at, more := ledger.NextName(v, i)
		if m.passed += from - i; more {
			if v[i] == '{' {
				o.first = from
			}
			k, err := m.meet(o.object, from, to)
			if err != nil {
				return err
			}
			m.passed += at - from
			merges := k != unnamed && m.members[k].object && v[at] == '{'
			if k == unnamed || !m.members[k].null() {
				if o.kept {
					m.keep(o.end, from)
				} else {
					m.keep(o.brace+1, o.first)
				}
				m.keep(from, at)
				o.kept = true
			}
			if merges {
				m.keep(at, at+1)
				open = append(open, merged{object: k, brace: at, end: at + 1})
				i = at
				continue
			}
			o.end, i = m.skip(v, at)
			if err := m.replace(k, at, o.end); err != nil {
				return err
			}
		} else {
			i = from
		}
		for v[i] == '}' {
			o := &open[len(open)-1]
			m.add(o)
			m.keep(o.end, i+1)
			if open = open[:len(open)-1]; len(open) == 0 {
				m.keep(i+1, len(v))
				return nil
			}
			open[len(open)-1].end = i + 1
			_, i = m.skip(v, i+1)
		}
	}
}

// keep writes bytes from to below to of the value.
func (m *merger) keep(from, to int) {
	at := len(m.out)
	m.out = append(m.out, m.value[from:to]...)
	if n := len(m.kept); n > 0 {
		if last := &m.kept[n-1]; last.to == from && last.at+last.to-last.from == at {
			last.to = to
			return
		}
	}
	m.kept = append(m.kept, kept{at, from, to})
}

// made returns the pieces of out.
func (m *merger) made() (l pieces.List) {
	end := 0
	for _, k := range m.kept {
		l = l.New(m.out[end:k.at:k.at]).Keep(k.from, k.to)
		end = k.at + k.to - k.from
	}
	return l.New(m.out[end:])
}

// meet returns the index of the patch's member of the name that the value has at from.
func (m *merger) meet(object, from, to int) (int, error) {
	name, err := nameAt(m.value, from, to, "value")
	if err != nil {
		return 0, err
	}
	key := nameIn{object, name}
	k, known := m.names[key]
	switch {
	case !known:
		m.names[key] = unnamed
		return unnamed, nil
	case k == unnamed || m.members[k].met:
		return 0, errTwice("value", from)
	}
	m.members[k].met = true
	return k, nil
}

// replace writes what stands in place of bytes at to below end of the value: member k's.
func (m *merger) replace(k, at, end int) error {
	switch {
	case k == unnamed:
		m.keep(at, end)
	case m.sum != nil:
		text, err := m.sum(m.value[at:end], at)
		if err != nil {
			return err
		}
		m.out = append(m.out, text...)
	case !m.members[k].null():
		m.write(k)
	}
	return nil
}

// add writes the members of a patch's object that the value's object did not have.
func (m *merger) add(o *merged) {
	for k := o.object + 1; k < m.members[o.object].next; k = m.members[k].next {
		if p := &m.members[k]; !p.met && !p.null() {
			if o.kept {
				m.out = append(m.out, ',')
			}
			m.out = append(append(m.out, p.name...), ':')
			m.write(k)
			o.kept = true
		}
	}
}

// write writes the value of the patch's member k, merged into {} if it is an object.
func (m *merger) write(k int) {
	if !m.members[k].object {
		m.out = append(m.out, m.members[k].value...)
		return
	}
	m.out = append(m.out, '{')
	ends := []int{m.members[k].next} // of the objects that are open
	for k++; ; k++ {
		for k == ends[len(ends)-1] {
			m.out = append(m.out, '}')
			if ends = ends[:len(ends)-1]; len(ends) == 0 {
				return
			}
		}
		p := &m.members[k]
		if p.null() {
			continue
		}
		if m.out[len(m.out)-1] != '{' { // no value ends with it: it is the brace of this object
			m.out = append(m.out, ',')
		}
		m.out = append(append(m.out, p.name...), ':')
		if p.object {
			m.out = append(m.out, '{')
			ends = append(ends, p.next)
		} else {
			m.out = append(m.out, p.value...)
		}
	}
}

func errTwice(where string, at int) error {
	return fault.BadPayload.With("the %s has a name twice in one object, again at byte %d: name each member once", where, at)
}
