//go:build ignore

// Prints what others can import of this module: each package's exported names, with types, sorted. What is internal, generated, a
// command or a kit for tests is not printed. `make api` writes it into docs/api.txt, which git has, so that no change of it is overlooked.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/importer"
	"go/token"
	"go/types"
	"io"
	"log"
	"os"
	"os/exec"
	"slices"
	"strings"
)

func main() {
	log.SetFlags(0)
	compiled := map[string]string{} // export data by import path
	for line := range strings.Lines(goList("-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}", "./...")) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		compiled[path] = file
	}
	imports := importer.ForCompiler(token.NewFileSet(), "gc", func(path string) (io.ReadCloser, error) { return os.Open(compiled[path]) })
	module := strings.TrimSpace(goList("-m"))
	total := 0
	for path := range strings.Lines(goList("-f", `{{if ne .Name "main"}}{{.ImportPath}}{{end}}`, "./...")) {
		path = strings.TrimSpace(path)
		name := strings.TrimPrefix(path, module+"/")
		if path == "" || strings.Contains(path, "/internal/") || strings.HasPrefix(name, "capnp/wire") || strings.HasSuffix(name, "test") {
			continue
		}
		pkg, err := imports.Import(path)
		if err != nil {
			log.Fatal(err)
		}
		lines := surface(pkg)
		total += len(lines)
		fmt.Printf("package %s: %d lines\n", name, len(lines))
		for _, line := range lines {
			fmt.Println("\t" + strings.ReplaceAll(line, module+"/", ""))
		}
	}
	fmt.Printf("in all %d lines\n", total)
}

// surface is a line for each exported name, and for each exported field and method of those.
func surface(pkg *types.Package) (lines []string) {
	short := func(other *types.Package) string {
		if other == pkg {
			return ""
		}
		return other.Path()
	}
	say := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	text := func(t types.Type) string { return types.TypeString(t, short) }
	for _, name := range pkg.Scope().Names() {
		o := pkg.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		alias, isType := o.(*types.TypeName)
		if !isType {
			say("%s", types.ObjectString(o, short))
			continue
		}
		if alias.IsAlias() {
			say("type %s = %s", name, text(types.Unalias(o.Type())))
			if named, ok := types.Unalias(o.Type()).(*types.Named); !ok || !strings.Contains(named.Obj().Pkg().Path(), "/internal/") {
				continue
			} // else the fields and methods are seen nowhere else
		}
		switch under := o.Type().Underlying().(type) {
		case *types.Struct:
			say("type %s struct", name)
			for field := range under.Fields() {
				if field.Exported() {
					say("type %s struct, %s %s", name, field.Name(), text(field.Type()))
				}
			}
		case *types.Interface:
			say("type %s interface", name)
			for method := range under.Methods() {
				say("type %s interface, %s%s", name, method.Name(), strings.TrimPrefix(text(method.Type()), "func"))
			}
		default:
			say("type %s %s", name, text(under))
		}
		methods := types.NewMethodSet(types.NewPointer(o.Type()))
		for method := range methods.Methods() {
			if _, isInterface := o.Type().Underlying().(*types.Interface); !isInterface && method.Obj().Exported() {
				say("%s", types.ObjectString(method.Obj(), short))
			}
		}
	}
	slices.SortStableFunc(lines, cmp.Compare)
	return slices.Compact(lines)
}

func goList(args ...string) string {
	command := exec.Command("go", append([]string{"list"}, args...)...)
	var out bytes.Buffer
	command.Stdout, command.Stderr = &out, os.Stderr
	if err := command.Run(); err != nil {
		log.Fatalf("go list: %v", err)
	}
	return out.String()
}
