package client_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

// Where something answers that is not what the ref says, the advice is about that.
func TestAnswersOfOtherServers(t *testing.T) {
	t.Parallel()
	quiet := func(h http.HandlerFunc, withTLS bool) string {
		s := httptest.NewUnstartedServer(h)
		s.Config.ErrorLog = log.New(io.Discard, "", 0)
		if withTLS {
			s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
			s.StartTLS()
		} else {
			s.Start()
		}
		t.Cleanup(s.Close)
		return s.Listener.Addr().String()
	}
	status := func(code int, header ...string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			if len(header) > 0 {
				w.Header().Set(header[0], header[1])
			}
			w.WriteHeader(code)
		}
	}
	babble := func(first bool, words string) string { // says that, before it is asked or after, and hangs up
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = ln.Close() })
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				if !first {
					_, _ = c.Read(make([]byte, 1<<10))
				}
				_, _ = io.WriteString(c, words)
				_ = c.Close()
			}
		}()
		return ln.Addr().String()
	}
	const alert = "\x15\x03\x01\x00\x02\x02\x16" // TLS's
	none, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	closed := none.Addr().String()
	if err := none.Close(); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ name, scheme, at, words string }{
		{"an untrusted certificate", "moorings://", quiet(status(404), true), "is not trusted (x509: certificate signed by unknown authority): if it is the right server, trust its issuer with --tls-ca FILE"},
		{"TLS to a plain server", "moorings://", quiet(status(404), false), "speaks no TLS: a ref to it begins with mooring://"},
		{"plain to a TLS server", "mooring://", quiet(status(404), true), "speaks TLS: a ref to it begins with moorings://"},
		{"another web server", "mooring://", quiet(status(404), false), "is no Mooring server (HTTP status 404)"},
		{"another web server that is well", "mooring://", quiet(status(200), false), "is no Mooring server (HTTP status 200)"},
		{"a proxy without its server", "mooring://", quiet(status(502), false), "is away or takes nobody now (HTTP status 502)"},
		{"a redirection", "mooring://", quiet(status(302, "Location", "https://u:p4ss@other.example/x"), false), "is elsewhere: the server redirects to https://u:xxxxx@other.example/x, which is not followed"},
		{"no HTTP", "mooring://", babble(false, alert), "speaks no HTTP"},
		{"speaks first", "mooring://", babble(true, alert), "speaks no HTTP"},
		{"hangs up", "mooring://", babble(false, ""), "hangs up without an answer: is it a Mooring server, and well? If it speaks TLS a ref to it begins with moorings://"},
		{"hangs up at once", "mooring://", babble(true, ""), "hangs up without an answer"},
		{"hangs up on TLS", "moorings://", babble(false, ""), "hangs up without an answer: is it a Mooring server, with TLS, and well?"},
		{"nobody", "mooring://", closed, "(connection refused): is it running?"},
	} {
		cl, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir()), RetryTimeout: -1})
		if err != nil {
			t.Fatal(err)
		}
		address, err := capability.ParseAddress(c.scheme + c.at)
		if err != nil {
			t.Fatal(err)
		}
		s, err := cl.Session(t.Context(), address.New("ses_01JABCDEFGHJKMNPQRSTVWXYZ0"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err = s.Describe(t.Context()); fault.CodeOf(err) != fault.Unavailable || !strings.Contains(err.Error(), c.words) ||
			!strings.Contains(err.Error(), c.scheme+c.at) || c.name != "nobody" && strings.Contains(err.Error(), "running") {
			t.Errorf("%s: %v", c.name, err)
		}
		if err := cl.Close(); err != nil {
			t.Error(err)
		}
	}
}
