package dialerror

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"
)

// What takes a network that is not there; the rest is shown with servers, in package client.
func TestText(t *testing.T) {
	t.Parallel()
	const at = "mooring://host.example"
	for _, c := range []struct {
		err   error
		words string
	}{
		{&net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host", Name: "host.example"}}, "the host of " + at + " is not found (no such host)"},
		{&net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}, "nothing answers at " + at + " in time"},
		{fmt.Errorf("get: %w", context.DeadlineExceeded), "what listens at " + at + " does not answer in time"},
		{&net.OpError{Op: "read", Err: os.ErrDeadlineExceeded}, "does not answer in time"},
		{x509.HostnameError{Certificate: &x509.Certificate{DNSNames: []string{"other.example"}}, Host: "host.example"}, "is for another name (x509: certificate is valid for other.example, not host.example)"},
		{x509.CertificateInvalidError{Reason: x509.Expired, Cert: &x509.Certificate{}}, "is not good (x509: certificate has expired"},
		{&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, "no server answers at " + at + " (connection refused): is it running?"},
	} {
		if got := Explain(at, fmt.Errorf("dial: %w", c.err)); !strings.Contains(got, c.words) || !strings.Contains(got, at) {
			t.Errorf("%v: %q, want %q", c.err, got, c.words)
		}
	}
}
