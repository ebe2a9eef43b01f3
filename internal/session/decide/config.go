// The configuration of the rules.

package decide

import (
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Config configures Commit and Lapse.
type Config struct {
	Limits session.Limits
	Lease  time.Duration // how long a streaming turn stays so without an op of its stream

	// Features returns the features that every replica knows. An op that needs another is answered
	// Unsupported: it is not recorded, and is sent again. nil: all.
	Features func() session.Features

	// DenialRows returns how many audit rows the denials of a ref's batch may have, of the want
	// that they need; the caller counts the others (Answer.Denied). It may be called again for the
	// same batch. nil: no bound.
	DenialRows func(ref string, want int) int

	// CheckQuota returns the reason that nothing more may be written to a session, or no more
	// sessions created under a ref of a space; it is called when all other checks have passed. nil:
	// no check.
	CheckQuota func(id string) *fault.Error
}

// DefaultConfig returns DefaultLimits with a lease of 30 s.
func DefaultConfig() Config { return Config{Limits: session.DefaultLimits(), Lease: 30 * time.Second} }

// readBytes is how many bytes of payloads one submission may read beyond its own: enough for any
// event of EventBytes, and for a log with some history.
func (c *Config) readBytes() int { return 4 * c.Limits.EventBytes }
