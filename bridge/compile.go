// Compiling the schema's nodes to plans.

package bridge

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/std/capnp/schema"

	"github.com/mooring-rpc/mooring/rpc"
)

// Bridge is a compiled schema. It is immutable: all methods may be called concurrently.
type Bridge struct {
	cfg        Config
	interfaces map[uint64]*interfacePlan
}

// New compiles a schema's interfaces. The error says which part of it cannot be mapped.
func New(cfg Config) (*Bridge, error) {
	c := &compiler{cfg: cfg, structs: map[string]*structPlan{}, interfaces: map[uint64]*interfacePlan{}}
	for _, id := range cfg.Interfaces {
		if _, err := c.interfaceOf(id); err != nil {
			return nil, fmt.Errorf("bridge: %w", err)
		}
	}
	if err := c.unusedRuleError(); err != nil {
		return nil, fmt.Errorf("bridge: %w", err)
	}
	return &Bridge{cfg: cfg, interfaces: c.interfaces}, nil
}

// compiler holds the compiled plans, by id and, for structs, by their type parameters.
type compiler struct {
	cfg        Config
	structs    map[string]*structPlan
	interfaces map[uint64]*interfacePlan
	ids        []uint64 // of the compiled structs
	fields     []FieldKey
	methods    []MethodKey
}

// brand maps each scope's id to its type parameters.
type brand map[uint64][]binding

// binding is a type, with the bindings of the parameters in it.
type binding struct {
	typ schema.Type
	in  brand
}

func (c *compiler) node(id uint64) (schema.Node, error) {
	data, err := c.cfg.Schema.Find(id)
	if err != nil {
		return schema.Node{}, fmt.Errorf("node %#x: %w", id, err)
	}
	msg, err := capnp.Unmarshal(data)
	if err != nil {
		return schema.Node{}, err
	}
	msg.TraverseLimit = math.MaxInt64
	request, err := schema.ReadRootCodeGeneratorRequest(msg)
	if err != nil {
		return schema.Node{}, err
	}
	nodes, err := request.Nodes()
	if err != nil {
		return schema.Node{}, err
	}
	for i := range nodes.Len() {
		if n := nodes.At(i); n.Id() == id {
			return n, nil
		}
	}
	return schema.Node{}, fmt.Errorf("node %#x is not in its own schema", id)
}

// nameOf returns a node's name without those of its scopes.
func nameOf(n schema.Node) (string, error) {
	name, err := n.DisplayName()
	if err != nil {
		return "", err
	}
	return name[n.DisplayNamePrefixLength():], nil
}

// bindings reads a brand, whose own parameters are bound by in.
func bindings(b schema.Brand, in brand) (brand, error) {
	out := maps.Clone(in)
	if out == nil {
		out = brand{}
	}
	scopes, err := b.Scopes()
	if err != nil {
		return nil, err
	}
	for i := range scopes.Len() {
		scope := scopes.At(i)
		if scope.Which() != schema.Brand_Scope_Which_bind {
			continue // inherited from in, which has it
		}
		list, err := scope.Bind()
		if err != nil {
			return nil, err
		}
		bound := make([]binding, list.Len())
		for j := range bound {
			if b := list.At(j); b.Which() == schema.Brand_Binding_Which_type {
				if bound[j].typ, err = b.Type(); err != nil {
					return nil, err
				}
				bound[j].in = in
			}
		}
		out[scope.ScopeId()] = bound
	}
	return out, nil
}

// interfaceOf compiles an interface and registers it before it is complete, for types that refer to it.
func (c *compiler) interfaceOf(id uint64) (*interfacePlan, error) {
	if p := c.interfaces[id]; p != nil {
		return p, nil
	}
	n, err := c.node(id)
	if err != nil {
		return nil, err
	}
	name, err := nameOf(n)
	if err != nil {
		return nil, err
	}
	p := &interfacePlan{id: id, name: name, ordered: slices.Contains(c.cfg.Ordered, id), supers: map[uint64]bool{}, methods: map[string]*methodPlan{}, byID: map[rpc.Method]*methodPlan{}}
	c.interfaces[id] = p
	return p, c.methodsOf(p, n, nil)
}

// methodsOf adds the methods of n, which is p's node or a superclass's, to p.
func (c *compiler) methodsOf(p *interfacePlan, n schema.Node, in brand) error {
	if p.supers[n.Id()] {
		return nil
	}
	p.supers[n.Id()] = true
	list, err := n.Interface().Methods()
	if err != nil {
		return err
	}
	for i := range list.Len() {
		if err := c.method(p, n, list.At(i), uint16(i), in); err != nil {
			return err
		}
	}
	supers, err := n.Interface().Superclasses()
	if err != nil {
		return err
	}
	for i := range supers.Len() {
		super, err := c.node(supers.At(i).Id())
		if err != nil {
			return err
		}
		b, err := supers.At(i).Brand()
		if err != nil {
			return err
		}
		within, err := bindings(b, in)
		if err != nil {
			return err
		}
		if err := c.methodsOf(p, super, within); err != nil {
			return err
		}
	}
	return nil
}

func (c *compiler) method(p *interfacePlan, n schema.Node, from schema.Method, ordinal uint16, in brand) error {
	name, err := from.Name()
	if err != nil {
		return err
	}
	m := &methodPlan{call: rpc.Method{Interface: n.Id(), ID: ordinal}, owner: p.name, name: name}
	key := MethodKey{n.Id(), name}
	c.methods = append(c.methods, key)
	if rule, ok := c.cfg.Rules.Methods[key]; ok {
		m.rule, m.name = &rule, cmp.Or(rule.Name, name)
	}
	names := []string{m.name}
	if m.rule != nil && m.rule.Alias != "" {
		names = append(names, m.rule.Alias)
	}
	for _, n := range names {
		if p.methods[n] != nil {
			return fmt.Errorf("%s has two methods %s", p.name, n)
		}
		p.methods[n] = m
	}
	paramBrand, err := from.ParamBrand()
	if err != nil {
		return err
	}
	if m.params, err = c.methodStruct(from.ParamStructType(), paramBrand, in); err != nil {
		return fmt.Errorf("%s.%s: %w", p.name, name, err)
	}
	resultBrand, err := from.ResultBrand()
	if err != nil {
		return err
	}
	if m.results, err = c.methodStruct(from.ResultStructType(), resultBrand, in); err != nil {
		return fmt.Errorf("%s.%s: %w", p.name, name, err)
	}
	p.byID[m.call] = m
	return nil
}

// methodStruct compiles a params or results struct, whose type parameters are the interface's.
func (c *compiler) methodStruct(id uint64, b schema.Brand, in brand) (*structPlan, error) {
	within, err := bindings(b, in)
	if err != nil {
		return nil, err
	}
	return c.structOf(id, within)
}

func (c *compiler) structOf(id uint64, in brand) (*structPlan, error) {
	key := structKey(id, in)
	if p := c.structs[key]; p != nil {
		return p, nil
	}
	n, err := c.node(id)
	if err != nil {
		return nil, err
	}
	name, err := nameOf(n)
	if err != nil {
		return nil, err
	}
	if n.Which() != schema.Node_Which_structNode {
		return nil, fmt.Errorf("%s is no struct", name)
	}
	s := n.StructNode()
	p := &structPlan{name: name, size: capnp.ObjectSize{DataSize: capnp.Size(s.DataWordCount()) * 8, PointerCount: s.PointerCount()},
		union: s.DiscriminantCount() > 0, tagAt: capnp.DataOffset(s.DiscriminantOffset() * 2)}
	if rule, ok := c.cfg.Rules.Structs[id]; ok {
		p.rule = &rule
	}
	c.structs[key], c.ids = p, append(c.ids, id)
	list, err := s.Fields()
	if err != nil {
		return nil, err
	}
	order := make([]uint16, 0, list.Len())
	for i := range list.Len() {
		f, err := c.field(id, list.At(i), in)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		at, _ := slices.BinarySearch(order, list.At(i).CodeOrder())
		order = slices.Insert(order, at, list.At(i).CodeOrder())
		p.fields = slices.Insert(p.fields, at, f)
	}
	return p, nil
}

// structKey returns a key for a struct with its type parameters bound.
func structKey(id uint64, in brand) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%x", id)
	brandKey(&b, in)
	return b.String()
}

func brandKey(b *strings.Builder, in brand) {
	for _, scope := range slices.Sorted(maps.Keys(in)) {
		fmt.Fprintf(b, "(%x", scope)
		for _, bound := range in[scope] {
			b.WriteByte(',')
			typeKey(b, bound.typ, bound.in)
		}
		b.WriteByte(')')
	}
}

// typeKey writes a key for a type with its parameters bound. Errors of reading are reported by typeOf.
func typeKey(b *strings.Builder, t schema.Type, in brand) {
	fmt.Fprintf(b, "%d", t.Which())
	switch t.Which() {
	case schema.Type_Which_list:
		elem, _ := t.List().ElementType()
		typeKey(b, elem, in)
	case schema.Type_Which_enum:
		fmt.Fprintf(b, ":%x", t.Enum().TypeId())
	case schema.Type_Which_interface:
		fmt.Fprintf(b, ":%x", t.Interface().TypeId())
	case schema.Type_Which_structType:
		brand, _ := t.StructType().Brand()
		within, _ := bindings(brand, in)
		fmt.Fprintf(b, ":%x", t.StructType().TypeId())
		brandKey(b, within)
	case schema.Type_Which_anyPointer:
		if p := t.AnyPointer(); p.Which() == schema.Type_anyPointer_Which_parameter {
			bound, i := in[p.Parameter().ScopeId()], int(p.Parameter().ParameterIndex())
			if i < len(bound) && bound[i].typ.IsValid() {
				typeKey(b, bound[i].typ, bound[i].in)
			}
		}
	}
}

func (c *compiler) field(owner uint64, from schema.Field, in brand) (f fieldPlan, err error) {
	if f.name, err = from.Name(); err != nil {
		return f, err
	}
	f.tag = from.DiscriminantValue()
	key := FieldKey{owner, f.name}
	c.fields = append(c.fields, key)
	if rule, ok := c.cfg.Rules.Fields[key]; ok {
		f.rule = &rule
	}
	if from.Which() == schema.Field_Which_group {
		f.typ.kind = kindGroup
		f.typ.of, err = c.structOf(from.Group().TypeId(), in)
		return f, err
	}
	slot := from.Slot()
	typ, err := slot.Type()
	if err != nil {
		return f, err
	}
	if f.typ, err = c.typeOf(typ, in); err != nil {
		return f, fmt.Errorf("%s: %w", f.name, err)
	}
	f.offset = slot.Offset()
	switch f.typ.kind {
	case kindInt, kindFloat, kindEnum:
		f.offset *= uint32(f.typ.bits)
	}
	value, err := slot.DefaultValue()
	if err != nil {
		return f, err
	}
	if err := f.defaults(value, slot.HadExplicitDefault()); err != nil {
		return f, fmt.Errorf("%s: %w", f.name, err)
	}
	return f, nil
}

// defaults reads a field's default.
func (f *fieldPlan) defaults(v schema.Value, explicit bool) (err error) {
	switch v.Which() {
	case schema.Value_Which_bool:
		if v.Bool() {
			f.mask = 1
		}
	case schema.Value_Which_int8:
		f.mask = uint64(uint8(v.Int8()))
	case schema.Value_Which_int16:
		f.mask = uint64(uint16(v.Int16()))
	case schema.Value_Which_int32:
		f.mask = uint64(uint32(v.Int32()))
	case schema.Value_Which_int64:
		f.mask = uint64(v.Int64())
	case schema.Value_Which_uint8:
		f.mask = uint64(v.Uint8())
	case schema.Value_Which_uint16:
		f.mask = uint64(v.Uint16())
	case schema.Value_Which_uint32:
		f.mask = uint64(v.Uint32())
	case schema.Value_Which_uint64:
		f.mask = v.Uint64()
	case schema.Value_Which_float32:
		f.mask = uint64(math.Float32bits(v.Float32()))
	case schema.Value_Which_float64:
		f.mask = math.Float64bits(v.Float64())
	case schema.Value_Which_enum:
		f.mask = uint64(v.Enum())
	case schema.Value_Which_text:
		f.text, err = v.Text()
	case schema.Value_Which_data:
		var data []byte
		data, err = v.Data()
		f.text = string(data)
	case schema.Value_Which_list, schema.Value_Which_structValue:
		if explicit {
			return fmt.Errorf("defaults of lists and structs are not built")
		}
	}
	return err
}

// plainTypes are the types that are the same in every schema.
var plainTypes = map[schema.Type_Which]typePlan{
	schema.Type_Which_void:    {kind: kindVoid},
	schema.Type_Which_bool:    {kind: kindBool, bits: 1},
	schema.Type_Which_int8:    {kind: kindInt, bits: 8, signed: true},
	schema.Type_Which_int16:   {kind: kindInt, bits: 16, signed: true},
	schema.Type_Which_int32:   {kind: kindInt, bits: 32, signed: true},
	schema.Type_Which_int64:   {kind: kindInt, bits: 64, signed: true},
	schema.Type_Which_uint8:   {kind: kindInt, bits: 8},
	schema.Type_Which_uint16:  {kind: kindInt, bits: 16},
	schema.Type_Which_uint32:  {kind: kindInt, bits: 32},
	schema.Type_Which_uint64:  {kind: kindInt, bits: 64},
	schema.Type_Which_float32: {kind: kindFloat, bits: 32},
	schema.Type_Which_float64: {kind: kindFloat, bits: 64},
	schema.Type_Which_text:    {kind: kindText},
	schema.Type_Which_data:    {kind: kindData},
}

func (c *compiler) typeOf(t schema.Type, in brand) (p typePlan, err error) {
	if plain, ok := plainTypes[t.Which()]; ok {
		return plain, nil
	}
	switch t.Which() {
	case schema.Type_Which_enum:
		p = typePlan{kind: kindEnum, bits: 16}
		p.names, err = c.enumerants(t.Enum().TypeId())
		return p, err
	case schema.Type_Which_list:
		elem, err := t.List().ElementType()
		if err != nil {
			return p, err
		}
		of, err := c.typeOf(elem, in)
		return typePlan{kind: kindList, elem: &of}, err
	case schema.Type_Which_structType:
		b, err := t.StructType().Brand()
		if err != nil {
			return p, err
		}
		within, err := bindings(b, in)
		if err != nil {
			return p, err
		}
		of, err := c.structOf(t.StructType().TypeId(), within)
		return typePlan{kind: kindStruct, of: of}, err
	case schema.Type_Which_interface:
		of, err := c.interfaceOf(t.Interface().TypeId())
		return typePlan{kind: kindCapability, iface: of}, err
	case schema.Type_Which_anyPointer:
		return c.anyPointer(t.AnyPointer(), in)
	}
	return p, fmt.Errorf("a type of kind %v is not known", t.Which())
}

// anyPointer compiles a type parameter, or a pointer of a known kind: any other has no form in JavaScript.
func (c *compiler) anyPointer(t schema.Type_anyPointer, in brand) (p typePlan, err error) {
	switch t.Which() {
	case schema.Type_anyPointer_Which_unconstrained:
		if t.Unconstrained().Which() == schema.Type_anyPointer_unconstrained_Which_capability {
			return typePlan{kind: kindCapability}, nil
		}
	case schema.Type_anyPointer_Which_parameter:
		bound, i := in[t.Parameter().ScopeId()], int(t.Parameter().ParameterIndex())
		if i < len(bound) && bound[i].typ.IsValid() {
			return c.typeOf(bound[i].typ, bound[i].in)
		}
	}
	return p, fmt.Errorf("a pointer to anything has no form that peers could be given")
}

func (c *compiler) enumerants(id uint64) ([]string, error) {
	n, err := c.node(id)
	if err != nil {
		return nil, err
	}
	list, err := n.Enum().Enumerants()
	if err != nil {
		return nil, err
	}
	names := make([]string, list.Len())
	for i := range names {
		if names[i], err = list.At(i).Name(); err != nil {
			return nil, err
		}
	}
	return names, nil
}

// unusedRuleError returns an error if a rule is for something that the schema does not have: a mistake.
func (c *compiler) unusedRuleError() error {
	for id := range c.cfg.Rules.Structs {
		if !slices.Contains(c.ids, id) {
			return fmt.Errorf("there is a rule for struct %#x, which is not reached", id)
		}
	}
	for f := range c.cfg.Rules.Fields {
		if !slices.Contains(c.fields, f) {
			return fmt.Errorf("there is a rule for field %s of struct %#x, which is not reached", f.Field, f.Struct)
		}
	}
	for m := range c.cfg.Rules.Methods {
		if !slices.Contains(c.methods, m) {
			return fmt.Errorf("there is a rule for method %s of interface %#x, which is not reached", m.Method, m.Interface)
		}
	}
	return nil
}
