// Memory: what requests hold is charged to the server's budgets. A request is a
// stranger's, charged to its address, until it has shown a secret, and the share's then.

package share

import (
	"context"
	"encoding/json"
	"errors"
	"io"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/server"
)

// requestMemory is what one request holds. One goroutine at a time may use it. It has to be
// closed. A nil one has room for all.
type requestMemory struct {
	ctx         context.Context
	knownBudget *membudget.Budget
	account     *membudget.Account
}

// newMemory opens the account of a caller of whom nothing is known yet.
func (s *Service) newMemory(ctx context.Context, c *server.Caller) *requestMemory {
	strangers, known := s.cfg.Server.MemoryBudgets()
	return &requestMemory{ctx: ctx, knownBudget: known, account: strangers.Open(c.Address())}
}

// budgetKey is whom the memory of those is charged to that have shown a secret of this
// share: of all of them together.
func budgetKey(share string) string { return "share " + share }

// chargeToShare says that a secret of this share was shown.
func (m *requestMemory) chargeToShare(share string) {
	m.account.MoveTo(m.knownBudget, budgetKey(share))
}

func (m *requestMemory) close() { m.account.Close() }

// grow charges n bytes before they are held, and waits for room. Errors: Overloaded
// where there is none, TooLarge where there will never be.
func (m *requestMemory) grow(n int) error {
	if m == nil || n <= 0 {
		return nil
	}
	err := m.account.Grow(m.ctx, int64(n))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, membudget.ErrTooLarge):
		return fault.TooLarge.With("so much is not held at once: send less, and the secret first")
	case m.ctx.Err() != nil:
		return fault.ContextError(context.Cause(m.ctx), nil)
	}
	return fault.Overloaded.With("too many requests at once: wait a little")
}

// shrink gives n bytes back.
func (m *requestMemory) shrink(n int) {
	if m != nil {
		m.account.Shrink(int64(n))
	}
}

// reader charges what is read of a body.
func (m *requestMemory) reader(from io.Reader) io.Reader { return chargedReader{m, from} }

type chargedReader struct {
	memory *requestMemory
	from   io.Reader
}

// Read implements io.Reader.
func (c chargedReader) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if full := c.memory.grow(n); full != nil {
		return 0, full
	}
	return n, err
}

// encodeItems is a sync's array of Cap'n Web, the JSON text of an item each.
func (m *requestMemory) encodeItems(data []any) ([]json.RawMessage, error) {
	if len(data) > maxItems {
		return nil, tooManyFault()
	}
	if err := m.grow(len(data) * itemOverhead); err != nil {
		return nil, err
	}
	items := make([]json.RawMessage, len(data))
	for i, v := range data {
		text, err := appendJSON(nil, v)
		if err == nil {
			err = m.grow(cap(text))
		}
		if err != nil {
			return nil, err
		}
		items[i] = text
	}
	return items, nil
}

// itemOverhead is what an item takes besides its text.
const itemOverhead = 24
