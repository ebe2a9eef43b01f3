// Pages of audit rows and use counts, written to the store once each.

package admission

import (
	"context"
	"log/slog"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
)

// maxPageRows is the number of rows in one transaction.
const maxPageRows = 500

// pageWriter writes rows exactly once. If the result of writing a page is unknown, because the
// connection broke during the commit, the page may be stored: so it is written again unchanged,
// under its idempotency key, before any other rows. It is safe for concurrent use.
type pageWriter[T any] struct {
	label string // of the rows, for the log
	log   *slog.Logger
	store func(ctx context.Context, page capability.IdempotencyKey, rows []T) error

	sem     chan struct{} // held by the writer; guards the fields below
	key     capability.IdempotencyKey
	pending []T // the rows of the current page, and those after it
}

func newPageWriter[T any](label string, log *slog.Logger, to func(context.Context, capability.IdempotencyKey, []T) error) *pageWriter[T] {
	return &pageWriter[T]{label: label, log: log, store: to, sem: make(chan struct{}, 1), key: capability.IdempotencyKey{Writer: ulid.Make().String(), Seq: 1}}
}

// write writes the pending rows, then the rows that take returns. take is called only when no
// rows are pending.
func (p *pageWriter[T]) write(ctx context.Context, take func() []T) {
	select {
	case p.sem <- struct{}{}:
		defer func() { <-p.sem }()
	case <-ctx.Done():
		return
	}
	err := p.writePending(ctx)
	if err == nil {
		p.pending = take()
		err = p.writePending(ctx)
	}
	if err != nil {
		p.log.Warn(p.label+" not written", "rows", len(p.pending), "error", err)
	}
}

func (p *pageWriter[T]) writePending(ctx context.Context) error {
	for len(p.pending) > 0 {
		n := min(len(p.pending), maxPageRows)
		if err := p.store(ctx, p.key, p.pending[:n]); err != nil {
			return err
		}
		p.key.Seq++
		p.pending = p.pending[n:]
	}
	p.pending = nil
	return nil
}
