package jsonerr

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
)

func TestText(t *testing.T) {
	t.Parallel()
	type into struct {
		A string
		B []int
		C map[string]any
		D bool
		E uint8
		F *struct{ G int }
	}
	for text, want := range map[string]string{
		``: "it ends too early", `{"A":`: "it ends too early", `{"A":x}`: "invalid character 'x' looking for beginning of value",
		`7`: "it is a number, not an object", `[]`: "it is an array, not an object", `"x"`: "it is a text, not an object",
		`{"A":7}`: "A is a number, not a text", `{"B":{}}`: "B is an object, not an array", `{"C":true}`: "C is true or false, not an object",
		`{"D":"x"}`: "D is a text, not true or false", `{"E":300}`: "E is a number, not a whole number in range", `{"F":7}`: "F is a number, not an object",
		`{"F":{"G":[]}}`: "F.G is an array, not a whole number in range",
	} {
		var v into
		if got := Text(json.Unmarshal([]byte(text), &v)); got != want {
			t.Errorf("%s: %q, want %q", text, got, want)
		}
	}
	var v into
	if got := Text(json.NewDecoder(strings.NewReader("")).Decode(&v)); got != "it ends too early" {
		t.Errorf("an empty stream: %q", got)
	}
	if got := Text(errors.New("json: another")); got != "another" {
		t.Errorf("another error: %q", got)
	}
}
