// Package valueschema checks values against JSON Schemas that users of a session put into it. Library
// jsonschema/v6 compiles and evaluates them; this package bounds what that costs. A schema refers to
// nothing outside itself, and nothing is ever fetched or read for it.
//
// The library cannot be stopped while it evaluates, and a schema of a few lines can make it work for
// days (alternatives that refer to themselves double the work with each level of the value). So a check
// is priced first: a walk over schema and value adds up what the evaluation costs at most, as if no
// alternative were skipped, and stops at MaxCost. The sum does not depend on time, load or the order in
// which maps are walked, so a check is decided alike by every server, at every time. Numbers, which the
// library expands to fractions, and regular expressions are in the price; two keywords are not left to
// the library: uniqueItems, whose hashes one can make collide, and formats, which are not checked.
package valueschema

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"

	"github.com/mooring-rpc/mooring/fault"
)

// Bounds of a schema.
const (
	MaxBytes = 64 << 10

	maxDepth    = 64     // of its JSON
	maxPlaces   = 1500   // objects, lists and booleans in it; a named one counts as ten
	maxPrograms = 20_000 // instructions of its regular expressions
)

// MaxCost bounds a check, in units of about 10 ns.
const MaxCost = 600_000

// Schema is a compiled schema. Its methods can be called by several goroutines.
type Schema struct {
	compiled *jsonschema.Schema
	root     *plan
	uneval   bool            // it has unevaluatedProperties or unevaluatedItems
	names    map[string]bool // members that it names
	weight   int             // estimate of its memory, in bytes
}

// base is the address of a schema, as errors of the library have it.
const base = "mooring:///schema"

// refuse loads nothing.
type refuse struct{}

func (refuse) Load(string) (any, error) { return nil, errors.New("refused") }

// Compile compiles a schema: JSON, draft 2020-12 if it names no other. Errors are BadPayload with the
// place, or TooLarge; they have nothing of the schema but names of its members.
func Compile(text []byte) (*Schema, *fault.Error) {
	if len(text) > MaxBytes {
		return nil, fault.TooLarge.With("a schema has at most %d bytes, this one has %d", MaxBytes, len(text))
	}
	doc, err := decode(text)
	if err != nil {
		return nil, fault.BadPayload.With("the schema is not JSON")
	}
	switch doc.(type) {
	case map[string]any, bool:
	default:
		return nil, fault.BadPayload.With("a schema is a JSON object, or true or false")
	}
	size := docSize{}
	if err := size.add(doc, 0); err != nil {
		return nil, err
	}
	patterns := &patterns{left: maxPrograms, seen: map[string]*pattern{}}
	c := jsonschema.NewCompiler()
	c.DefaultDraft(jsonschema.Draft2020)
	c.UseLoader(refuse{})
	c.UseRegexpEngine(patterns.compile)
	if err := c.AddResource(base, doc); err != nil {
		return nil, fault.BadPayload.With("the schema cannot be compiled")
	}
	compiled, err := safely(func() (*jsonschema.Schema, error) { return c.Compile(base) })
	if err != nil {
		return nil, explain(err)
	}
	return planned(compiled, len(text), maxPrograms-patterns.left)
}

// safely turns a panic of the library into an error.
func safely[T any](do func() (T, error)) (out T, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return do()
}

// docSize counts what a schema has.
type docSize struct{ places int }

func (s *docSize) add(v any, depth int) *fault.Error {
	if depth > maxDepth {
		return fault.TooLarge.With("the schema is nested deeper than %d levels", maxDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		s.places++
		for name, e := range v {
			if name == "$schema" {
				if draft, ok := e.(string); ok && depth == 0 && !knownDraft(draft) {
					return fault.BadPayload.With("the schema's $schema is not one of JSON Schema's drafts 4, 6, 7, 2019-09 and 2020-12")
				}
			}
			switch name {
			case "$id", "id", "$anchor", "$dynamicAnchor":
				s.places += 10 // each is compared with the others
			}
			if err := s.add(e, depth+1); err != nil {
				return err
			}
		}
	case []any:
		s.places++
		for _, e := range v {
			if err := s.add(e, depth+1); err != nil {
				return err
			}
		}
	case bool:
		s.places++
	case json.Number:
		if !boundedNumber(v) {
			return fault.TooLarge.With("the schema has a number of more than %d digits", maxDigits)
		}
	}
	if s.places > maxPlaces {
		return fault.TooLarge.With("the schema has more than %d objects, lists and booleans (a $id or $anchor counts as ten)", maxPlaces)
	}
	return nil
}

var drafts = []*jsonschema.Draft{jsonschema.Draft4, jsonschema.Draft6, jsonschema.Draft7, jsonschema.Draft2019, jsonschema.Draft2020}

func knownDraft(url string) bool {
	bare := func(url string) string {
		url = strings.TrimSuffix(strings.TrimSuffix(url, "#"), "/")
		return strings.TrimPrefix(strings.TrimPrefix(url, "http://"), "https://")
	}
	return slices.ContainsFunc(drafts, func(d *jsonschema.Draft) bool { return bare(d.String()) == bare(url) })
}

// explain returns the refusal for an error of the library's compiler.
func explain(err error) *fault.Error {
	var (
		outside *jsonschema.LoadURLError
		nowhere *jsonschema.JSONPointerNotFoundError
		anchor  *jsonschema.AnchorNotFoundError
		invalid *jsonschema.SchemaValidationError
		where   *jsonschema.ValidationError
	)
	switch {
	case errors.As(err, &outside):
		return errOutside()
	case errors.As(err, &nowhere), errors.As(err, &anchor):
		return fault.BadPayload.With("the schema has a reference to a place that is not in it")
	case errors.As(err, &invalid) && errors.As(invalid.Err, &where):
		at, keyword := firstFailure(where, nil)
		if keyword == "format" {
			keyword = "not a regular expression of Go's package regexp, or too large"
		}
		return fault.BadPayload.With("the schema is not a valid JSON Schema at %s (%s)", fault.Clip(at), keyword)
	}
	return fault.BadPayload.With("the schema cannot be compiled")
}

func errOutside() *fault.Error {
	return fault.BadPayload.With("the schema refers to another document: nothing is fetched for it, put what it needs into $defs")
}

// Check returns nil if a value, which is JSON, is valid. key and schema are the keys of value and schema, as
// errors name them: BadPayload with the place and the keyword of the first failure, TooLarge if the check
// costs more than MaxCost. They have nothing of the value: of the names in the place only those that the
// schema has.
func (s *Schema) Check(value []byte, key, schema string) *fault.Error {
	tooMuch := func() *fault.Error {
		return fault.TooLarge.With("checking %s by %s costs more than a check may: put less into the value, or make the schema simpler", fault.Clip(key), schema)
	}
	w := walk{left: MaxCost, uneval: s.uneval}
	if !w.charge(decodeCost(value)) {
		return tooMuch()
	}
	v, err := decode(value)
	if err != nil {
		return fault.BadPayload.With("%s is not JSON", fault.Clip(key))
	}
	if !w.eval(s.root, v, 0, 0) {
		return tooMuch()
	}
	_, err = safely(func() (struct{}, error) { return struct{}{}, s.compiled.Validate(v) })
	var invalid *jsonschema.ValidationError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &invalid):
		at, keyword := firstFailure(invalid, s.names)
		return fault.BadPayload.With("%s breaks %s at %s (%s)", fault.Clip(key), schema, fault.Clip(at), keyword)
	}
	return fault.BadPayload.With("%s cannot be checked by %s", fault.Clip(key), schema)
}

// decode decodes JSON, with numbers as they are spelt.
func decode(text []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// firstFailure returns the place of a failure, as a JSON Pointer, and the keyword that failed there: of
// several the first in the order of their texts, so that it does not depend on a map's order. Names that
// are not in names (if that is not nil) are shown as *.
func firstFailure(e *jsonschema.ValidationError, names map[string]bool) (at, keyword string) {
	type failure struct{ at, keyword string }
	var all []failure
	var collect func(e *jsonschema.ValidationError)
	collect = func(e *jsonschema.ValidationError) {
		switch e.ErrorKind.(type) {
		case *kind.Group, *kind.Schema, *kind.Reference, *kind.AllOf:
			if len(e.Causes) > 0 {
				for _, c := range e.Causes {
					collect(c)
				}
				return
			}
		}
		f := failure{at: "/", keyword: "false"}
		switch k := e.ErrorKind.(type) {
		case nil, *kind.FalseSchema:
		case *kind.Not:
			f.keyword = "not"
		default:
			f.keyword = strings.Join(k.KeywordPath()[:min(1, len(k.KeywordPath()))], "")
		}
		var b strings.Builder
		for _, token := range e.InstanceLocation {
			if names != nil && !names[token] && !isIndex(token) {
				token = "*"
			}
			b.WriteByte('/')
			b.WriteString(strings.ReplaceAll(strings.ReplaceAll(token, "~", "~0"), "/", "~1"))
		}
		if b.Len() > 0 {
			f.at = b.String()
		}
		all = append(all, f)
	}
	collect(e)
	first := slices.MinFunc(all, func(a, b failure) int {
		return cmp.Or(strings.Compare(a.at, b.at), strings.Compare(a.keyword, b.keyword))
	})
	return first.at, first.keyword
}

func isIndex(token string) bool {
	return len(token) <= 7 && strings.Trim(token, "0123456789") == ""
}
