package e2e

// The example of agents that share a plan, as its first lines say to run it.

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
)

// buildExample builds an example into a folder, as whoever takes it over would, and returns the program.
func buildExample(t *testing.T, dir, name string) string {
	t.Helper()
	program := filepath.Join(dir, name)
	build := exec.Command("go", "build", "-trimpath", "-o", program, "../../examples/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	return program
}

func TestPlanExample(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	program := buildExample(t, dir, "plan")
	start := func(args ...string) func() string {
		cmd := exec.CommandContext(bounded(t), program, args...)
		cmd.Dir, cmd.Env = dir, environment("")
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func() string {
			if err := cmd.Wait(); err != nil {
				t.Fatalf("plan %s: %v\n%s", strings.Join(args, " "), err, out.String())
			}
			return out.String()
		}
	}
	startServer(t, serverConfig{Data: filepath.Join(dir, "srv")})
	steps := strings.Fields("saw sand caulk paint varnish rig launch")
	start(append([]string{"new", "srv/owner.ref", "plan.ref"}, steps...)...)()
	var printed []string
	for _, wait := range []func() string{start("work", "plan.ref", "ann"), start("work", "plan.ref", "bob"), start("work", "plan.ref", "cyd")} {
		printed = append(printed, splitLines(wait())...)
	}
	var did []string
	for _, line := range printed {
		_, what, _ := strings.Cut(line, ": ")
		if what != "all 7 steps are done" {
			did = append(did, what)
		}
	}
	slices.Sort(did)
	slices.Sort(steps)
	if !slices.Equal(did, steps) || len(printed) != len(steps)+3 {
		t.Errorf("three agents did %q, not each step once; they printed\n%s", did, strings.Join(printed, "\n"))
	}

	ref, err := capability.ReadRefFile(filepath.Join(dir, "plan.ref"))
	if err != nil {
		t.Fatal(err)
	}
	plan, err := openClient(t).Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	page, err := plan.Get(bounded(t), "plan", "step/1", "step/7")
	if err != nil || len(page.Entries) != 3 {
		t.Fatalf("%v, %v", page, err)
	}
	var value struct {
		Done  int
		State string
		By    string
	}
	if err := json.Unmarshal(page.Entries[0].Payload, &value); err != nil || value.Done != len(steps) {
		t.Errorf("the plan is %s, %v", page.Entries[0].Payload, err)
	}
	if err := json.Unmarshal(page.Entries[2].Payload, &value); err != nil || value.State != "done" || value.By == "" {
		t.Errorf("the last step is %s, %v", page.Entries[2].Payload, err)
	}

	if out := newHome(t).do("session", "show", "@"+filepath.Join(dir, "plan.ref")); !strings.Contains(out, `"title": "launch"`) || strings.Count(out, `"state": "done"`) != len(steps) {
		t.Errorf("session show prints\n%s", out)
	}

	for _, args := range [][]string{{}, {"work"}, {"new", "srv/owner.ref", "x.ref"}, {"work", "no-such.ref", "ann"}} {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, args...)
		cmd.Dir, cmd.Env = dir, environment("")
		if out, err := cmd.CombinedOutput(); err == nil || len(splitLines(string(out))) > 2 || len(out) == 0 {
			t.Errorf("plan %q: %v, %s", args, err, out)
		}
	}
}
