package pgfault

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/internal/dbfault"
)

func TestPgxErrors(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want dbfault.Cause
	}{
		{fmt.Errorf("commit: %w", &pgconn.PgError{Code: "53300"}), dbfault.NoConnection}, {&pgconn.PgError{Code: "23505"}, dbfault.None},
		{fmt.Errorf("read: %w", io.ErrUnexpectedEOF), dbfault.Unreachable}, {io.EOF, dbfault.Unreachable}, {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, dbfault.Unreachable},
		{net.ErrClosed, dbfault.Unreachable}, {driver.ErrBadConn, dbfault.Unreachable}, {errors.New("a defect"), dbfault.None}, {nil, dbfault.None},
	} {
		if got := Of(c.err); got != c.want {
			t.Errorf("%v: %q, want %q", c.err, got, c.want)
		}
	}
}
