// Waiting for a connection, where others have taken all of them.

package postgres

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/store"
)

// waitingAfter is how long a store may take to open before that is said: a pooler that has no
// connection left does not say so, but lets one wait.
const waitingAfter = 10 * time.Second

const (
	waitRetryMin = 100 * time.Millisecond
	waitRetryMax = 2 * time.Second
)

// waitFor opens a store. While the database has no connection for it, it tries again until ctx
// ends. That is said once, as is that it goes on.
func waitFor(ctx context.Context, log *slog.Logger, after time.Duration, open func() (*store.Store, error)) (*store.Store, error) {
	var mu sync.Mutex // guards what follows
	said, over := false, false
	say := func(cause error) {
		mu.Lock()
		defer mu.Unlock()
		if said || over {
			return
		}
		said = true
		log.Warn("waiting for a connection: the database, its role or a pooler before it has none left", "error", cause)
	}
	late := time.AfterFunc(after, func() { say(errors.New("no answer yet")) })
	defer late.Stop()
	retry := backoff.NewExponentialBackOff(backoff.WithInitialInterval(waitRetryMin), backoff.WithMaxInterval(waitRetryMax),
		backoff.WithMaxElapsedTime(0))
	for {
		st, err := open()
		if dbfault.Of(err) != dbfault.NoConnection {
			mu.Lock()
			defer mu.Unlock()
			over = true
			if said && err == nil {
				log.Info("the database has a connection again: going on")
			}
			return st, err
		}
		say(err)
		select {
		case <-time.After(retry.NextBackOff()):
		case <-ctx.Done():
			return nil, fault.GivenUp(context.Cause(ctx), err)
		}
	}
}
