package dbfault

import (
	"errors"
	"fmt"
	"testing"

	lib "modernc.org/sqlite/lib"

	"github.com/mooring-rpc/mooring/fault"
)

func TestPostgresStates(t *testing.T) {
	t.Parallel()
	for state, want := range map[string]Cause{
		"25006": ReadOnly, "25001": None, "25P02": None, "25P03": Locked, "25P04": Timeout,
		"57P01": Unreachable, "57P02": Unreachable, "57P03": Unreachable, "57P04": Unreachable, "57P05": Unreachable, "57014": Timeout,
		"08000": Unreachable, "08001": Unreachable, "08003": Unreachable, "08004": Unreachable, "08006": Unreachable, "08P01": Unreachable,
		"55000": Closed, "55006": Closed, "55P03": Locked, "55P02": None,
		"53000": NoMemory, "53100": DiskFull, "53200": NoMemory, "53300": NoConnection, "53400": NoMemory,
		"40001": Locked, "40P01": Locked, "40002": Locked,
		"28000": Refused, "28P01": Refused, "3D000": Refused, "42501": Refused,
		"58000": DiskError, "58030": DiskError, "58P01": DiskError, "XX000": None, "XX001": Damaged, "XX002": Damaged,
		"0A000": None, "23505": None, "42601": None, "42P01": None, "22P05": None, "": None, "5": None,
	} {
		if got := Postgres(state, "exec_simple_query"); got != want {
			t.Errorf("%q: %q, want %q", state, got, want)
		}
	}
	if got := Postgres("0A000", recoveryRoutine); got != ReadOnly {
		t.Errorf("a transaction that is to write, during recovery: %q", got)
	}
	if got := Postgres("22023", recoveryRoutine); got != None {
		t.Errorf("a setting that is not allowed: %q", got)
	}
}

func TestSQLiteResults(t *testing.T) {
	t.Parallel()
	for code, want := range map[int]Cause{
		lib.SQLITE_BUSY: Locked, lib.SQLITE_BUSY_SNAPSHOT: Locked, lib.SQLITE_BUSY_RECOVERY: Locked, lib.SQLITE_LOCKED: Locked,
		lib.SQLITE_LOCKED_SHAREDCACHE: Locked, lib.SQLITE_PROTOCOL: Locked, lib.SQLITE_SCHEMA: Locked,
		lib.SQLITE_READONLY: ReadOnly, lib.SQLITE_READONLY_DBMOVED: ReadOnly, lib.SQLITE_READONLY_DIRECTORY: ReadOnly, lib.SQLITE_PERM: ReadOnly,
		lib.SQLITE_IOERR: DiskError, lib.SQLITE_IOERR_READ: DiskError, lib.SQLITE_IOERR_FSYNC: DiskError, lib.SQLITE_CANTOPEN: DiskError,
		lib.SQLITE_CANTOPEN_ISDIR: DiskError, lib.SQLITE_NOLFS: DiskError,
		lib.SQLITE_FULL: DiskFull, lib.SQLITE_IOERR_WRITE: DiskFull, lib.SQLITE_IOERR_SHMSIZE: DiskFull,
		lib.SQLITE_NOMEM: NoMemory, lib.SQLITE_IOERR_NOMEM: NoMemory,
		lib.SQLITE_CORRUPT: Damaged, lib.SQLITE_CORRUPT_INDEX: Damaged, lib.SQLITE_CORRUPT_VTAB: Damaged, lib.SQLITE_NOTADB: Damaged,
		lib.SQLITE_IOERR_CORRUPTFS: Damaged, lib.SQLITE_IOERR_DATA: Damaged, lib.SQLITE_INTERRUPT: Timeout,
		lib.SQLITE_OK: None, lib.SQLITE_ERROR: None, lib.SQLITE_MISUSE: None, lib.SQLITE_CONSTRAINT_UNIQUE: None, lib.SQLITE_MISMATCH: None,
	} {
		if got := SQLite(code); got != want {
			t.Errorf("%d: %q, want %q", code, got, want)
		}
	}
}

func TestEveryCauseIsTriedAgain(t *testing.T) {
	t.Parallel()
	cause := errors.New("as the driver has it")
	for _, c := range Causes() {
		err := fmt.Errorf("commit: %w", c.Fault(cause, "in our words"))
		code := fault.CodeOf(err)
		if !code.Transient() && code != fault.DiskFull || (code == fault.DiskFull) != (c == DiskFull) {
			t.Errorf("%s: %v", c, code)
		}
		if Of(err) != c || !errors.Is(err, cause) || err.Error() != "commit: "+code.String()+": in our words" {
			t.Errorf("%s: the error is %v, of %q", c, err, Of(err))
		}
	}
	for _, err := range []error{nil, cause, fault.Unavailable.With("said elsewhere")} {
		if Of(err) != None {
			t.Errorf("%v has the cause %q", err, Of(err))
		}
	}
	for state, c := range states {
		if c == None {
			t.Errorf("%s has no cause", state)
		}
	}
}
