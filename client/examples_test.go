package client_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestEveryVerbHasAnExample: each exported method of what importers work with is
// called in an example. Where several types have a method of one name, it is in one of
// that type's own examples (ExampleLive…).
func TestEveryVerbHasAnExample(t *testing.T) {
	t.Parallel()
	types := []string{"Client", "Space", "Session", "Batch", "Promise", "Ticket", "Results", "Live"}
	methods := map[string][]string{} // name → types
	calls := map[string][]string{}   // name → examples
	parse := func(tests bool, each func(f *ast.FuncDecl)) {
		files, err := filepath.Glob("*.go")
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") != tests {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range file.Decls {
				if f, is := d.(*ast.FuncDecl); is {
					each(f)
				}
			}
		}
	}
	parse(false, func(f *ast.FuncDecl) {
		if f.Recv == nil || !f.Name.IsExported() || f.Name.Name == "MarshalJSON" { // encoding/json calls it
			return
		}
		of := f.Recv.List[0].Type
		if star, is := of.(*ast.StarExpr); is {
			of = star.X
		}
		if name, is := of.(*ast.Ident); is && slices.Contains(types, name.Name) {
			methods[f.Name.Name] = append(methods[f.Name.Name], name.Name)
		}
	})
	parse(true, func(f *ast.FuncDecl) {
		if !strings.HasPrefix(f.Name.Name, "Example") {
			return
		}
		ast.Inspect(f, func(n ast.Node) bool {
			if call, is := n.(*ast.SelectorExpr); is {
				calls[call.Sel.Name] = append(calls[call.Sel.Name], f.Name.Name)
			}
			return true
		})
	})
	if len(methods) < 50 {
		t.Fatalf("only %d methods were found", len(methods))
	}
	for name, of := range methods {
		for _, typ := range of {
			shown := slices.ContainsFunc(calls[name], func(example string) bool {
				return len(of) == 1 || strings.HasPrefix(example, "Example"+typ)
			})
			if !shown {
				t.Errorf("%s.%s is in no example", typ, name)
			}
		}
	}
}
