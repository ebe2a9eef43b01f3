package fields

import (
	"strings"
	"testing"
)

func TestIndented(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":[1,{"b":"x,{\"y"}],"c":{}}`: "{\n  \"a\": [\n    1,\n    {\n      \"b\": \"x,{\\\"y\"\n    }\n  ],\n  \"c\": {}\n}",
		` [ ] `:                           "[]", `"x`: `"x`, `{"a":`: "{\n  \"a\": ", `]]`: "\n]\n]", ``: "", `"\`: `"\`, "1": "1",
	} {
		if got := Indented(in, 1000); got != want {
			t.Errorf("%s is\n%s\nnot\n%s", in, got, want)
		}
	}
	if got := Indented(strings.Repeat("[", 100_000), 1000); len(got) > 1000 {
		t.Errorf("%d bytes", len(got))
	}
}
