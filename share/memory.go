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

// memory is what one request holds. One goroutine at a time may use it. It has to be
// closed. A nil one has room for all.
type memory struct {
	ctx     context.Context
	known   *membudget.Budget
	account *membudget.Account
}

// memory opens the account of a caller of whom nothing is known yet.
func (s *Service) memory(ctx context.Context, c *server.Caller) *memory {
	strangers, known := s.cfg.Server.Memory()
	return &memory{ctx: ctx, known: known, account: strangers.Open(c.Address())}
}

// knownAs is whom the memory of those is charged to that have shown a secret of this
// share: of all of them together.
func knownAs(share string) string { return "share " + share }

// own says that a secret of this share was shown.
func (m *memory) own(share string) { m.account.Move(m.known, knownAs(share)) }

func (m *memory) close() { m.account.Close() }

// grow charges n bytes before they are held, and waits for room. Errors: Overloaded
// where there is none, TooLarge where there will never be.
func (m *memory) grow(n int) error {
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
		return fault.GivenUp(context.Cause(m.ctx), nil)
	}
	return fault.Overloaded.With("too many requests at once: wait a little")
}

// shrink gives n bytes back.
func (m *memory) shrink(n int) {
	if m != nil {
		m.account.Shrink(int64(n))
	}
}

// reader charges what is read of a body.
func (m *memory) reader(from io.Reader) io.Reader { return charged{m, from} }

type charged struct {
	memory *memory
	from   io.Reader
}

// Read implements io.Reader.
func (c charged) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	if full := c.memory.grow(n); full != nil {
		return 0, full
	}
	return n, err
}

// items is a sync's array of Cap'n Web, the JSON text of an item each.
func (m *memory) items(data []any) ([]json.RawMessage, error) {
	if len(data) > maxItems {
		return nil, tooMany()
	}
	if err := m.grow(len(data) * itemBytes); err != nil {
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

// itemBytes is what an item takes besides its text.
const itemBytes = 24
