package writecmd

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

// argumentsOf asks the session's own table which arguments a method needs, and takes.
func argumentsOf(t *testing.T, method string) (needs, takes []string) {
	t.Helper()
	in := ledger.Intent{Method: method, Args: []ledger.Arg{{Name: "~", JSON: []byte("1")}}}
	for range 20 {
		_, f := opargs.CheckOps([]ledger.Intent{in}, session.DefaultLimits())
		if f == nil || f.Code != fault.BadArgument {
			t.Fatalf("%s: %v", method, f)
		}
		if _, name, ok := strings.Cut(f.Message, method+" needs "); ok {
			name, _, _ = strings.Cut(name, " or ")
			needs = append(needs, name)
			in.Args = append(in.Args, ledger.Arg{Name: name, Ref: &ledger.Ref{}})
			continue
		}
		_, list, ok := strings.Cut(f.Message, "; it takes ")
		if !ok {
			t.Fatalf("%s: %v", method, f)
		}
		if list != "nothing" {
			takes = strings.Split(list, ", ")
		}
		return needs, takes
	}
	t.Fatalf("%s: no end of %q", method, needs)
	return nil, nil
}

// The help of append has every method and argument that there is.
func TestAppendHelpHasEveryArgument(t *testing.T) {
	t.Parallel()
	names := func(text string) (list []string) {
		text = regexp.MustCompile(`\([^)]*\)`).ReplaceAllString(text, "")
		for _, name := range strings.Split(strings.ReplaceAll(text, " and ", ", "), ",") {
			if name = strings.TrimSpace(name); name != "" {
				list = append(list, name)
			}
		}
		slices.Sort(list)
		return list
	}
	var listed []string
	for _, m := range appendMethods {
		listed = append(listed, m.name)
		needs, takes := argumentsOf(t, m.name)
		must, may := names(m.must), names(m.may)
		needs = slices.DeleteFunc(needs, func(n string) bool { return m.name == session.MethodShare && (n == "ref" || n == "hash") }) // made here
		slices.Sort(needs)
		if all := slices.Sorted(slices.Values(slices.Concat(must, may))); !slices.Equal(must, needs) || !slices.Equal(all, takes) {
			t.Errorf("%s: the help has %q and %q; it needs %q and takes %q", m.name, must, may, needs, takes)
		}
	}
	want := slices.DeleteFunc(opargs.Methods(), func(n string) bool { return n == session.MethodCreate || n == session.MethodFork })
	if slices.Sort(listed); !slices.Equal(listed, want) {
		t.Errorf("the help has %q, there are %q", listed, want)
	}
	help := sessionAppendCmd(&home.Folder{}).Long
	for _, line := range strings.Split(appendTable(), "\n") {
		if n := len([]rune(line)); n > 90 {
			t.Errorf("a line of %d characters: %q", n, line)
		}
	}
	for _, words := range []string{"\n  share       rights ([\"read\"]), …methods, …message, …from, ", "…seal (a key)", "\n  bumpEpoch\n", "…schema_version"} {
		if !strings.Contains(help, words) {
			t.Errorf("%q is not in\n%s", words, help)
		}
	}
}

// A limit of a share that limits nothing is a mistake in an op line too.
func TestAppendRefusesALimitThatIsNone(t *testing.T) {
	t.Parallel()
	for _, arg := range []string{`"message":""`, `"message":null`, `"seal":""`, `"methods":[]`, `"actor":""`, `"expires_at":0`, `"redemptions":0`, `"from": 0`, `"read_keys":null`, `"write_keys":[]`} {
		lines, err := readOpLines(strings.NewReader(`{"method":"share","rights":["read"],` + arg + `}`))
		if err != nil {
			t.Fatal(err)
		}
		if err := checkShareLimits(&lines[0]); fault.CodeOf(err) != fault.BadArgument || !strings.Contains(err.Error(), "line 1") {
			t.Errorf("%s: %v", arg, err)
		}
		lines[0].Method = "put"
		if err := checkShareLimits(&lines[0]); err != nil {
			t.Errorf("put with %s: %v", arg, err)
		}
	}
}

// A method that op lines do not have is told with those they have.
func TestAppendUnknownMethods(t *testing.T) {
	t.Parallel()
	for method, words := range map[string]string{
		"putt": `line 1: there is no method "putt": use one of put, patch, add, remove, claim, release, ask, answer, withdraw, begin, appendText, finalize, share, revoke, bumpEpoch, revert, unrevert, compact, purge, delete`,
		"void": "line 1: there is no method", "create": "line 1: create makes another session", "fork": "line 1: fork makes another session",
	} {
		err := checkMethod(&opLine{Line: 1, Method: method})
		if fault.CodeOf(err) != fault.UnknownMethod || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", method, err)
		}
		if strings.Contains(words, "use one of") && strings.Contains(err.Error(), "fork") {
			t.Errorf("%s: %v", method, err)
		}
	}
	if err := checkMethod(&opLine{Method: "delete"}); err != nil {
		t.Error(err)
	}
}
