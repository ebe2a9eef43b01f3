// Intake: memory budgets for what peers send, one for strangers, who have shown no ref yet, and
// one for all others.

package admission

import (
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/membudget"
)

const (
	// maxStrangerMessage is how much of a stranger's message is buffered before a restore of the
	// peer has succeeded.
	maxStrangerMessage = 1 << 20
	// intakeMaxWait is how long a larger message waits for the restore, and any message for
	// memory.
	intakeMaxWait = 10 * time.Second
)

// NewIntake returns the budgets of strangers, of whom one address gets at most half, and of
// all others, of whom those under one ref get at most refBytes.
func NewIntake(strangerBytes, knownBytes, refBytes int) *intake.Config {
	budget := func(total, perKey int) *membudget.Budget {
		return membudget.New(membudget.Config{Total: int64(total), PerKey: int64(perKey), MaxWait: intakeMaxWait})
	}
	return &intake.Config{
		Strangers:        budget(strangerBytes, strangerBytes/2),
		Known:            budget(knownBytes, refBytes),
		MaxStrangerBytes: maxStrangerMessage, MaxWait: intakeMaxWait,
		TooLarge:   NewException(fault.TooLarge.With("so much is not accepted before a ref is restored: restore one first, or send less")),
		Overloaded: NewException(fault.Overloaded.With("there is no memory now for what is sent: try again later")),
	}
}
