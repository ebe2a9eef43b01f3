package e2e

// What something costs the server: the bytes that its process reads and writes,
// of files and of its database's socket.

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/faultproxy"
)

const (
	toServer = faultproxy.ToServer
	toClient = faultproxy.ToClient
)

// cost runs do and gives the bytes that the server's process has read and
// written meanwhile.
func cost(t testing.TB, srv *server, do func()) uint64 {
	t.Helper()
	before := ioBytes(t, srv)
	do()
	return ioBytes(t, srv) - before
}

// ioBytes is the process's own count of what went through read and write calls.
func ioBytes(t testing.TB, srv *server) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/io", srv.current().cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	var sum, n uint64
	for line := range strings.Lines(string(text)) {
		if _, err := fmt.Sscanf(line, "rchar: %d", &n); err == nil {
			sum += n
		}
		if _, err := fmt.Sscanf(line, "wchar: %d", &n); err == nil {
			sum += n
		}
	}
	return sum
}
