// Package schemafile reads the migrations of a database schema from their files, whose names begin with
// their version: 00001_tables.sql. Package migrations has them applied by goose, and package
// outbox/internal/sqlite by hand; both refuse the same databases.
package schemafile

import (
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// Migration is one file: a script that runs in one transaction.
type Migration struct {
	Version int64
	Name    string
	Script  string
}

// Read reads the .sql files at the root of a tree, in the order of their names, which is that of
// their versions.
func Read(files fs.FS) (all []Migration, err error) {
	names, err := fs.Glob(files, "*.sql")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		number, _, _ := strings.Cut(name, "_")
		version, err := strconv.ParseInt(number, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		text, err := fs.ReadFile(files, name)
		if err != nil {
			return nil, err
		}
		_, script, ok := strings.Cut(string(text), "-- +goose Up\n")
		if !ok {
			return nil, fmt.Errorf("%s has no line -- +goose Up", name)
		}
		all = append(all, Migration{version, name, script})
	}
	return all, nil
}

// Newest is the version that a database has once all of them are applied.
func Newest(all []Migration) (version int64) {
	for _, m := range all {
		version = max(version, m.Version)
	}
	return version
}

// CheckVersion fails with fault.Incompatible on a database that is more than one version ahead of
// this binary. users are the programs that may share it.
func CheckVersion(schema, users string, version, newest int64) error {
	if version <= newest+1 {
		return nil
	}
	return fault.Incompatible.With("the %s database is at version %d and this binary knows %d at most: "+
		"run a newer mooring (%s may be one version apart, not more)", schema, version, newest, users)
}
