//go:build !unix

// Systems other than Unix have no throw-away cluster: tests that need a database are skipped.

package pgtest

import (
	"context"
	"errors"
	"os"
	"testing"
)

var errNoUnix = errors.New("pgtest: a throw-away PostgreSQL needs a Unix")

// URL skips the test.
func URL(tb testing.TB) string {
	tb.Helper()
	tb.Skip(errNoUnix)
	return ""
}

// Role skips the test.
func Role(tb testing.TB, databaseURL string, connections int) (roleURL string, allow func(connections int)) {
	tb.Helper()
	return URL(tb), nil
}

// Reuse changes nothing.
func Reuse() (exit func(code int)) { return os.Exit }

// Template is none.
type Template struct {
	Make func(url string) error
}

// URL skips the test.
func (*Template) URL(tb testing.TB) string {
	tb.Helper()
	return URL(tb)
}

// ServerURL gives an error.
func ServerURL(context.Context) (string, error) { return "", errNoUnix }

// Server is none.
type Server struct{}

// Start skips the test.
func Start(tb testing.TB) *Server {
	tb.Helper()
	tb.Skip(errNoUnix)
	return nil
}

func (*Server) URL() string      { return "" }
func (*Server) Database() string { return "" }
func (*Server) Start()           {}
func (*Server) Stop()            {}
func (*Server) Kill()            {}
