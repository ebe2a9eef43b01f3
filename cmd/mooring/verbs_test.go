package main

import (
	"encoding/json"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// TestVerbsAreWhereTheTableSays: docs/verbs.md has every method of the wire's sessions, spaces and
// streams and every op, and what it names is there: commands, the Go client's methods, those of the
// JavaScript client's classes, routes and headers of HTTP.
func TestVerbsAreWhereTheTableSays(t *testing.T) {
	t.Parallel()
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	missing := map[string]bool{} // verbs
	schema := read("capnp/mooring.capnp")
	for _, name := range []string{"Space", "Session", "Stream"} {
		_, methods, found := strings.Cut(schema, "\ninterface "+name+" ")
		if methods, _, _ = strings.Cut(methods, "\n}\n"); !found {
			t.Fatalf("the schema has no interface %s", name)
		}
		for _, m := range regexp.MustCompile(`(?m)^  ([a-zA-Z]+) @\d+ \(`).FindAllStringSubmatch(methods, -1) {
			missing[name+"."+m[1]] = true
		}
	}
	for _, m := range opargs.Methods() {
		missing[m] = true
	}
	if len(missing) < 35 {
		t.Fatalf("the verbs are %v", missing)
	}

	root := newRoot(&cli.Env{Out: io.Discard, Err: io.Discard})
	api := read("docs/api.txt")
	_, api, _ = strings.Cut(api, "\npackage client: ")
	js := map[string]string{} // by class
	for _, file := range []string{"client", "batch", "live"} {
		for _, class := range strings.Split(read("clients/js/src/"+file+".ts"), "\nexport class ")[1:] {
			name, body, _ := strings.Cut(class, " ")
			js[name], _, _ = strings.Cut(body, "\n}\n")
		}
	}
	js["LiveSession"] += js["Live"]
	var routes struct{ Paths map[string]map[string]any }
	text := read("internal/httpapi/openapi.json")
	if err := json.Unmarshal([]byte(text), &routes); err != nil {
		t.Fatal(err)
	}
	there := []func(name string) bool{
		func(name string) bool {
			c, rest, err := root.Find(strings.Fields(name))
			return err == nil && len(rest) == 0 && c != root
		},
		func(name string) bool {
			of, method, _ := strings.Cut(name, ".")
			return strings.Contains(api, "\tfunc (*"+of+")."+method+"(")
		},
		func(name string) bool {
			class, method, _ := strings.Cut(name, ".")
			return regexp.MustCompile(`(?m)^  (async )?\*?` + method + `\(`).MatchString(js[class])
		},
		func(name string) bool {
			method, path, route := strings.Cut(name, " ")
			if !route {
				return strings.Contains(text, `"name": "`+name+`"`)
			}
			_, found := routes.Paths[path][strings.ToLower(method)]
			return found
		},
	}
	rows := 0
	for line := range strings.Lines(read("docs/verbs.md")) {
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")
		if !strings.HasPrefix(line, "| ") || len(cells) != 5 || cells[0] == "verb" {
			continue
		}
		rows++
		delete(missing, strings.Trim(cells[0], "`"))
		for i, cell := range cells[1:] {
			if name := strings.Trim(cell, "`"); name != "–" && !there[i](name) {
				t.Errorf("%s: there is no %s", cells[0], name)
			}
		}
	}
	if rows < 40 {
		t.Errorf("the table has %d rows", rows)
	}
	for verb := range missing {
		t.Errorf("%s is not in the table", verb)
	}
}
