//go:build unix

// A cluster of a test's own, for tests of a database that is away.

package pgtest

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// Server is a private cluster with its own port, which it keeps over restarts.
// Its methods fail the test when they fail; they belong on the test's own
// goroutine and are not safe together.
type Server struct {
	tb      testing.TB
	cluster *cluster
	lease   *os.File
}

// Start makes and starts a private cluster, which takes a second or two, and
// removes it when tb ends. It does not use MOORING_TEST_DATABASE_URL: a server
// that others may use cannot be stopped.
func Start(tb testing.TB) *Server {
	tb.Helper()
	p, err := defaultPool()
	if err != nil {
		tb.Fatalf("pgtest: no Postgres for this test: %v", err)
	}
	return p.start(tb)
}

func (p *pool) start(tb testing.TB) *Server {
	tb.Helper()
	c, lease, err := p.private(context.Background())
	if err != nil {
		tb.Fatalf("pgtest: no Postgres for this test: %v", err)
	}
	s := &Server{tb: tb, cluster: c, lease: lease}
	tb.Cleanup(s.remove)
	s.Start()
	return s
}

// URL returns the connection URL of the cluster's own, empty database. It stays
// the same over restarts.
func (s *Server) URL() string { return s.cluster.url() }

// Database creates a further empty database and returns its URL. The server
// must be running.
func (s *Server) Database() string {
	s.tb.Helper()
	name := "test_" + randomHex(6)
	if err := execute(s.URL(), "CREATE DATABASE "+name+" TEMPLATE template0"); err != nil {
		s.tb.Fatalf("pgtest: create database: %v", err)
	}
	return withDatabase(s.URL(), name)
}

// DatabaseOn creates a further empty database on what mount mounts on a folder, and returns its URL. The error is mount's.
func (s *Server) DatabaseOn(mount func(dir string) error) (string, error) {
	s.tb.Helper()
	dir := filepath.Join(s.cluster.dir, "tables")
	if err := os.Mkdir(dir, 0o700); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	if err := mount(dir); err != nil {
		return "", err
	}
	if err := s.cluster.account.chown(dir); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	for _, sql := range []string{"CREATE TABLESPACE elsewhere LOCATION '" + dir + "'", "CREATE DATABASE elsewhere TEMPLATE template0 TABLESPACE elsewhere"} {
		if err := execute(s.URL(), sql); err != nil {
			s.tb.Fatalf("pgtest: %v", err)
		}
	}
	return withDatabase(s.URL(), "elsewhere"), nil
}

// Start starts the server again and returns when it answers. It does nothing if
// the server runs.
func (s *Server) Start() {
	s.tb.Helper()
	if s.cluster.pid != 0 {
		return
	}
	if err := s.cluster.start(context.Background()); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}

// Stop shuts the server down in order: connections are closed, nothing that was
// committed is lost. From its return connecting is refused.
func (s *Server) Stop() {
	s.tb.Helper()
	if err := s.cluster.stop(); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}

// Standby restarts the server as a standby: it answers, and takes no writes until Promote.
func (s *Server) Standby() {
	s.tb.Helper()
	s.Stop()
	signal := filepath.Join(s.cluster.data(), "standby.signal")
	if err := errors.Join(os.WriteFile(signal, nil, 0o600), s.cluster.account.chown(signal)); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
	s.Start()
}

// Promote makes a standby take writes again.
func (s *Server) Promote() {
	s.tb.Helper()
	if err := execute(s.URL(), "SELECT pg_promote()"); err != nil {
		s.tb.Fatalf("pgtest: promote: %v", err)
	}
}

// Kill ends the server with SIGKILL, in the middle of whatever it does. The next
// Start recovers what was committed.
func (s *Server) Kill() {
	s.tb.Helper()
	if err := s.cluster.kill(); err != nil {
		s.tb.Fatalf("pgtest: %v", err)
	}
}

// remove is the cleanup. The lease is given up last, so that the watchdog finds
// nothing left to do.
func (s *Server) remove() {
	if err := s.cluster.kill(); err != nil {
		s.tb.Errorf("pgtest: %v", err)
	}
	if err := remove(s.cluster.dir); err != nil {
		s.tb.Errorf("pgtest: %v", err)
	}
	s.lease.Close()
}
