// Pages of what was gathered of uses and refusals, on their way to the store.

package server

import (
	"context"
	"log/slog"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
)

// pageRows is how many rows are written in one transaction.
const pageRows = 500

// pages writes rows, and each once. A page of which nobody has heard that it is written
// may be there all the same, if the link broke in the commit: so it is written again as
// it was, under its name, before anything else is taken. Safe for concurrent use.
type pages[T any] struct {
	what string // they are of, for the log
	log  *slog.Logger
	to   func(ctx context.Context, page capability.Page, rows []T) error

	turn chan struct{} // holds something while somebody writes, who alone uses what follows
	page capability.Page
	rows []T // the page's, and those after it
}

func newPages[T any](what string, log *slog.Logger, to func(context.Context, capability.Page, []T) error) *pages[T] {
	return &pages[T]{what: what, log: log, to: to, turn: make(chan struct{}, 1), page: capability.Page{Writer: ulid.Make().String(), Number: 1}}
}

// write writes what is left, then what take gives, which is not called until there is
// nothing left.
func (p *pages[T]) write(ctx context.Context, take func() []T) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return
	}
	err := p.rest(ctx)
	if err == nil {
		p.rows = take()
		err = p.rest(ctx)
	}
	if err != nil {
		p.log.Warn(p.what+" not written", "rows", len(p.rows), "error", err)
	}
}

func (p *pages[T]) rest(ctx context.Context) error {
	for len(p.rows) > 0 {
		n := min(len(p.rows), pageRows)
		if err := p.to(ctx, p.page, p.rows[:n]); err != nil {
			return err
		}
		p.page.Number++
		p.rows = p.rows[n:]
	}
	p.rows = nil
	return nil
}
