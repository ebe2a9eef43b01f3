//go:build ignore

// Type-checks the packages that it is given, with their tests, for operating systems and processors that nothing is built for here, as
// go vet would, but from the sources: to compile what they import for each takes minutes.
package main

import (
	"fmt"
	"os"
	"strings"

	"golang.org/x/tools/go/packages"
)

// platforms are those that go vet itself is not run on: one with integers of 32 bits, and Windows.
var platforms = []string{"linux/386", "windows/amd64"}

func main() {
	failed := false
	for _, platform := range platforms {
		system, processor, _ := strings.Cut(platform, "/")
		cfg := &packages.Config{
			Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports | packages.NeedDeps |
				packages.NeedTypes | packages.NeedSyntax | packages.NeedTypesSizes,
			Env:   append(os.Environ(), "GOOS="+system, "GOARCH="+processor, "CGO_ENABLED=0"),
			Tests: true,
		}
		found, err := packages.Load(cfg, os.Args[1:]...)
		if err != nil {
			fmt.Fprintln(os.Stderr, platform+":", err)
			os.Exit(1)
		}
		if len(found) == 0 {
			fmt.Fprintln(os.Stderr, platform+": no packages")
			os.Exit(1)
		}
		said := make(map[string]bool) // a file is in its package and in the one with its tests
		packages.Visit(found, nil, func(p *packages.Package) {
			for _, e := range p.Errors {
				if text := e.Error(); !said[text] {
					said[text] = true
					fmt.Fprintln(os.Stderr, platform+":", text)
				}
			}
		})
		failed = failed || len(said) > 0
	}
	if failed {
		os.Exit(1)
	}
}
