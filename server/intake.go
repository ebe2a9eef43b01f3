// How much memory there is for what peers send: for strangers, who have shown no ref
// yet, and for those who have.

package server

import (
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/intake"
	"github.com/mooring-rpc/mooring/internal/membudget"
)

const (
	// maxStrangerMessage is how much of what a stranger sends is kept before a restore
	// of its has succeeded.
	maxStrangerMessage = 1 << 20
	// intakeMaxWait is how long more than that waits for the restore, and anything
	// for memory.
	intakeMaxWait = 10 * time.Second
)

// MemoryBudgets is the budgets of what peers send, for faces that read bodies: what
// strangers send is charged to the first by the address, and what those send that
// have shown a ref to the second by its id (membudget.Account.Move).
func (s *Server) MemoryBudgets() (strangers, known *membudget.Budget) {
	return s.intake.Strangers, s.intake.Known
}

// OpenIntake is what a connection from remote may send that is served by a face, where
// messages show secrets themselves: show gives what one shows, of which this has
// come, and Trust is for whoever has been shown one in another way. It has to be
// closed.
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
