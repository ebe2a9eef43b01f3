package commit

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/ledger"
)

// inMemory is a store in memory.
type inMemory struct{ rows *memtx.Store }

func (s inMemory) Update(ctx context.Context, do func(session.Tx) error) error {
	return s.rows.Update(ctx, do)
}

// openCommits counts the commits that were announced and have not ended, by session.
type openCommits struct {
	mu sync.Mutex
	by map[string]int
}

func (o *openCommits) BeginCommit(sessions []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range sessions {
		o.by[id]++
	}
}

func (o *openCommits) Notify(string, uint64, uint64) {}

func (o *openCommits) EndCommit(sessions []string, _ *session.Published) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, id := range sessions {
		if o.by[id]--; o.by[id] == 0 {
			delete(o.by, id)
		}
	}
}

// noOutage ignores what it is told.
type noOutage struct{}

func (noOutage) RecordFailure(error, int) {}
func (noOutage) RecordSuccess()           {}
func (noOutage) Suspect(dbfault.Cause)    {}

// A defect in giving an answer costs that answer: the hub hears of the commit
// all the same, or it would hold back for ever what others tell of the session.
func TestAnswerThatPanics(t *testing.T) {
	t.Parallel()
	log, open := slog.New(slog.DiscardHandler), &openCommits{by: map[string]int{}}
	audits := admission.AuditConfig{Store: struct{ admission.AuditStore }{}, Log: log, Now: time.Now, Window: time.Minute}
	c := New(Config{Context: t.Context(), Log: log, Session: session.DefaultConfig(), Transactions: 2, GroupOps: 10, GroupBytes: 1 << 20,
		QueueOps: 10, QueueBytes: 1 << 20, Timeout: time.Minute, SlowCommit: time.Minute, Store: inMemory{rows: memtx.New()}, Hub: open, Outage: noOutage{},
		QuotaMet: func(string) {}, AskFork: func(*session.ForkRequest) {}, Audit: admission.NewAuditor(audits), Usage: admission.NewUsageCounter(audits), Instruments: admission.NewInstruments(), LimitHits: new(admission.LimitHits)})
	c.Run()
	const id = "ses_01J0000000000000000000000A"
	answered := 0
	for i := range 2 {
		refused := c.Submit(&Pending{Ops: 1, Caller: t.Context(),
			Sub: session.Submission{Ack: true, Batch: ledger.Batch{Session: id, Outbox: "obx_1"}},
			Done: func(session.Answer) {
				if i == 0 {
					panic("a defect")
				}
				answered++
			}})
		if refused != nil {
			t.Fatal(refused)
		}
	}
	c.Close()
	if len(open.by) != 0 {
		t.Errorf("%d sessions are held back", len(open.by))
	}
	if answered != 1 {
		t.Errorf("%d of the others were answered", answered)
	}
}
