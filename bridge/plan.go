// Plans: the schema's types, prepared for conversion.

package bridge

import (
	"math"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/rpc"
)

// kind is a type's kind.
type kind uint8

const (
	kindVoid kind = iota
	kindBool
	kindInt
	kindFloat
	kindEnum
	kindText
	kindData
	kindList
	kindStruct
	kindGroup
	kindCapability
)

// typePlan is a compiled type.
type typePlan struct {
	kind   kind
	bits   uint8 // of numbers
	signed bool
	names  []string       // of an enum, by number
	elem   *typePlan      // of a list
	of     *structPlan    // of a struct or group
	iface  *interfacePlan // of a capability; nil for any
}

// fieldPlan is a compiled field or parameter.
type fieldPlan struct {
	name   string
	typ    typePlan
	offset uint32 // of data in bits, of a pointer its index
	mask   uint64 // a number's default, with which its stored bits are XORed
	text   string // Text's and Data's default
	tag    uint16 // its number in the union; noTag outside of one
	rule   *FieldRule
}

const noTag = math.MaxUint16

// structPlan is a compiled struct, or a group in one.
type structPlan struct {
	name   string // without the file's
	size   capnp.ObjectSize
	fields []fieldPlan // in the schema's order
	union  bool
	tagAt  capnp.DataOffset
	rule   *StructRule
}

// field returns the field of a name; nil if there is none.
func (p *structPlan) field(name string) *fieldPlan {
	for i := range p.fields {
		if p.fields[i].name == name {
			return &p.fields[i]
		}
	}
	return nil
}

// interfacePlan is a compiled interface with its superclasses' methods.
type interfacePlan struct {
	id      uint64
	name    string
	ordered bool
	supers  map[uint64]bool // including itself
	methods map[string]*methodPlan
	byID    map[rpc.Method]*methodPlan // without names
}

// methodPlan is a compiled method.
type methodPlan struct {
	call    rpc.Method // without a name: objects of the vat compare it
	owner   string     // the interface's name
	name    string     // as peers call it
	params  *structPlan
	results *structPlan
	rule    *MethodRule
}
