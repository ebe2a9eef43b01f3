// Package pgtune prepares Mooring's own connections to Postgres.
//
// # Lock order
//
//	AdaptivePool.mu and copyReader.mu, each alone: neither calls a program's function under its lock
//
// # Bounds
//
// A connection keeps at most maxKeptBytes for arguments, the pool of buffers keeps none beyond maxBuffer, and Copy encodes about
// copyChunk at a time. AdaptivePool uses at most the pool's MaxConns.
package pgtune

import (
	"context"
	"fmt"
	"os"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/internal/socket"
)

// indexPlansSQL makes plans use keys: every statement has one, and a plan that was made while a table was empty must not scan
// it once it is not.
const indexPlansSQL = `SET enable_seqscan = off; SET enable_hashjoin = off; SET enable_mergejoin = off; SET jit = off`

// transactionsSQL sets the mode of a transaction that is sent at once, without a BEGIN of its own, whatever the database or
// role has set: it may write, and each of its statements sees what was committed before it.
const transactionsSQL = `SET default_transaction_isolation = 'read committed'; SET default_transaction_read_only = off`

// compressionSQL compresses values, which are written once and read a few times, at a fraction of the cost of the server's
// default. Where it does not know lz4, or an operator has chosen a method, nothing changes.
const compressionSQL = `SELECT set_config(name, 'lz4', false) FROM pg_settings
	WHERE name = 'default_toast_compression' AND source = 'default' AND 'lz4' = ANY (enumvals)`

// timeoutsSQL bounds how long a client that hangs inside a transaction, because its process is frozen or its machine is cut
// off, keeps its locks and blocks all clients that need the same rows: about a minute. The values are ms, s, s and a number;
// lower settings stay. OFFSET 0 keeps other settings from being parsed as a number.
const timeoutsSQL = `SELECT set_config(name, most, false) FROM (
		SELECT s.name, s.setting, w.most FROM pg_settings s JOIN (VALUES ('idle_in_transaction_session_timeout', '60000'),
			('tcp_keepalives_idle', '30'), ('tcp_keepalives_interval', '10'), ('tcp_keepalives_count', '3')) AS w(name, most) ON w.name = s.name
		OFFSET 0) AS limits
	WHERE setting::bigint NOT BETWEEN 1 AND most::bigint`

// Config makes connections made with c read and write their sockets directly (package socket), and
// sets the application name that pg_stat_activity shows, unless one is set.
func Config(c *pgx.ConnConfig) {
	if c.RuntimeParams["application_name"] == "" {
		host, _ := os.Hostname() // on an error the name is the number alone
		c.RuntimeParams["application_name"] = fmt.Sprintf("mooring %d on %s", os.Getpid(), host)
	}
	c.DialFunc = pgconn.DialFunc(socket.Dialer(socket.Dial(c.DialFunc)))
}

// Connection prepares a new connection: it plans by keys, commits transactions without BEGIN as read committed, compresses
// values with lz4 where the server knows that and default_toast_compression is not set, is ended after a minute of hanging
// inside a transaction, and sends byte strings from reused memory.
func Connection(ctx context.Context, conn *pgx.Conn) error {
	registerBytes(conn.TypeMap())
	if _, err := conn.Exec(ctx, indexPlansSQL+";"+transactionsSQL+";"+compressionSQL+";"+timeoutsSQL, pgx.QueryExecModeSimpleProtocol); err != nil {
		return fmt.Errorf("prepare connection: %w", err)
	}
	return nil
}
