package operator

import (
	"context"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/session"
)

// paged is a store whose sessions are counted page by page.
type paged struct {
	Store
	pages map[string]string // the id to continue after, by the one before
}

func (p *paged) Totals(_ context.Context, after string, limit int) (session.Totals, string, error) {
	next, more := p.pages[after]
	if !more {
		return session.Totals{}, "", nil
	}
	return session.Totals{Live: int64(limit)}, next, nil
}

func TestAllPagesAreCounted(t *testing.T) {
	t.Parallel()
	o := New(Config{Store: &paged{pages: map[string]string{"": "a", "a": "b", "b": "c"}}, ReadTimeout: time.Minute})
	if o.Counted() != nil {
		t.Error("there are counts before the first count")
	}
	o.countAll(t.Context(), 2)
	if all := o.Counted(); all == nil || all.Live != 6 {
		t.Errorf("counted are %+v", all)
	}
}
