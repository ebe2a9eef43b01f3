package valueschema_test

// Schemas and values that are made to be expensive.

import (
	"fmt"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/valueschema"
)

// list returns n texts that format makes of numbers, with commas.
func list(n int, format string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.ReplaceAll(format, "§", strconv.Itoa(i)))
	}
	return b.String()
}

func nest(n int, open, middle, end string) string {
	return strings.Repeat(open, n) + middle + strings.Repeat(end, n)
}

// hostile are schemas and values: each is the worst of its kind that its author could think of.
var hostile = map[string]struct{ schema, value string }{
	"alternatives that refer to themselves": {`{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["x"]},{"properties":{"a":{"$ref":"#"}},"required":["y"]}]}`, nest(60, `{"a":`, "1", "}")},
	"the same without recursion":            {`{"$defs":{` + list(60, `"d§":{"anyOf":[{"$ref":"#/$defs/n§"},{"$ref":"#/$defs/n§"}]},"n§":{"$ref":"#/$defs/e§"},"e§":{"not":{"type":"object"}}`) + `},"$ref":"#/$defs/d0"}`, "1"},
	"doubling":                              {doubling(40), `1`},
	"a tree of sixteen branches":            {`{"allOf":[` + list(16, `{"properties":{"a":{"$ref":"#"},"b§":true}}`) + `]}`, nest(100, `{"a":`, "1", "}")},
	"one of many":                           {`{"oneOf":[` + list(1000, `{"const":§}`) + `],"items":{"$ref":"#"}}`, `[` + list(5000, `§`) + `]`},
	"a huge enum of numbers":                {`{"items":{"enum":[` + list(9000, `§.5`) + `]}}`, `[` + list(9000, `§`) + `]`},
	"a huge enum of texts":                  {`{"items":{"enum":[` + list(7000, `"t§"`) + `]}}`, `[` + list(20000, `"u§"`) + `]`},
	"a huge enum of objects":                {`{"items":{"enum":[` + list(400, `{"a":[§,{"b":1}]}`) + `]}}`, `[` + list(20000, `{"a":[0,{"b":2}]}`) + `]`},
	"a large constant":                      {`{"items":{"const":{` + list(2000, `"m§":1`) + `}}}`, `[` + strings.Repeat(`{`+list(2000, `"m§":1`)+`},`, 49) + `{}` + `]`},
	"unique numbers":                        {`{"uniqueItems":true}`, `[` + list(100000, `§`) + `]`},
	"unique lists whose bytes are alike":    {`{"uniqueItems":true}`, alike(40000)},
	"unique objects":                        {`{"uniqueItems":true}`, `[` + list(40000, `{"a":[§]}`) + `]`},
	"unique, at every level":                {`{"uniqueItems":true,"items":{"$ref":"#"}}`, nest(120, `[1,2,3,4,`, `[`+list(2000, `§`)+`]`, `]`)},
	"an exponent":                           {`{"multipleOf":3}`, `1e1000000`},
	"a negative exponent":                   {`{"type":"integer"}`, `1e-1000000`},
	"an exponent of a number":               {`{"minimum":0}`, `1e99999999999999999999`},
	"many long numbers":                     {`{"items":{"multipleOf":0.001}}`, `[` + list(2000, strings.Repeat("9", 390)+`#.1`) + `]`},
	"many exponents":                        {`{"items":{"minimum":0,"maximum":9}}`, `[` + list(20000, `§e-399`) + `]`},
	"a number of a million digits":          {`{"minimum":0}`, strings.Repeat("1", 1000000)},
	"expressions of names":                  {`{"patternProperties":{` + list(500, `"^(a|b|§)*c$":true`) + `}}`, `{` + list(5000, `"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaab§":1`) + `}`},
	"an expression of a long text":          {`{"pattern":"^(([a-z])+.)+[A-Z]([a-z])+$"}`, `"` + strings.Repeat("a", 1000000) + `"`},
	"counted expressions":                   {`{"pattern":"(x{1,90}y{0,90}){10}z"}`, `"` + strings.Repeat("xy", 4000) + `"`},
	"names of names":                        {`{"propertyNames":{"anyOf":[` + list(200, `{"pattern":"§z"}`) + `]}}`, `{` + list(9000, `"name§":1`) + `}`},
	"unevaluated members":                   {`{"allOf":[` + list(300, `{"properties":{"p§":true}}`) + `],"unevaluatedProperties":false}`, `{` + list(20000, `"q§":1`) + `}`},
	"unevaluated elements":                  {`{"allOf":[` + list(300, `{"prefixItems":[true],"contains":{"const":§}}`) + `],"unevaluatedItems":{"type":"null"}}`, `[` + list(20000, `§`) + `]`},
	"unevaluated all the way":               {`{"properties":{"a":{"$ref":"#"}},"anyOf":[{"$ref":"#/$defs/x"},{"$ref":"#/$defs/x"}],"$defs":{"x":{"unevaluatedProperties":{"$ref":"#"}}},"unevaluatedProperties":false}`, nest(50, `{"a":`, "1", `,"b":{"a":{"a":1}}}`)},
	"contains in contains":                  {`{"contains":{"contains":{"contains":{"const":7}}}}`, `[` + list(60, `[`+list(60, `[1,2,3,4,5,6,7,8]`)+`]`) + `]`},
	"dependent schemas":                     {`{"dependentSchemas":{` + list(400, `"m§":{"required":["x","y"]}`) + `}}`, `{` + list(3000, `"m§":1`) + `}`},
	"draft 7 dependencies":                  {`{"$schema":"http://json-schema.org/draft-07/schema#","dependencies":{` + list(400, `"m§":{"dependencies":{"m1":["a","b"]}}`) + `}}`, `{` + list(3000, `"m§":1`) + `}`},
	"conditions":                            {`{"if":{"properties":{"a":{"$ref":"#"}},"required":["z"]},"then":{"properties":{"a":{"$ref":"#"}}},"else":{"properties":{"a":{"$ref":"#"}}}}`, nest(60, `{"a":`, "1", "}")},
	"negations":                             {`{"not":{"properties":{"a":{"not":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}}}}}`, nest(60, `{"a":`, "1", "}")},
	"a deep value":                          {`{"items":{"$ref":"#"}}`, nest(9000, `[`, "1", `]`)},
	"many small values":                     {`{"items":{"type":"null"}}`, `[` + list(200000, `null`) + `]`},
	"many failures":                         {`{"items":{"anyOf":[{"type":"null"},{"type":"string"},{"minimum":1e9},{"enum":[0.5]}]}}`, `[` + list(200000, `§`) + `]`},
	"a long text":                           {`{"maxLength":5}`, `"` + strings.Repeat("é", 500000) + `"`},
	"many members":                          {`{"additionalProperties":false}`, `{` + list(60000, `"m§":1`) + `}`},
	"many required members":                 {`{"items":{"required":[` + list(6000, `"r§"`) + `]}}`, `[` + list(6000, `{}`) + `]`},
}

// doubling is a schema without recursion that is evaluated 2^n times.
func doubling(n int) string {
	var b strings.Builder
	b.WriteString(`{"$ref":"#/$defs/d0","$defs":{`)
	for i := range n {
		fmt.Fprintf(&b, `"d%d":{"allOf":[{"$ref":"#/$defs/d%d"},{"$ref":"#/$defs/d%d"}]},`, i, i+1, i+1)
	}
	fmt.Fprintf(&b, `"d%d":{"type":"string"}}}`, n)
	return b.String()
}

// alike is a list of n lists that the library hashes alike: texts with a byte 4 in place of where others end.
func alike(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(`,["x`)
		for bit := range 16 {
			if i>>bit&1 == 0 {
				b.WriteString(`","x`)
			} else {
				b.WriteString(`\u0004x`)
			}
		}
		b.WriteString(`"]`)
	}
	return "[" + b.String()[1:] + "]"
}

// TestHostileChecksAreBounded: each is decided, most by a refusal to go on. Unbounded, they take minutes to
// years; how long within the bound is measured by BenchmarkHeaviestChecks.
func TestHostileChecksAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range hostile {
		s, err := valueschema.Compile([]byte(c.schema))
		if err != nil {
			t.Errorf("%s: the schema: %v", name, err)
			continue
		}
		err, took := checked(s, []byte(c.value))
		if err != nil && len(err.Message) > 300 {
			t.Errorf("%s: %s", name, err.Message)
		}
		if took > tooLong {
			t.Errorf("%s: the check took %v", name, took)
		}
	}
}

// tooLong is a hundred times what a check may take: a busy machine and the race detector do not reach it,
// and what is not bounded does.
const tooLong = time.Second

// checked returns what a check says, and how long it took.
func checked(s *valueschema.Schema, value []byte) (*fault.Error, time.Duration) {
	began := time.Now()
	err := s.Check(value, "todo/1", "schema/todo")
	return err, time.Since(began)
}

// heaviest are schemas and values of any size.
var heaviest = map[string]func(n int) (schema, value string){
	"elements that fail": func(n int) (string, string) {
		return `{"items":{"anyOf":[{"type":"null"},{"type":"string"},{"minimum":1e9},{"enum":[0.5]}]}}`, `[` + list(n, `§`) + `]`
	},
	"elements that fail in their parts": func(n int) (string, string) {
		return `{"items":{"properties":{"a":{"type":"null"},"b":{"minimum":7}},"required":["c","d"],"additionalProperties":false}}`, `[` + list(n, `{"a":1,"b":2,"e":3}`) + `]`
	},
	"elements that are right": func(n int) (string, string) {
		return `{"items":{"properties":{"a":{"type":"integer"},"b":{"minLength":1}},"required":["a"],"additionalProperties":false}}`, `[` + list(n, `{"a":§,"b":"x"}`) + `]`
	},
	"numbers": func(n int) (string, string) {
		return `{"items":{"type":"integer","minimum":0,"maximum":1e9,"multipleOf":1}}`, `[` + list(n, `§`) + `]`
	},
	"long numbers": func(n int) (string, string) {
		return `{"items":{"multipleOf":0.001}}`, `[` + list(n, strings.Repeat("9", 380)+`§.1`) + `]`
	},
	"exponents": func(n int) (string, string) {
		return `{"items":{"minimum":0,"maximum":9}}`, `[` + list(n, `§e-390`) + `]`
	},
	"constants": func(n int) (string, string) {
		return `{"items":{"oneOf":[` + list(200, `{"const":§}`) + `]}}`, `[` + list(n, `1§`) + `]`
	},
	"an enum of texts": func(n int) (string, string) {
		return `{"items":{"enum":[` + list(5000, `"t§"`) + `]}}`, `[` + list(n, `"u§"`) + `]`
	},
	"an enum of numbers": func(n int) (string, string) {
		return `{"items":{"enum":[` + list(2000, `§.5`) + `]}}`, `[` + list(n, `§`) + `]`
	},
	"an enum of objects": func(n int) (string, string) {
		return `{"items":{"enum":[` + list(400, `{"a":[§,{"b":1}]}`) + `]}}`, `[` + list(n, `{"a":[399,{"b":2}]}`) + `]`
	},
	"unique numbers": func(n int) (string, string) { return `{"uniqueItems":true}`, `[` + list(n, `§.25`) + `]` },
	"unique lists":   func(n int) (string, string) { return `{"uniqueItems":true}`, alike(n + 1) },
	"unique objects": func(n int) (string, string) {
		return `{"uniqueItems":true}`, `[` + list(n, `{"a":[§],"b":"x","c":null}`) + `]`
	},
	"alternatives that refer to themselves": func(n int) (string, string) {
		return `{"anyOf":[{"properties":{"a":{"$ref":"#"}},"required":["x"]},{"properties":{"a":{"$ref":"#"}},"required":["y"]}]}`, nest(n, `{"a":`, "1", "}")
	},
	"negations": func(n int) (string, string) {
		return `{"not":{"properties":{"a":{"not":{"anyOf":[{"$ref":"#"},{"$ref":"#"}]}}}}}`, nest(n, `{"a":`, "1", "}")
	},
	"a deep value": func(n int) (string, string) { return `{"items":{"$ref":"#"},"maxItems":0}`, nest(n, `[`, "1", `]`) },
	"names": func(n int) (string, string) {
		return `{"propertyNames":{"pattern":"^[a-z]+[0-9]*$","maxLength":4}}`, `{` + list(n, `"name§":1`) + `}`
	},
	"members": func(n int) (string, string) { return `{"additionalProperties":false}`, `{` + list(n, `"m§":1`) + `}` },
	"expressions of names": func(n int) (string, string) {
		return `{"patternProperties":{` + list(50, `"^(a|b|§)*c$":true`) + `}}`, `{` + list(n, `"aaaaaaaaaaaaaaaaaaaab§":1`) + `}`
	},
	"an expression of a text": func(n int) (string, string) {
		return `{"pattern":"^(([a-z])+.)+[A-Z]([a-z])+$"}`, `"` + strings.Repeat("a", n) + `"`
	},
	"a counted expression": func(n int) (string, string) {
		return `{"pattern":"(x{1,20}y{0,20}){10}z"}`, `"` + strings.Repeat("xy", n) + `"`
	},
	"a text": func(n int) (string, string) { return `{"maxLength":5}`, `"` + strings.Repeat("é", n) + `"` },
	"unevaluated members": func(n int) (string, string) {
		return `{"allOf":[` + list(30, `{"properties":{"p§":true}}`) + `],"unevaluatedProperties":false}`, `{` + list(n, `"q§":1`) + `}`
	},
	"unevaluated elements": func(n int) (string, string) {
		return `{"allOf":[` + list(30, `{"prefixItems":[true],"contains":{"const":§}}`) + `],"unevaluatedItems":{"type":"null"}}`, `[` + list(n, `§`) + `]`
	},
	"required members": func(n int) (string, string) {
		return `{"items":{"required":[` + list(1000, `"r§"`) + `]}}`, `[` + list(n, `{}`) + `]`
	},
	"a chain of references": func(n int) (string, string) {
		return `{"items":{"$ref":"#/$defs/d0"},"$defs":{` + list(100, `"d§":{"allOf":[{"$ref":"#/$defs/e§"}]},"e§":{"$ref":"#/$defs/f§"},"f§":{"required":["x"]}`) + `}}`, `[` + list(n, `{}`) + `]`
	},
	"nothing": func(n int) (string, string) { return `true`, `[` + list(n, `§`) + `]` },
}

// mostChecked returns the schema of a kind, and the largest of its values that is checked at all.
func mostChecked(t testing.TB, of func(n int) (schema, value string)) (s *valueschema.Schema, value []byte, n int) {
	priced := func(n int) bool {
		schema, value := of(n)
		err := compile(t, schema).Check([]byte(value), "todo/1", "schema/todo")
		return err == nil || err.Code != fault.TooLarge
	}
	n = sort.Search(1<<15, func(n int) bool { return !priced(n + 1) })
	schema, text := of(n)
	return compile(t, schema), []byte(text), n
}

// TestTheHeaviestChecks: of each kind some values are checked, and the largest of them in bounded time.
func TestTheHeaviestChecks(t *testing.T) {
	t.Parallel()
	for name, of := range heaviest {
		s, value, n := mostChecked(t, of)
		if n == 0 {
			t.Errorf("%s: none is checked", name)
		}
		if _, took := checked(s, value); took > tooLong {
			t.Errorf("%s: %d took %v", name, n, took)
		}
	}
}

// BenchmarkHeaviestChecks measures the largest checks: each is to be below 10 ms.
func BenchmarkHeaviestChecks(b *testing.B) {
	for name, of := range heaviest {
		b.Run(name, func(b *testing.B) {
			s, value, _ := mostChecked(b, of)
			for b.Loop() {
				s.Check(value, "todo/1", "schema/todo")
			}
		})
	}
}
