// Package dialerror says why a server cannot be reached, as far as the failed
// attempt tells, and what to do about it.
package dialerror

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
)

// HTTPStatus is an HTTP answer in place of the connection that was asked for.
type HTTPStatus struct {
	Code     int
	Location string // where a redirection leads
	Body     string // its beginning
}

// Error implements error.
func (s *HTTPStatus) Error() string {
	if s.Location != "" {
		return fmt.Sprintf("the server redirects to %s, which is not followed: if that is the right server, put its address in the ref", s.Location)
	}
	return fmt.Sprintf("HTTP status %d", s.Code)
}

// wantsTLS is how Go's servers answer who speaks no TLS to them.
const wantsTLS = "HTTP request to an HTTPS server"

// readBeforeWrite is what net/http makes of bytes that arrive before it has sent its request.
const readBeforeWrite = "readLoopPeekFailLocked: %!w(<nil>)"

// closedBeforeWrite is what net/http makes of a connection that ends before it has sent its request.
const closedBeforeWrite = "server closed idle connection"

// Explain says it of an attempt to reach address, mooring://HOST or moorings://HOST,
// that failed with err.
func Explain(address string, err error) string {
	var (
		issuer  x509.UnknownAuthorityError
		host    x509.HostnameError
		invalid x509.CertificateInvalidError
		plain   tls.RecordHeaderError
		status  *HTTPStatus
		name    *net.DNSError
		op      *net.OpError
		network net.Error
	)
	switch {
	case errors.As(err, &issuer):
		return fmt.Sprintf("the certificate of the server at %s is not trusted (%v): if it is the right server, trust its issuer with --tls-ca FILE, or client.Config.TLS", address, issuer)
	case errors.As(err, &host):
		return fmt.Sprintf("the certificate of the server at %s is for another name (%v): use a ref that has the name, or is this another server?", address, host)
	case errors.As(err, &invalid):
		return fmt.Sprintf("the certificate of the server at %s is not good (%v): its owner has to renew it, or is the clock here wrong?", address, invalid)
	case errors.As(err, &plain), errors.Is(err, http.ErrSchemeMismatch):
		return fmt.Sprintf("the server at %s speaks no TLS: a ref to it begins with mooring://, or is this another server?", address)
	case errors.As(err, &status):
		return explainStatus(address, status)
	case strings.Contains(err.Error(), "malformed HTTP"), strings.Contains(err.Error(), readBeforeWrite):
		return fmt.Sprintf("what answers at %s speaks no HTTP: if it speaks TLS a ref to it begins with moorings://, else it is no Mooring server", address)
	case errors.As(err, &name):
		return fmt.Sprintf("the host of %s is not found (%s): is the ref right, and is there a network?", address, name.Err)
	case errors.As(err, &op) && op.Op == "dial" && op.Timeout():
		return fmt.Sprintf("nothing answers at %s in time: is the server running, and reachable from here?", address)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return fmt.Sprintf("what listens at %s does not answer in time: is it a Mooring server, and well?", address)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE),
		strings.Contains(err.Error(), closedBeforeWrite):
		return hungUp(address)
	}
	return fmt.Sprintf("no server answers at %s (%s): is it running?", address, innermost(err))
}

func hungUp(address string) string {
	if strings.HasPrefix(address, "moorings:") {
		return fmt.Sprintf("what listens at %s hangs up without an answer: is it a Mooring server, with TLS, and well?", address)
	}
	return fmt.Sprintf("what listens at %s hangs up without an answer: is it a Mooring server, and well? If it speaks TLS a ref to it begins with moorings://", address)
}

func explainStatus(address string, s *HTTPStatus) string {
	switch {
	case s.Location != "":
		return fmt.Sprintf("what answers at %s is elsewhere: %v", address, s)
	case strings.Contains(s.Body, wantsTLS):
		return fmt.Sprintf("the server at %s speaks TLS: a ref to it begins with moorings://", address)
	case s.Code == http.StatusBadGateway, s.Code == http.StatusServiceUnavailable, s.Code == http.StatusGatewayTimeout, s.Code == http.StatusTooManyRequests:
		return fmt.Sprintf("the server at %s is away or takes nobody now (HTTP status %d): try again later", address, s.Code)
	}
	return fmt.Sprintf("what answers at %s is no Mooring server (HTTP status %d): is that its address, and its path, if it has one?", address, s.Code)
}

// innermost is the last part of an error: what people need of a failed dial.
func innermost(err error) string {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err.Error()
}
