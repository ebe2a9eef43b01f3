// Intake: memory budgets for what peers send, one for strangers, who have shown no ref yet, and
// one for all others.

package objects

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

// MemoryBudgets returns the budgets for what peers send, for faces that read bodies: messages of
// strangers are charged to the first by address, and those of peers that have shown a ref to the
// second by the ref's id (membudget.Account.Move).
func (s *Server) MemoryBudgets() (strangers, known *membudget.Budget) {
	return s.intake.Strangers, s.intake.Known
}

// OpenIntake returns the intake of a connection from remote that a face serves, and whose messages
// contain secrets themselves. show returns the ref shown by a message of which have was read so
// far; Trust is for a ref shown in another way. The caller closes the intake.
func (s *Server) OpenIntake(remote string, show func(have []byte) (ref string, err error)) *intake.Peer {
	return s.intake.OpenFindingRefs(addressOf(remote), show)
}

func newIntakeConfig(cfg *Config) *intake.Config {
	budget := func(total, perKey int) *membudget.Budget {
		return membudget.New(membudget.Config{Total: int64(total), PerKey: int64(perKey), MaxWait: intakeMaxWait})
	}
	return &intake.Config{
		Strangers:        budget(cfg.StrangerBytes, cfg.StrangerBytes/2),
		Known:            budget(cfg.KnownBytes, cfg.RefBytes),
		MaxStrangerBytes: maxStrangerMessage, MaxWait: intakeMaxWait,
		TooLarge:   exception{fault.TooLarge.With("so much is not taken in before a ref is restored: restore one first, or send less")},
		Overloaded: exception{fault.Overloaded.With("there is no memory now for what is sent: try again later")},
	}
}
