// Waiting for a database that is not available yet, or has no free connection.

package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/store"
)

// waitNoticeDelay is how long opening a store may take before that is logged: a pooler without a
// free connection does not refuse clients, but makes them wait.
const waitNoticeDelay = 10 * time.Second

const (
	waitRetryMin = 100 * time.Millisecond
	waitRetryMax = 2 * time.Second
)

// waitMessages are the log texts of the causes to wait for. An unknown user or database, and an
// address at which nothing answers, are more likely mistakes and end the wait.
var waitMessages = map[dbfault.Cause]string{
	dbfault.NoConnection: "waiting for a connection: the database, its role or a pooler in front of it has none left",
	dbfault.ReadOnly:     "waiting for a database that takes writes: this one is a standby, in recovery, or set to be read only",
	dbfault.Closed:       "waiting for the database: it is closed for maintenance",
	dbfault.NoMemory:     "waiting for the database: it is out of memory, or at another of its limits",
	dbfault.Unreachable:  "waiting for the database: it is starting, shutting down, or away",
}

// retryCause returns the cause of an error to wait for; None for other errors. If the database has
// answered once, Unreachable is waited for too: it may be restarting.
func retryCause(err error, answered bool) dbfault.Cause {
	cause := dbfault.Of(err)
	if _, refused := errors.AsType[*pgconn.PgError](err); cause == dbfault.Unreachable && !refused && !answered || waitMessages[cause] == "" {
		return dbfault.None
	}
	return cause
}

// waitFor opens a store. While the database has no free connection, or is unavailable for another
// of the causes above, it retries until ctx ends. Each cause is logged once, and the end of the
// wait too.
func waitFor(ctx context.Context, log *slog.Logger, after time.Duration, open func() (*store.Store, error)) (*store.Store, error) {
	var mu sync.Mutex // guards the variables below
	said, over := dbfault.None, false
	say := func(cause dbfault.Cause, err error) {
		mu.Lock()
		defer mu.Unlock()
		if said == cause || over {
			return
		}
		said = cause
		log.Warn(waitMessages[cause], "error", err)
	}
	late := time.AfterFunc(after, func() { say(dbfault.NoConnection, errors.New("no answer yet")) })
	defer late.Stop()
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(waitRetryMin), backoff.WithMaxInterval(waitRetryMax),
		backoff.WithMaxElapsedTime(0))
	for answered := false; ; answered = true {
		st, err := open()
		cause := retryCause(err, answered)
		if cause == dbfault.None {
			mu.Lock()
			defer mu.Unlock()
			over = true
			if said != dbfault.None && err == nil {
				log.Info("the database is available again")
			}
			return st, err
		}
		late.Stop() // the cause is known
		say(cause, err)
		select {
		case <-time.After(retry.NextBackOff()):
		case <-ctx.Done():
			return nil, fault.ContextError(context.Cause(ctx), err)
		}
	}
}
