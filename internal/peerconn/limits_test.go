package peerconn_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/peerconn"
	"github.com/mooring-rpc/mooring/rpc"
)

// AllLimits of both packages has every limit that they name, each once: metrics are made from it.
func TestAllLimitsHasEveryLimit(t *testing.T) {
	t.Parallel()
	for path, all := range map[string][]peerconn.Limit{"../../rpc/limits.go": rpc.AllLimits(), "../../capnweb/limits.go": capnweb.AllLimits()} {
		f, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		named := 0
		ast.Inspect(f, func(n ast.Node) bool {
			if v, ok := n.(*ast.ValueSpec); ok && strings.HasPrefix(v.Names[0].Name, "Limit") {
				named++
			}
			return true
		})
		slices.Sort(all)
		if slices.Contains(all, "") {
			t.Errorf("%s: a limit has no name", path)
		}
		if once := slices.Compact(slices.Clone(all)); len(all) != named || len(once) != named {
			t.Errorf("%s: %d limits are named, AllLimits has %d, %d of them different", path, named, len(all), len(once))
		}
	}
}
