// Memory: bytes held by requests are charged to the server's budgets. A request is charged to its
// address until it has presented a secret, then to the share.

package share

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// requestMemory is the memory account of one request. It is for one goroutine at a time, and must
// be closed. A nil one is unlimited.
type requestMemory struct {
	ctx         context.Context
	knownBudget *membudget.Budget
	account     *membudget.Account
}

// newMemory opens the account of a caller that has presented nothing yet.
func (s *Service) newMemory(ctx context.Context, c *objects.Caller) *requestMemory {
	strangers, known := s.cfg.Server.MemoryBudgets()
	return &requestMemory{ctx: ctx, knownBudget: known, account: strangers.Open(c.Address())}
}

// budgetKey returns the key to which all requests with a secret of this share are charged
// together.
func budgetKey(share string) string { return "share " + share }

// chargeToShare moves the account to a share whose secret was presented.
func (m *requestMemory) chargeToShare(share string) {
	m.account.MoveTo(m.knownBudget, budgetKey(share))
}

func (m *requestMemory) close() { m.account.Close() }

// Grow charges n bytes before they are held, and waits for room. The error is Overloaded if there
// is none in time, TooLarge if there never can be.
func (m *requestMemory) Grow(n int) error {
	if m == nil || n <= 0 {
		return nil
	}
	err := m.account.Grow(m.ctx, int64(n))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, membudget.ErrTooLarge):
		return fault.TooLarge.With("this is too much to hold at once: send less, and the secret first")
	case m.ctx.Err() != nil:
		return fault.ContextError(context.Cause(m.ctx), nil)
	}
	return fault.Overloaded.With("too many requests at once: try again later")
}

// Shrink releases n bytes.
func (m *requestMemory) Shrink(n int) {
	if m != nil {
		m.account.Shrink(int64(n))
	}
}

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
