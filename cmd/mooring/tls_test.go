//go:build unix

// The commands with refs over TLS.

package main

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/selfsigned"
)

func TestRefsOverTLS(t *testing.T) {
	t.Parallel()
	cert, key, _ := selfsigned.Write(t, t.TempDir())
	r := newCLI(t, "", "--tls-cert", cert, "--tls-key", key)
	id := r.importSmall("--tls-ca", cert)
	ref := strings.TrimSpace(r.ok("share", id, "--rights", "read", "--tls-ca", cert))
	if !strings.HasPrefix(ref, "moorings://127.0.0.1:") {
		t.Errorf("the ref does not begin with moorings://")
	}
	if out := r.ok("session", "show", id, "--tls-ca", cert); !strings.Contains(out, "small") {
		t.Errorf("show says %q", out)
	}
	r.fails(cli.ExitRefused, "certificate", "session", "show", id)
	r.fails(cli.ExitUsage, "no PEM", "session", "show", id, "--tls-ca", key)
}
