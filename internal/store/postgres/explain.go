// Errors of opening a Postgres database that say what to do, name the setting that names the
// database, and contain no secret.

package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
)

// CheckURL checks that the URL of a setting can be parsed; "" is valid. The parser's own error repeats
// the URL, which may contain a password.
func CheckURL(setting, url string) error {
	if url == "" {
		return nil
	}
	if _, err := pgxpool.ParseConfig(url); err != nil {
		return fault.Usage.With("%s cannot be read: give postgres://USER@HOST:PORT/DATABASE", setting)
	}
	return nil
}

// Explain returns why the database at the URL of a setting could not be opened, and where it is. Errors that
// already say what to do are unchanged.
func Explain(setting, url string, err error) error {
	cfg, e := pgxpool.ParseConfig(url)
	if err == nil || e != nil {
		return err
	}
	at := databaseAt(cfg.ConnConfig)
	var refused *pgconn.PgError
	var connect *pgconn.ConnectError
	var network net.Error
	switch {
	case dbfault.Of(err) == dbfault.ReadOnly:
		return fault.Unavailable.Because(err, "the database at %s takes no writes: it is a standby, in recovery, or set to be read only. Name the primary with %s, or try again when this one is", at, setting)
	case errors.As(err, &refused):
		switch {
		case refused.Code == "3D000":
			return fault.Unavailable.Because(err, "there is no database %q at %s: create it (createdb does), or name another with %s", cfg.ConnConfig.Database, at, setting)
		case strings.HasPrefix(refused.Code, "28"):
			return fault.Unavailable.Because(err, "the database at %s does not know the user of %s, or not with this password: correct it, or let that user in", at, setting)
		case refused.Code == "42501":
			return fault.Unavailable.Because(err, "the user of %s may not make tables in the database at %s: give it that right, or its database to it", setting, at)
		case refused.Code == "53300":
			return fault.Unavailable.Because(err, "the database at %s has no connection left: end some, or raise its max_connections", at)
		case strings.HasPrefix(refused.Code, "57P"):
			return fault.Unavailable.Because(err, "the database at %s is starting or stopping: try again when it is there", at)
		}
	case errors.As(err, &connect), errors.As(err, &network):
		return fault.Unavailable.Because(err, "the database at %s cannot be reached (%s): is it running, and is that its address? Try again when it is there", at, dialFailure(err))
	}
	return err
}

// databaseAt returns a database's hosts and ports.
func databaseAt(cfg *pgx.ConnConfig) string {
	var all []string
	add := func(host string, port uint16) {
		at := net.JoinHostPort(host, strconv.Itoa(int(port)))
		if strings.HasPrefix(host, "/") {
			at = fmt.Sprintf("the socket %s/.s.PGSQL.%d", host, port)
		}
		if len(all) == 0 || all[len(all)-1] != at {
			all = append(all, at)
		}
	}
	add(cfg.Host, cfg.Port)
	for _, f := range cfg.Fallbacks { // a single host has one too, without TLS
		add(f.Host, f.Port)
	}
	return strings.Join(all, " or ")
}

// dialFailure returns the system's error of a connection that failed.
func dialFailure(err error) string {
	var name *net.DNSError
	var number syscall.Errno
	var network net.Error
	switch {
	case errors.As(err, &name):
		return name.Err
	case errors.As(err, &number):
		return number.Error()
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "no answer in time"
	}
	return "the connection failed"
}

// HasServer reports whether a Postgres database has a server's tables.
func HasServer(ctx context.Context, url string) (has bool, err error) {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return false, err
	}
	err = conn.QueryRow(ctx, "SELECT to_regclass('mooring_version') IS NOT NULL AND to_regclass('sessions') IS NOT NULL").Scan(&has)
	return has, errors.Join(err, conn.Close(context.WithoutCancel(ctx)))
}
