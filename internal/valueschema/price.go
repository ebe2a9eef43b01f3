package valueschema

// The price of a check: an upper bound of what the library does, found by a walk over schema and value.

import (
	"encoding/json"
	"math/big"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/mooring-rpc/mooring/fault"
)

// Costs, in units of about 10 ns.
const (
	costByte    = 1   // of a byte decoded
	costToken   = 25  // of a value decoded
	costEval    = 150 // of a schema for a value
	costMember  = 20  // of a member looked up
	costCompare = 10  // of two values compared
	costNumber  = 90  // of a number made a fraction, and for each digit:
	costDigit   = 4

	maxDigits = 400 // of a number that is checked, and its exponent's value
	maxNested = 128 // of a value that is checked; and of schemas for one value
)

// valueKind is a set of kinds of values.
type valueKind uint8

const (
	kindNull valueKind = 1 << iota
	kindBool
	kindNumber
	kindString
	kindArray
	kindObject
	kindInteger // in a schema's types
)

func kindOf(v any) valueKind {
	switch v.(type) {
	case nil:
		return kindNull
	case bool:
		return kindBool
	case json.Number:
		return kindNumber
	case string:
		return kindString
	case []any:
		return kindArray
	}
	return kindObject
}

var kindNames = map[string]valueKind{"null": kindNull, "boolean": kindBool, "number": kindNumber, "integer": kindInteger,
	"string": kindString, "array": kindArray, "object": kindObject}

// plan is what the price of a schema is computed from: the schemas that it evaluates for the same value,
// and for parts of it.
type plan struct {
	trivial bool      // true or false
	types   valueKind // 0: all
	self    []*plan
	numbers int // keywords that need the number as a fraction
	lengths bool
	pattern *pattern
	equal   map[valueKind]int // cost of the values that it compares with, by kind
	many    map[valueKind]int // their number
	unique  bool

	required   int // members looked up
	depends    map[string]*plan
	properties map[string]*plan
	patterns   []propertyPattern
	additional *plan // nil also for true and false
	names      *plan
	unevaluated,
	each *plan // unevaluatedProperties and unevaluatedItems; contains

	prefix []*plan
	items  *plan
}

type propertyPattern struct {
	*pattern
	plan *plan
}

// planned makes the plan of a compiled schema. It takes away what the library must not do.
func planned(compiled *jsonschema.Schema, bytes, programs int) (*Schema, *fault.Error) {
	b := planner{s: &Schema{compiled: compiled, names: map[string]bool{}, weight: 40*bytes + 100*programs}, plans: map[*jsonschema.Schema]*plan{}}
	b.s.root = b.plan(compiled)
	if b.err == nil {
		b.findLoops()
	}
	if b.err != nil {
		return nil, b.err
	}
	return b.s, nil
}

type planner struct {
	s     *Schema
	plans map[*jsonschema.Schema]*plan
	err   *fault.Error
}

// plan returns a schema's plan, nil for nil.
func (b *planner) plan(s *jsonschema.Schema) *plan {
	if s == nil {
		return nil
	}
	if p, ok := b.plans[s]; ok {
		return p
	}
	p := &plan{}
	b.plans[s] = p
	switch {
	case b.err != nil:
	case s.Location != base && !strings.HasPrefix(s.Location, base+"#"):
		b.err = errOutside()
	case s.DynamicRef != nil || s.RecursiveRef != nil:
		b.err = fault.BadPayload.With("the schema has $dynamicRef or $recursiveRef, which are not supported: use $ref")
	case s.Bool != nil:
		p.trivial = true
	default:
		b.fill(p, s)
	}
	return p
}

func (b *planner) fill(p *plan, s *jsonschema.Schema) {
	s.Format, s.ContentEncoding, s.ContentMediaType, s.ContentSchema = nil, nil, nil, nil
	if s.Types != nil {
		for _, name := range s.Types.ToStrings() {
			p.types |= kindNames[name]
		}
	}
	p.equal, p.many = map[valueKind]int{}, map[valueKind]int{}
	if s.Const != nil {
		b.compares(p, *s.Const)
	}
	if s.Enum != nil {
		for _, v := range s.Enum.Values {
			b.compares(p, v)
		}
	}
	for _, list := range [][]*jsonschema.Schema{{s.Ref, s.Not, s.If, s.Then, s.Else}, s.AllOf, s.AnyOf, s.OneOf} {
		for _, sub := range list {
			if sub != nil {
				p.self = append(p.self, b.plan(sub))
			}
		}
	}
	for _, set := range []bool{s.Minimum != nil, s.Maximum != nil, s.ExclusiveMinimum != nil, s.ExclusiveMaximum != nil, s.MultipleOf != nil} {
		if set {
			p.numbers++
		}
	}
	p.lengths = s.MinLength != nil || s.MaxLength != nil
	if s.Pattern != nil {
		p.pattern = s.Pattern.(*pattern)
	}
	if p.unique = s.UniqueItems; p.unique {
		s.UniqueItems = false
		s.Extensions = append(s.Extensions, uniqueItems{})
	}
	b.fillObject(p, s)
	b.fillArray(p, s)
	for _, u := range []*jsonschema.Schema{s.UnevaluatedProperties, s.UnevaluatedItems} {
		if u != nil {
			b.s.uneval = true
		}
	}
}

func (b *planner) fillObject(p *plan, s *jsonschema.Schema) {
	p.required = len(s.Required) + len(s.Dependencies) + len(s.DependentSchemas) + len(s.DependentRequired)
	p.depends = map[string]*plan{}
	for name, sub := range s.DependentSchemas {
		p.depends[name] = b.plan(sub)
	}
	for name, d := range s.Dependencies {
		switch d := d.(type) {
		case *jsonschema.Schema:
			p.depends[name] = b.plan(d)
		case []string:
			p.required += len(d)
		}
	}
	for _, names := range s.DependentRequired {
		p.required += len(names)
	}
	p.properties = make(map[string]*plan, len(s.Properties))
	for name, sub := range s.Properties {
		p.properties[name] = b.plan(sub)
		b.s.names[name] = true
	}
	for re, sub := range s.PatternProperties {
		p.patterns = append(p.patterns, propertyPattern{re.(*pattern), b.plan(sub)})
	}
	if sub, ok := s.AdditionalProperties.(*jsonschema.Schema); ok {
		p.additional = b.plan(sub)
	}
	p.names = b.plan(s.PropertyNames)
}

func (b *planner) fillArray(p *plan, s *jsonschema.Schema) {
	for _, sub := range s.PrefixItems {
		p.prefix = append(p.prefix, b.plan(sub))
	}
	p.items = b.plan(s.Items2020)
	switch items := s.Items.(type) {
	case *jsonschema.Schema:
		p.items = b.plan(items)
	case []*jsonschema.Schema:
		for _, sub := range items {
			p.prefix = append(p.prefix, b.plan(sub))
		}
	}
	if sub, ok := s.AdditionalItems.(*jsonschema.Schema); ok {
		p.items = b.plan(sub)
	}
	p.each = b.plan(s.Contains)
	// One schema has at most one of the two for a value of one kind.
	p.unevaluated = b.plan(s.UnevaluatedProperties)
	if sub := b.plan(s.UnevaluatedItems); sub != nil {
		p.unevaluated = &plan{self: slices.DeleteFunc([]*plan{p.unevaluated, sub}, func(p *plan) bool { return p == nil })}
	}
}

// compares adds a value that the schema compares with.
func (b *planner) compares(p *plan, v any) {
	const most = 1 << 30 // beyond what a schema can hold; an int of 32 bits has it
	w := walk{left: most}
	w.weigh(v, 0)
	k := kindOf(v)
	p.equal[k] += most - w.left
	p.many[k]++
}

// findLoops refuses a schema that evaluates itself for the same value, which never ends.
func (b *planner) findLoops() {
	const inside, done = 1, 2
	state := map[*plan]int{}
	var visit func(p *plan) bool
	visit = func(p *plan) bool {
		switch state[p] {
		case inside:
			return false
		case done:
			return true
		}
		state[p] = inside
		for _, sub := range p.self {
			if !visit(sub) {
				return false
			}
		}
		for _, sub := range p.depends {
			if !visit(sub) {
				return false
			}
		}
		state[p] = done
		return true
	}
	for _, p := range b.plans {
		if !visit(p) {
			b.err = fault.BadPayload.With("the schema has a reference that leads back to itself without a step into the value")
			return
		}
	}
}

// walk adds up a price.
type walk struct {
	left   int
	uneval bool
}

// charge reports whether there is enough left.
func (w *walk) charge(cost int) bool {
	w.left -= cost
	return w.left >= 0
}

// eval charges for the evaluation of a schema for a value; false if it is too much. nested is the value's
// depth, chain the number of schemas that are being evaluated for it.
func (w *walk) eval(p *plan, v any, nested, chain int) bool {
	if p == nil {
		return true
	}
	if nested > maxNested || chain > maxNested || !w.charge(costEval+nested+chain) {
		return false
	}
	if p.trivial {
		return true
	}
	k := kindOf(v)
	if p.types != 0 && p.types&k == 0 {
		if k != kindNumber || p.types&kindInteger == 0 {
			return true // all that the library looks at
		}
		if !w.number(v.(json.Number), 1) {
			return false
		}
	}
	if n := p.many[k]; n > 0 && k == kindString {
		if !w.charge(n * (2 + len(v.(string))/32)) {
			return false
		}
	} else if n > 0 {
		before := w.left
		if !w.weigh(v, nested) || !w.charge(p.equal[k]+(n-1)*(before-w.left)) {
			return false
		}
	}
	for _, sub := range p.self {
		if !w.eval(sub, v, nested, chain+1) {
			return false
		}
	}
	switch v := v.(type) {
	case map[string]any:
		return w.object(p, v, nested, chain)
	case []any:
		return w.array(p, v, nested)
	case string:
		return w.text(p, v)
	case json.Number:
		return p.numbers == 0 || w.number(v, 1+p.numbers)
	}
	return true
}

func (w *walk) object(p *plan, v map[string]any, nested, chain int) bool {
	cost := costMember * (p.required + len(v))
	if w.uneval {
		cost += 2 * costMember * len(v)
	}
	if !w.charge(cost) {
		return false
	}
	for name, sub := range p.depends {
		if _, ok := v[name]; ok && !w.eval(sub, v, nested, chain+1) {
			return false
		}
	}
	for name, e := range v {
		sub, evaluated := p.properties[name]
		if !w.eval(sub, e, nested+1, 0) {
			return false
		}
		for _, re := range p.patterns {
			if !w.charge(2 * re.cost(name)) { // here, and in the library
				return false
			}
			if re.MatchString(name) {
				evaluated = true
				if !w.eval(re.plan, e, nested+1, 0) {
					return false
				}
			}
		}
		if !evaluated && !w.eval(p.additional, e, nested+1, 0) {
			return false
		}
		if !w.eval(p.names, name, nested+1, 0) || !w.eval(p.unevaluated, e, nested+1, 0) {
			return false
		}
	}
	return true
}

func (w *walk) array(p *plan, v []any, nested int) bool {
	cost := costCompare
	if w.uneval {
		cost += 2 * costMember * len(v)
	}
	if !w.charge(cost) {
		return false
	}
	if p.unique {
		before := w.left
		if !w.weigh(v, nested) || !w.charge(before-w.left) { // twice
			return false
		}
	}
	if len(p.prefix) == 0 && p.items == nil && p.each == nil && p.unevaluated == nil {
		return true
	}
	for i, e := range v {
		sub := p.items
		if i < len(p.prefix) {
			sub = p.prefix[i]
		}
		if !w.charge(costCompare) || !w.eval(sub, e, nested+1, 0) || !w.eval(p.each, e, nested+1, 0) || !w.eval(p.unevaluated, e, nested+1, 0) {
			return false
		}
	}
	return true
}

func (w *walk) text(p *plan, v string) bool {
	return (!p.lengths || w.charge(len(v)/3)) && (p.pattern == nil || w.charge(p.pattern.cost(v)))
}

// weigh charges for a comparison of a whole value with another.
func (w *walk) weigh(v any, nested int) bool {
	if nested > maxNested || !w.charge(costCompare) {
		return false
	}
	switch v := v.(type) {
	case string:
		return w.charge(len(v) / 4)
	case json.Number:
		return w.number(v, 1)
	case []any:
		for _, e := range v {
			if !w.weigh(e, nested+1) {
				return false
			}
		}
	case map[string]any:
		for name, e := range v {
			if !w.charge(costMember+len(name)/4) || !w.weigh(e, nested+1) {
				return false
			}
		}
	}
	return true
}

// number charges for a number that is made a fraction, some times over.
func (w *walk) number(n json.Number, times int) bool {
	digits, ok := digitsOf(n)
	return ok && w.charge(times*(costNumber+costDigit*digits))
}

// digitsOf returns the digits that a number has when it is written out; false if those are too many.
func digitsOf(n json.Number) (int, bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(string(n)), "e")
	digits := len(mantissa)
	if exponent != "" {
		e, err := strconv.Atoi(exponent)
		if err != nil || e > maxDigits || e < -maxDigits {
			return 0, false
		}
		digits += max(e, -e)
	}
	return digits, digits <= 2*maxDigits
}

func boundedNumber(n json.Number) bool {
	_, ok := digitsOf(n)
	return ok
}

// decodeCost returns what it costs to decode a JSON text; MaxCost and more if it is nested too deep.
func decodeCost(text []byte) int {
	if len(text)*costByte > MaxCost {
		return MaxCost + 1
	}
	values, depth, inString := 1, 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case inString:
		case c == '[' || c == '{':
			values++
			if depth++; depth > maxNested {
				return MaxCost + 1
			}
		case c == ']' || c == '}':
			depth--
		case c == ',' || c == ':':
			values++
		}
	}
	return len(text)*costByte + values*costToken
}

// pattern is a regular expression that knows its size.
type pattern struct {
	*regexp.Regexp
	size int // instructions
}

// cost returns what matching a text costs at most: Go's expressions take time in proportion to both sizes.
func (p *pattern) cost(text string) int { return 30 + (len(text)+1)*p.size }

// patterns compiles the regular expressions of a schema, each once.
type patterns struct {
	left int
	seen map[string]*pattern
}

func (p *patterns) compile(text string) (jsonschema.Regexp, error) {
	if re, ok := p.seen[text]; ok {
		return re, nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return nil, err
	}
	size := programSize(parsed, p.left)
	if p.left -= size; p.left < 0 {
		p.left = 0
		return nil, fault.TooLarge.With("the regular expressions are too large")
	}
	re, err := regexp.Compile(text)
	if err != nil {
		return nil, err
	}
	p.seen[text] = &pattern{re, size}
	return p.seen[text], nil
}

// programSize returns the instructions of an expression, or more than limit.
func programSize(re *syntax.Regexp, limit int) int {
	n := 2 + len(re.Rune)/16
	if re.Op == syntax.OpLiteral {
		n = 2 + len(re.Rune)
	}
	for _, sub := range re.Sub {
		if n += programSize(sub, limit); n > limit {
			return limit + 1
		}
	}
	if re.Op == syntax.OpRepeat {
		if n *= max(re.Min, re.Max, 1) + 1; n > limit {
			return limit + 1
		}
	}
	return n
}

// uniqueItems checks that keyword in time in proportion to the array. (The library's own hashes some
// different values alike, by the thousand if one wants to.)
type uniqueItems struct{}

func (uniqueItems) Validate(ctx *jsonschema.ValidatorContext, v any) {
	items, ok := v.([]any)
	if !ok {
		return
	}
	seen := make(map[string]int, len(items))
	var key []byte
	for i, item := range items {
		key = canonical(key[:0], item)
		if first, ok := seen[string(key)]; ok {
			ctx.AddError(&kind.UniqueItems{Duplicates: [2]int{first, i}})
			return
		}
		seen[string(key)] = i
	}
}

// canonical appends a text that is the same for equal values, and different for others.
func canonical(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, 'n')
	case bool:
		return strconv.AppendBool(b, v)
	case string:
		return append(strconv.AppendInt(append(b, 's'), int64(len(v)), 10), ":"+v...)
	case json.Number:
		r, _ := new(big.Rat).SetString(string(v))
		return append(append(append(b, 'd'), r.RatString()...), ';')
	case []any:
		b = append(b, '[')
		for _, e := range v {
			b = canonical(b, e)
		}
		return append(b, ']')
	case map[string]any:
		names := make([]string, 0, len(v))
		for name := range v {
			names = append(names, name)
		}
		slices.Sort(names)
		b = append(b, '{')
		for _, name := range names {
			b = canonical(canonical(b, name), v[name])
		}
		return append(b, '}')
	}
	return b
}
