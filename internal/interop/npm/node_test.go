//go:build interop

// The npm package on Node: installed, started, and run against itself and against ours.

package npm

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// versions of the npm package, the oldest and the newest.
var versions = []string{"0.4.0", "0.12.0"}

var transports = []string{"ws", "batch"}

// installed installs the npm packages of js/package-lock.json, once.
var installed = sync.OnceValue(func() error {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "npm", "ci", "--prefer-offline", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = "js"
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("npm ci: %w\n%s", err, said)
	}
	return nil
})

// testserver compiles our server, once, and gives its path: raced if this test is.
var testserver = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "mooring-interop-")
	if err != nil {
		return "", err
	}
	atExit = append(atExit, func() { _ = os.RemoveAll(dir) }) // what cannot be removed stays in the temporary folder
	path := filepath.Join(dir, "testserver")
	args := []string{"build", "-o", path}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	cmd := exec.Command("go", append(args, "github.com/mooring-rpc/mooring/capnweb/testserver")...)
	if said, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build the test server: %w\n%s", err, said)
	}
	return path, nil
})

// start starts a server that prints its address, and gives that. It is stopped when the test ends.
func start(t *testing.T, cmd *exec.Cmd, stop func(*exec.Cmd, io.Closer)) (address string) {
	t.Helper()
	var said bytes.Buffer
	cmd.Stderr = &said
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	stuck := time.AfterFunc(5*time.Minute, func() { _ = cmd.Process.Kill() }) // fails only if it has ended
	t.Cleanup(func() {
		stop(cmd, in)
		killed := time.AfterFunc(patience, func() { _ = cmd.Process.Kill() }) // likewise
		_, _ = io.Copy(io.Discard, out)                                       // until it has ended
		err := cmd.Wait()
		stuck.Stop()
		killed.Stop()
		if err != nil {
			t.Errorf("the server ended with %v", err)
		}
		if said.Len() > 0 && (t.Failed() || testing.Verbose()) {
			text := said.String()
			t.Logf("the server said:\n%s", text[:min(len(text), 20_000)])
		}
	})
	address, err = bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the server does not start: %v\n%s", err, said.String())
	}
	return strings.TrimSpace(address)
}

// nodeServer starts the npm package's server.
func nodeServer(t *testing.T, version string) (address string) {
	t.Helper()
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	return start(t, exec.Command("node", "js/server.mjs", version), func(_ *exec.Cmd, in io.Closer) { _ = in.Close() })
}

// ourServer starts ours.
func ourServer(t *testing.T) (address string) {
	t.Helper()
	path, err := testserver()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, exec.Command(path, "--listen", "127.0.0.1:0"), func(cmd *exec.Cmd, _ io.Closer) {
		_ = cmd.Process.Signal(os.Interrupt) // fails only if it has ended
	})
}

// runNode runs the scenarios of the npm package's client, each as a test of its own.
func runNode(t *testing.T, version, transport, address, server string) {
	t.Helper()
	if err := installed(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "js/client.mjs", version, transport, address, server)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ran, done := 0, -1
	for lines := json.NewDecoder(out); ; {
		var line struct {
			Name, Error string
			Log         []string
			Done        *int
		}
		err := lines.Decode(&line)
		if err == io.EOF {
			break
		} else if err != nil {
			t.Errorf("what the client says: %v", err)
			_ = cmd.Process.Kill() // fails only if it has ended
			break
		}
		if line.Done != nil {
			done = *line.Done
			continue
		}
		ran++
		t.Run(line.Name, func(t *testing.T) {
			if line.Error != "" {
				t.Errorf("%s\n%s", line.Error, strings.Join(line.Log, "\n"))
			}
		})
	}
	if err := cmd.Wait(); err != nil || ran == 0 || ran != done {
		t.Errorf("the client ended with %v after %d scenarios of %d\n%s", err, ran, done, said.String())
	}
}

// each runs f for every version and transport.
func each(t *testing.T, f func(t *testing.T, version, transport string)) {
	for _, version := range versions {
		for _, transport := range transports {
			t.Run(version+"/"+transport, func(t *testing.T) {
				t.Parallel()
				f(t, version, transport)
			})
		}
	}
}

// TestNodeToNode is the control: what the npm package does with itself.
func TestNodeToNode(t *testing.T) {
	each(t, func(t *testing.T, version, transport string) {
		runNode(t, version, transport, nodeServer(t, version), "node")
	})
}

// TestNpmClient has the npm package's client call our server.
func TestNpmClient(t *testing.T) {
	each(t, func(t *testing.T, version, transport string) {
		runNode(t, version, transport, ourServer(t), ours)
	})
}

// TestNpmServer has our client call the npm package's server.
func TestNpmServer(t *testing.T) {
	each(t, func(t *testing.T, version, transport string) {
		runClient(t, version, nodeServer(t, version), transport == "batch")
	})
}
