// Package periodic calls functions at intervals that spread over replicas.
package periodic

import (
	"context"
	"math/rand/v2"
	"time"
)

// Do calls f at about the interval until ctx ends, first after one interval.
func Do(ctx context.Context, interval time.Duration, f func()) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(Jitter(interval)):
			f()
		}
	}
}

// Jitter returns interval, varied by up to a tenth.
func Jitter(interval time.Duration) time.Duration {
	return interval - interval/10 + time.Duration(rand.Int64N(int64(interval)/5+1))
}
