// Package stmtfault stands between a test and its database, and has a statement fail with a code of the test's choice: on the
// way to a real Postgres (Postgres), or around SQLite's driver (SQLite).
package stmtfault

import (
	"fmt"
	"sync"

	"github.com/mooring-rpc/mooring/internal/dbfault"
)

// Failure is what a statement, or a new connection, is answered.
type Failure struct {
	// State is Postgres's SQLSTATE, and Routine of Postgres it came from, if that matters.
	State, Routine string
	// Fatal says that the connection ends with it.
	Fatal bool

	// Code is SQLite's result code, where there is no State.
	Code int
	// RolledBack says that SQLite has rolled the transaction back by itself, as it may do after some codes.
	RolledBack bool
	// AfterCommit says that a commit has done all the same what it is to do.
	AfterCommit bool
}

// Cause is what the failure means.
func (f Failure) Cause() dbfault.Cause {
	if f.State != "" {
		return dbfault.Postgres(f.State, f.Routine)
	}
	return dbfault.SQLite(f.Code)
}

// String is the failure's name in what a test says.
func (f Failure) String() string {
	name := f.State + f.Routine
	if f.State == "" {
		name = fmt.Sprint(f.Code)
	}
	for what, is := range map[string]bool{" (fatal)": f.Fatal, " (undone)": f.RolledBack, " (after)": f.AfterCommit} {
		if is {
			name += what
		}
	}
	return name
}

// Statements are those of one test's database, over all its connections. Their methods are for any number of goroutines.
type Statements struct {
	// Failures are one for each line of dbfault's table, in all ways in which this database fails with it.
	Failures []Failure

	passes func(sql string) bool

	mu      sync.Mutex // guards what follows
	seen    int        // since Fail
	at      int        // which fails; 0 for none
	allFrom bool
	fails   Failure
	failed  []string
}

// Fail has the at-th statement from now on fail, over all connections, and onwards all that come after it. With 0 none fails
// any more.
func (s *Statements) Fail(at int, onwards bool, f Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen, s.at, s.allFrom, s.fails, s.failed = 0, at, onwards, f, nil
}

// Failed are the statements that have failed since Fail.
func (s *Statements) Failed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed
}

// During has the at-th statement of what do does, and all after it, fail. It gives those that have failed, and what do did.
func (s *Statements) During(at int, f Failure, do func() error) (failed []string, err error) {
	s.Fail(at, true, f)
	err = do()
	failed = s.Failed()
	s.Fail(0, false, Failure{})
	return failed, err
}

// now says whether a statement is to fail.
func (s *Statements) now(sql string) (Failure, bool) {
	if s.passes != nil && s.passes(sql) {
		return Failure{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen++
	if s.at == 0 || s.seen != s.at && !(s.allFrom && s.seen > s.at) {
		return Failure{}, false
	}
	s.failed = append(s.failed, sql)
	return s.fails, true
}
