package valueschema_test

// What schemas accept, what they refuse and where, and which schemas are refused.

import (
	"crypto/sha256"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/valueschema"
)

func compile(t testing.TB, text string) *valueschema.Schema {
	t.Helper()
	s, err := valueschema.Compile([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

const todo = `{"type":"object","required":["title"],"additionalProperties":false,"properties":{
	"title":{"type":"string","minLength":1,"maxLength":20,"pattern":"^[^\\n]*$"},
	"done":{"type":"boolean"},
	"rank":{"type":"integer","minimum":1,"maximum":5},
	"tags":{"type":"array","items":{"$ref":"#/$defs/tag"},"uniqueItems":true,"maxItems":3},
	"notes":{"type":"object","additionalProperties":{"type":"string"}},
	"a/b~c":{"const":1}},
	"$defs":{"tag":{"enum":["home","work",7]}}}`

// TestCheck: each value is valid, or breaks the schema at the first place, in the order of texts.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ schema, value, want string }{
		{todo, `{"title":"milk"}`, ""},
		{todo, `{"title":"milk","done":true,"rank":5,"tags":["home",7,"work"],"notes":{"x":"y"},"a/b~c":1.0}`, ""},
		{todo, ` { "title" : "é日本" , "rank" : 1e0 } `, ""},
		{todo, `7`, "at / (type)"},
		{todo, `{}`, "at / (required)"},
		{todo, `{"title":"milk","secret":1}`, "at / (additionalProperties)"},
		{todo, `{"title":""}`, "at /title (minLength)"},
		{todo, `{"title":"a\nb"}`, "at /title (pattern)"},
		{todo, `{"title":"` + strings.Repeat("é", 21) + `"}`, "at /title (maxLength)"},
		{todo, `{"title":"milk","done":1,"rank":9}`, "at /done (type)"},
		{todo, `{"title":"milk","rank":1.5}`, "at /rank (type)"},
		{todo, `{"title":"milk","rank":6}`, "at /rank (maximum)"},
		{todo, `{"title":"milk","tags":["home","none"]}`, "at /tags/1 (enum)"},
		{todo, `{"title":"milk","tags":[7,7.0]}`, "at /tags (uniqueItems)"},
		{todo, `{"title":"milk","tags":["home","work",7,7]}`, "at /tags (maxItems)"},
		{todo, `{"title":"milk","notes":{"a secret":1}}`, "at /notes/* (type)"},
		{todo, `{"title":"milk","a/b~c":2}`, "at /a~1b~0c (const)"},
		{`true`, `{"any":[1]}`, ""},
		{`false`, `1`, "at / (false)"},
		{`{"properties":{"x":false}}`, `{"x":1}`, "at /x (false)"},
		{`{"anyOf":[{"type":"string"},{"minimum":3}]}`, `"x"`, ""},
		{`{"anyOf":[{"type":"string"},{"minimum":3}]}`, `2`, "at / (anyOf)"},
		{`{"oneOf":[{"multipleOf":2},{"multipleOf":3}]}`, `6`, "at / (oneOf)"},
		{`{"not":{"type":"null"}}`, `null`, "at / (not)"},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"maxProperties":0}}`, `{"a":1,"b":2}`, ""},
		{`{"if":{"required":["a"]},"then":{"required":["b"]},"else":{"maxProperties":0}}`, `{"a":1}`, "at / (required)"},
		{`{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, `{"a":1}`, ""},
		{`{"allOf":[{"properties":{"a":true}}],"unevaluatedProperties":false}`, `{"b":1}`, "at /* (false)"},
		{`{"prefixItems":[{"type":"string"}],"items":{"type":"number"},"contains":{"const":0}}`, `["a",0]`, ""},
		{`{"prefixItems":[{"type":"string"}],"items":{"type":"number"},"contains":{"const":0}}`, `["a","b"]`, "at / (contains)"},
		{`{"propertyNames":{"maxLength":2}}`, `{"abc":1}`, "at / (propertyNames)"},
		{`{"dependentRequired":{"a":["b"]}}`, `{"a":1}`, "at / (dependentRequired)"},
		{`{"patternProperties":{"^n":{"type":"number"}}}`, `{"n1":"x"}`, "at /* (type)"},
		{`{"properties":{"next":{"$ref":"#"},"v":{"type":"number"}}}`, `{"next":{"next":{"v":"x"}}}`, "at /next/next/v (type)"},
		{`{"$schema":"http://json-schema.org/draft-07/schema#","items":[{"type":"string"}],"additionalItems":false}`, `["a",1]`, "at / (additionalItems)"},
		{`{"$schema":"http://json-schema.org/draft-04/schema#","maximum":3,"exclusiveMaximum":true}`, `3`, "at / (exclusiveMaximum)"},
		{`{"$id":"https://example.org/x","$ref":"#a","$defs":{"a":{"$anchor":"a","type":"null"}}}`, `1`, "at / (type)"},
		{`{"uniqueItems":true}`, `[1,"1",[1],{"a":1},{"a":"1"},null,true,"true",[[1]],["a\u0004b"],["a","b"],-1,0.1]`, ""},
		{`{"uniqueItems":true}`, `[{"a":1,"b":[2]},{"b":[2.0],"a":1e0}]`, "at / (uniqueItems)"},
		{`{"multipleOf":0.1}`, `0.3`, ""},
		{`{"minimum":0.1}`, `1e-300`, "at / (minimum)"},
		// They say what a text is, and check nothing, in every draft.
		{`{"$schema":"http://json-schema.org/draft-07/schema#","format":"date","contentEncoding":"base64"}`, `"?"`, ""},
	} {
		err := compile(t, c.schema).Check([]byte(c.value), "todo/1", "schema/todo")
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s by %s: %v", c.value, c.schema, err)
		case c.want != "" && (err == nil || err.Code != fault.BadPayload || err.Message != "todo/1 breaks schema/todo "+c.want):
			t.Errorf("%s by %s: %v, want %s", c.value, c.schema, err, c.want)
		}
	}
}

// TestSchemasThatAreRefused: at the put already, with the place.
func TestSchemasThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		schema string
		code   fault.Code
		want   string
	}{
		{`7`, fault.BadPayload, "is a JSON object"},
		{`[]`, fault.BadPayload, "is a JSON object"},
		{`{"type":"objekt"}`, fault.BadPayload, "at /type ("},
		{`{"properties":{"a":{"minimum":"3"}}}`, fault.BadPayload, "at /properties/a/minimum (type)"},
		{`{"properties":{"a":{"pattern":"(?=x)"}}}`, fault.BadPayload, "at /properties/a/pattern (not a regular expression"},
		{`{"patternProperties":{"(":true}}`, fault.BadPayload, "at /patternProperties (propertyNames)"},
		{`{"pattern":"(x{1,900}){1,900}"}`, fault.BadPayload, "at /pattern (not a regular expression"},
		{`{"pattern":"` + strings.Repeat(`(a{900}|b)`, 40) + `"}`, fault.BadPayload, "at /pattern (not a regular expression"},
		{`{"$ref":"#/$defs/none"}`, fault.BadPayload, "a place that is not in it"},
		{`{"$ref":"#none"}`, fault.BadPayload, "a place that is not in it"},
		{`{"$ref":"#"}`, fault.BadPayload, "leads back to itself"},
		{`{"anyOf":[{"type":"null"},{"$ref":"#/$defs/a"}],"$defs":{"a":{"not":{"$ref":"#"}}}}`, fault.BadPayload, "leads back to itself"},
		{`{"$dynamicRef":"#x","$defs":{"a":{"$dynamicAnchor":"x"}}}`, fault.BadPayload, "$dynamicRef"},
		{`{"$schema":"https://example.org/mine"}`, fault.BadPayload, "$schema is not one of"},
		{`{"multipleOf":1e-9999999}`, fault.TooLarge, "a number of more than"},
		{`{"enum":[` + strings.Repeat("1", 900) + `]}`, fault.TooLarge, "a number of more than"},
		{`{"description":"` + strings.Repeat("x", 64<<10) + `"}`, fault.TooLarge, "at most 65536 bytes"},
		{nest(70, `{"not":`, `{}`, "}"), fault.TooLarge, "deeper than 64"},
		{`{"properties":{` + list(1500, `"a§":{}`) + `}}`, fault.TooLarge, "more than 1500 objects"},
	} {
		_, err := valueschema.Compile([]byte(c.schema))
		if err == nil || err.Code != c.code || !strings.Contains(err.Message, c.want) {
			t.Errorf("%s: %v, want %s: %s", fault.Clip(c.schema), err, c.code, c.want)
		}
	}
}

// TestNothingIsFetched: whatever a schema names, no file is read and no server asked.
func TestNothingIsFetched(t *testing.T) {
	t.Parallel()
	asked := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") }))
	defer asked.Close()
	file := filepath.Join(t.TempDir(), "x.json")
	if err := os.WriteFile(file, []byte(`{"type":"null"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, url := range []string{asked.URL + "/x.json", "file://" + filepath.ToSlash(file), filepath.ToSlash(file), "x.json", "../x", "urn:x", "https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#"} {
		for _, keyword := range []string{"$ref", "$dynamicRef"} {
			if _, err := valueschema.Compile(fmt.Appendf(nil, `{"properties":{"a":{%q:%q}}}`, keyword, url)); err == nil || err.Code != fault.BadPayload {
				t.Errorf("%s %s: %v", keyword, url, err)
			}
		}
		if _, err := valueschema.Compile(fmt.Appendf(nil, `{"$id":%q,"$ref":"other.json"}`, url)); err == nil || err.Code != fault.BadPayload {
			t.Errorf("$id %s: %v", url, err)
		}
		if _, err := valueschema.Compile(fmt.Appendf(nil, `{"$defs":{"a":{"$id":"b","$schema":%q}}}`, url)); err != nil && err.Code != fault.BadPayload {
			t.Errorf("$schema %s: %v", url, err)
		}
	}
}

// TestRefusalsHaveNothingOfTheValue: neither texts and numbers nor names that the schema does not have.
func TestRefusalsHaveNothingOfTheValue(t *testing.T) {
	t.Parallel()
	for schema, value := range map[string]string{
		`{"type":"null"}`: `"hush"`,
		`{"additionalProperties":{"additionalProperties":{"maximum":5}}}`: `{"hush":{"hush2":123456}}`,
		`{"propertyNames":{"maxLength":2}}`:                               `{"hush":1}`,
		`{"enum":["hush"]}`:                                               `"other"`,
		`{"const":123456}`:                                                `1`,
		`{"pattern":"hush"}`:                                              `"other"`,
		`{"additionalProperties":{"maxItems":1,"uniqueItems":true}}`:      `{"hush":["hush","hush"]}`,
	} {
		err := compile(t, schema).Check([]byte(value), "todo/1", "schema/todo")
		if err == nil || strings.Contains(err.Message, "hush") || strings.Contains(err.Message, "123456") || strings.Contains(err.Message, "other") {
			t.Errorf("%s by %s: %v", value, schema, err)
		}
	}
	for _, schema := range []string{`{"pattern":"(hush"}`, `{"type":"hush"}`, `{"enum":"hush"}`, `{"$ref":"hush"}`, `{"$id":"%hush"}`, `{"$ref":"#hush"}`} {
		if _, err := valueschema.Compile([]byte(schema)); err == nil || strings.Contains(err.Message, "hush") {
			t.Errorf("%s: %v", schema, err)
		}
	}
}

// TestCache: a schema is compiled once, by many at once, and the oldest leave.
func TestCache(t *testing.T) {
	t.Parallel()
	var c valueschema.Cache
	text := func(i int) []byte { return fmt.Appendf(nil, `{"const":%d}`, i) }
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for i := range 300 {
				s, err := c.Get(sha256.Sum256(text(i)), text(i))
				if err != nil || s.Check(fmt.Append(nil, i), "a", "schema/a") != nil || s.Check(fmt.Append(nil, i+1), "a", "schema/a") == nil {
					t.Errorf("schema %d: %v", i, err)
				}
			}
		})
	}
	all.Wait()
	if c.Find(sha256.Sum256(text(0))) != nil || c.Find(sha256.Sum256(text(299))) == nil {
		t.Error("the cache has the oldest of 300 schemas, or not the newest")
	}
	if _, err := c.Get(sha256.Sum256(nil), []byte(`{"type":1}`)); err == nil || c.Find(sha256.Sum256(nil)) != nil {
		t.Errorf("what does not compile: %v", err)
	}
}

// FuzzCheck: no schema and value end anything but in an answer.
func FuzzCheck(f *testing.F) {
	f.Add(todo, `{"title":"milk"}`)
	for _, c := range hostile {
		if len(c.schema)+len(c.value) < 4000 {
			f.Add(c.schema, c.value)
		}
	}
	f.Fuzz(func(t *testing.T, schema, value string) {
		if s, err := valueschema.Compile([]byte(schema)); err == nil {
			_ = s.Check([]byte(value), "todo/1", "schema/todo")
		}
	})
}
