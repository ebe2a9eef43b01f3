//go:build unix

// Tests of sharing a cluster between processes, and of clearing up when they
// die: other processes are this test binary, started again as holders.

package pgtest

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// envHolder makes this test binary a process that holds the shared cluster of
// the pool in the folder given.
const envHolder = "MOORING_PGTEST_HOLDER"

// holdShared prints the shared cluster's URL and holds it until stdin ends.
func holdShared(base string) {
	p, err := testPool(base)
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	url, lease, err := p.shared(context.Background())
	if err != nil {
		fmt.Println("error:", err)
		os.Exit(1)
	}
	fmt.Println(url)
	io.Copy(io.Discard, os.Stdin)
	lease.Close()
	os.Exit(0)
}

// testPool is a pool whose shared cluster goes soon after its last user.
func testPool(base string) (*pool, error) {
	acct, err := serverAccount()
	if err != nil {
		return nil, err
	}
	return openPool(base, acct, 500*time.Millisecond)
}

// newBase returns a folder for a pool which the server's account can enter.
func newBase(t *testing.T) string {
	t.Helper()
	p, err := defaultPool()
	if err != nil {
		t.Fatal(err)
	}
	outer, err := os.MkdirTemp(p.base, "test-")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(outer, 0o711); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(outer) })
	return filepath.Join(outer, "pool")
}

// holder is another process that uses the pool's shared cluster.
type holder struct {
	url string
	cmd *exec.Cmd
	in  io.Closer
}

func startHolder(t *testing.T, base string) *holder {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), envHolder+"="+base)
	cmd.Stderr = os.Stderr
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
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || !strings.HasPrefix(line, "postgres://") {
		t.Fatalf("holder says %q, %v", line, err)
	}
	return &holder{url: strings.TrimSpace(line), cmd: cmd, in: in}
}

// eventually fails the test if cond does not become true in time.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for !cond() {
		if ctx.Err() != nil {
			t.Fatalf("not within 30 s: %s", what)
		}
		pause(ctx, 50*time.Millisecond)
	}
}

func clusters(t *testing.T, base string) []string {
	t.Helper()
	dirs, err := filepath.Glob(filepath.Join(base, "c-*"))
	if err != nil {
		t.Fatal(err)
	}
	return dirs
}

func TestProcessesShareOneClusterAndTheLastLeavesNothing(t *testing.T) {
	t.Parallel()
	base := newBase(t)
	first := startHolder(t, base)
	second := startHolder(t, base)
	if first.url != second.url {
		t.Fatalf("two processes at once got %s and %s", first.url, second.url)
	}
	// The one that started the cluster dies; the other goes on with it for longer
	// than an unused cluster stays.
	if err := first.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	first.cmd.Wait()
	if n := query[int](t, second.url, "SELECT 1 FROM pg_sleep(1.2)"); n != 1 {
		t.Fatalf("SELECT 1 gives %d", n)
	}
	if err := second.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	second.cmd.Wait()
	eventually(t, "the cluster's folder is removed", func() bool { return len(clusters(t, base)) == 0 })
	if err := ping(t.Context(), second.url); err == nil {
		t.Error("the server still answers")
	}
	// And whoever comes then starts a new one.
	third := startHolder(t, base)
	if n := query[int](t, third.url, "SELECT 1"); n != 1 {
		t.Errorf("SELECT 1 gives %d", n)
	}
	third.in.Close()
	eventually(t, "the new cluster's folder is removed", func() bool { return len(clusters(t, base)) == 0 })
}

func TestSharedClusterThatDiedIsReplaced(t *testing.T) {
	t.Parallel()
	base := newBase(t)
	first := startHolder(t, base)
	pid := serverPid(filepath.Join(clusters(t, base)[0], "data"))
	if pid == 0 {
		t.Fatal("the cluster has no server process")
	}
	if err := (&cluster{pid: pid}).kill(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the server is gone", func() bool { return ping(t.Context(), first.url) != nil })
	second := startHolder(t, base)
	if first.url == second.url {
		t.Fatalf("the dead server's URL was given out again")
	}
	if n := query[int](t, second.url, "SELECT 1"); n != 1 {
		t.Errorf("SELECT 1 gives %d", n)
	}
	first.in.Close()
	second.in.Close()
	eventually(t, "both folders are removed", func() bool { return len(clusters(t, base)) == 0 })
}

func TestLeftoversOfAPowerCutAreSwept(t *testing.T) {
	t.Parallel()
	base := newBase(t)
	p, err := testPool(base)
	if err != nil {
		t.Fatal(err)
	}
	unused, unfinished := filepath.Join(base, "c-unused"), filepath.Join(base, "c-unfinished")
	for _, dir := range []string{filepath.Join(unused, "data"), unfinished} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{
		"lease": "",
		// A process that is alive but surely no server of this folder.
		"data/postmaster.pid": fmt.Sprintf("%d\n", os.Getpid()),
	} {
		if err := os.WriteFile(filepath.Join(unused, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	s := p.start(t)
	if left := clusters(t, base); len(left) != 1 || left[0] != s.cluster.dir {
		t.Errorf("folders: %v, want only %s", left, s.cluster.dir)
	}
}

func TestPoolRefusesAFolderOthersMayWriteTo(t *testing.T) {
	t.Parallel()
	base := newBase(t)
	if err := os.Mkdir(base, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(base, 0o777); err != nil {
		t.Fatal(err)
	}
	if _, err := testPool(base); err == nil || !strings.Contains(err.Error(), "only you can write") {
		t.Errorf("error %v, want one that says only you may write to it", err)
	}
}
