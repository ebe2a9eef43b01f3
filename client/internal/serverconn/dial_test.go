package serverconn

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
)

// A ref to localhost stays on this machine, whatever a resolver makes of the name.
func TestLocalhostIsThisMachine(t *testing.T) {
	t.Parallel()
	for host, want := range map[string]string{
		"localhost:7600":    "127.0.0.1:7600 [::1]:7600",
		"LocalHost.:80":     "127.0.0.1:80 [::1]:80",
		"127.0.0.1:7600":    "127.0.0.1:7600",
		"[::1]:7600":        "[::1]:7600",
		"example.com:7600":  "example.com:7600",
		"localhost.com:443": "localhost.com:443",
	} {
		var dialled []string
		_, err := dialLoopback(func(_ context.Context, _, addr string) (net.Conn, error) {
			dialled = append(dialled, addr)
			return nil, errors.New("connection refused")
		})(t.Context(), "tcp", host)
		if got := strings.Join(dialled, " "); got != want || err == nil {
			t.Errorf("%s: dialled %s, %v", host, got, err)
		}
	}
}
