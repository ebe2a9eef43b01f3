// Memory: bytes held by requests are charged to the server's budgets. A request is charged to its
// address until it has presented a secret, then to the share.

package share

import (
	"context"
	"encoding/json"

	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// requestMemory is the memory of one request. It is for one goroutine at a time, and must be closed.
type requestMemory struct {
	syncbody.Charged
	knownBudget *membudget.Budget
}

// newMemory opens the account of a caller that has presented nothing yet.
func (s *Service) newMemory(ctx context.Context, c *objects.Caller) *requestMemory {
	strangers, known := s.cfg.Server.MemoryBudgets()
	return &requestMemory{Charged: syncbody.Charged{Ctx: ctx, Account: strangers.Open(c.Address())}, knownBudget: known}
}

// budgetKey returns the key to which all requests with a secret of this share are charged
// together.
func budgetKey(share string) string { return "share " + share }

// chargeToShare moves the account to a share whose secret was presented.
func (m *requestMemory) chargeToShare(share string) {
	m.Account.MoveTo(m.knownBudget, budgetKey(share))
}

func (m *requestMemory) close() { m.Account.Close() }

// encodeItems returns the JSON text of each item of a sync's Cap'n Web array.
func (m *requestMemory) encodeItems(data []any) ([]json.RawMessage, error) {
	if len(data) > maxItems {
		return nil, tooManyFault()
	}
	if err := m.Grow(len(data) * itemOverhead); err != nil {
		return nil, err
	}
	items := make([]json.RawMessage, len(data))
	for i, v := range data {
		text, err := appendJSON(nil, v)
		if err == nil {
			err = m.Grow(cap(text))
		}
		if err != nil {
			return nil, err
		}
		items[i] = text
	}
	return items, nil
}

// itemOverhead is the memory of an item besides its text, in bytes.
const itemOverhead = 24
