package jsontable_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/internal/jsontable"
)

func TestColumns(t *testing.T) {
	for list, want := range map[string]string{
		`[{"a":1,"b":2},{"b":3,"a":4}]`:                         "a,b",
		`[{"b":1,"a":2},{"a":3,"b":4},{"a":5,"b":6}]`:           "b,a",
		`[{"é":1},{"\u00e9":2}]`:                                "é",
		`[{"a":{"x":1}},{"a":[]}]`:                              "a",
		`[{"a":1},{"a":1},{"a":1},"other"]`:                     "a", // not among the first three
		`[{"a":1}]`:                                             "",
		`[{"a":1},{"b":1}]`:                                     "",
		`[{"a":1},{"a":1,"b":1}]`:                               "",
		`[{"a":1,"a":1},{"a":1,"a":1}]`:                         "",
		`[{"a":1,"b":1,"c":1,"d":1},{"a":1,"b":1,"c":1,"d":1}]`: "",
		`[{"a":1},1]`:                                           "",
		`[1,2]`:                                                 "",
		`[{},{}]`:                                               "",
		`[]`:                                                    "",
		`{"a":1}`:                                               "",
		`null`:                                                  "",
		``:                                                      "",
	} {
		got := jsontable.Columns(gjson.Parse(list), 3, 3)
		if strings.Join(got, ",") != want || slices.Contains(got, "") {
			t.Errorf("%s: %q, want %q", list, got, want)
		}
	}
}
