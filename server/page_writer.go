// Pages of what was gathered of uses and refusals, on their way to the store.

package server

import (
	"context"
	"log/slog"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
)

// maxPageRows is how many rows are written in one transaction.
const maxPageRows = 500

// pageWriter writes rows, and each once. A page of which nobody has heard that it is written
// may be there all the same, if the link broke in the commit: so it is written again as
// it was, under its name, before anything else is taken. Safe for concurrent use.
type pageWriter[T any] struct {
	label string // they are of, for the log
	log   *slog.Logger
	store func(ctx context.Context, page capability.IdempotencyKey, rows []T) error

	sem     chan struct{} // holds something while somebody writes, who alone uses what follows
	key     capability.IdempotencyKey
	pending []T // the page's, and those after it
}

func newPageWriter[T any](what string, log *slog.Logger, to func(context.Context, capability.IdempotencyKey, []T) error) *pageWriter[T] {
	return &pageWriter[T]{label: what, log: log, store: to, sem: make(chan struct{}, 1), key: capability.IdempotencyKey{Writer: ulid.Make().String(), Seq: 1}}
}

// write writes what is left, then what take gives, which is not called until there is
// nothing left.
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
