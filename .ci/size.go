//go:build ignore

// Counts the module's Go by top-level folder: files, lines and statements of what is shipped, which is all but tests, generated code,
// conformance suites, and the harnesses and programs that tests, builds and measurements alone run.
package main

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// notShipped are the folders that are not counted.
var notShipped = []string{
	".ci/", "internal/acpagent/", "internal/breach/", "internal/capnpfasttest/", "capnp/wire/", "capnweb/testserver/", "internal/bench/", "internal/benchfanout/", "internal/benchrpc/", "internal/e2e/", "internal/testschema/",
	"internal/faultproxy/", "internal/gobuild/", "internal/interop/", "internal/linear/", "internal/lockbuf/", "internal/measure/", "internal/pgtest/",
	"internal/page/internal/preview/", "internal/page/internal/recorded/", "internal/page/internal/stylesheet/",
	"internal/readme/", "internal/relay/relaytest/", "internal/scrape/", "internal/seed/", "internal/selfsigned/", "internal/slowreader/", "internal/smalldisk/", "internal/stmtfault/", "internal/teststore/",
	"internal/until/", "internal/httpapi/apitest/", "ledger/ledgertest/", "internal/opencode/opencodetest/", "internal/server/batchtest/", "internal/session/memtx/", "internal/store/plantest/", "internal/store/storetest/",
}

type count struct{ files, lines, statements int }

func (c count) plus(d count) count {
	return count{c.files + d.files, c.lines + d.lines, c.statements + d.statements}
}

func (c count) print(folder string) {
	fmt.Printf("%-12s %6d %7d %11d\n", folder, c.files, c.lines, c.statements)
}

func main() {
	log.SetFlags(0)
	out, err := exec.Command("git", "ls-files", "*.go").Output()
	if err != nil {
		log.Fatal(err)
	}
	var all count
	folders := map[string]count{}
	for name := range strings.Lines(string(out)) {
		name = strings.TrimSpace(name)
		if strings.HasSuffix(name, "_test.go") || slices.ContainsFunc(notShipped, func(folder string) bool { return strings.HasPrefix(name, folder) }) {
			continue
		}
		source, err := os.ReadFile(name)
		if err != nil {
			log.Fatal(err)
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.SkipObjectResolution)
		if err != nil {
			log.Fatal(err)
		}
		one := count{1, bytes.Count(source, []byte("\n")), 0}
		ast.Inspect(file, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.BlockStmt, *ast.EmptyStmt, *ast.LabeledStmt:
			case ast.Stmt:
				one.statements++
			}
			return true
		})
		folder, _, _ := strings.Cut(name, "/")
		folders[folder] = folders[folder].plus(one)
		all = all.plus(one)
	}
	fmt.Printf("%-12s %6s %7s %11s\n", "folder", "files", "lines", "statements")
	for _, folder := range slices.Sorted(maps.Keys(folders)) {
		folders[folder].print(folder)
	}
	all.print("in all")
}
