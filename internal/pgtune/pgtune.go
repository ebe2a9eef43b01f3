// Package pgtune prepares the connections to Postgres that are Mooring's own.
package pgtune

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/internal/socket"
)

// Every statement goes by keys, and a plan that was made while a table was empty must not read it through once it is not.
const indexPlansSQL = `SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off`

// A transaction that goes out at once, without a beginning of its own, is what the connection says, and not the database or
// whoever uses it: it may write, and each of its statements sees what was committed before it.
const transactionsSQL = `SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off`

// What is written once and read a few times is compressed at a fraction of the cost of the server's default. Where it does
// not know lz4, or somebody has chosen something, all stays as it is.
const compressionSQL = `SELECT set_config(name, 'lz4', false) FROM pg_settings
	WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY (enumvals)`

// A client that stands still inside a transaction, because its process is frozen or its machine is cut off, keeps its locks, and
// with them everybody out who needs the same rows, for about a minute at most. These are ms, s, s and a number; what somebody has
// set to less stays. OFFSET 0 has no other setting taken for a number.
const timeoutsSQL = `SELECT set_config(name, most, false) FROM (
		SELECT s.name, s.setting, w.most FROM pg_settings s JOIN (VALUES ('idle_in_transaction_session_timeout', '60000'),
			('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3')) AS w(name, most) ON w.name = s.name
		OFFSET 0) AS limits
	WHERE setting::bigint NOT BETWEEN 1 AND most::bigint`

// Config has connections made with c read and write their sockets directly (package socket), and
// say whose they are where pg_stat_activity is looked at, unless somebody has given them a name.
func Config(c *pgx.ConnConfig) {
	if c.RuntimeParams["application_name"] == "" {
		host, _ := os.Hostname() // else the number alone
		c.RuntimeParams["application_name"] = fmt.Sprintf("mooring %d on %s", os.Getpid(), host)
	}
	c.DialFunc = pgconn.DialFunc(socket.Dialer(socket.Dial(c.DialFunc)))
}

// Connection has a new connection plan by keys, commit what goes out at once as read committed, compress what it writes with
// lz4 where the server knows that and nobody has set default_toast_compression, be given up after a minute in which it stands
// still inside a transaction, and send bytes from memory that is used again.
func Connection(ctx context.Context, conn *pgx.Conn) error {
	registerBytes(conn.TypeMap())
	if _, err := conn.Exec(ctx, indexPlansSQL+";"+transactionsSQL+";"+compressionSQL+";"+timeoutsSQL, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("prepare connection: %w", err)
	}
	return nil
}
