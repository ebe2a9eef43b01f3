package e2e

// What something costs the server: the bytes that its process reads and writes
// of files, or that go to its Postgres and come from there.

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

const (
	toServer = faultproxy.ToServer
	toClient = faultproxy.ToClient
)

// meter counts what a server has read and written so far.
type meter func() uint64

// cost runs do and gives what was read and written meanwhile.
func (m meter) cost(do func()) uint64 {
	before := m()
	do()
	return m() - before
}

// throughMeter gives a URL that leads to the same Postgres, and what counts the
// bytes on their way there and back.
func throughMeter(t testing.TB, url string) (string, meter) {
	t.Helper()
	proxy, url := pgtest.ViaProxy(t, url)
	return url, func() uint64 {
		s := proxy.Stats()
		return uint64(s.Forwarded[toServer] + s.Forwarded[toClient])
	}
}

// ioBytes is the process's own count of what went through read and write calls,
// which sockets do not.
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
