package commit

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
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

// noOutage ignores what it hears.
type noOutage struct{}

func (noOutage) RecordFailure(error, int) {}
func (noOutage) RecordSuccess()           {}
func (noOutage) Suspect(dbfault.Cause)    {}

// newCommitter returns a committer on a store, whose commits are published to a hub.
func newCommitter(t *testing.T, rows *memtx.Store, hub Publisher) *Committer {
	log := slog.New(slog.DiscardHandler)
	audits := admission.AuditConfig{Store: struct{ admission.AuditStore }{}, Log: log, Now: time.Now, Window: time.Minute}
	return New(Config{Context: t.Context(), Log: log, Session: decide.DefaultConfig(), Transactions: 2, GroupOps: 10, GroupBytes: 1 << 20,
		QueueOps: 10, QueueBytes: 1 << 20, Timeout: time.Minute, SlowCommit: time.Minute, Store: inMemory{rows: rows}, Hub: hub, Outage: noOutage{},
		QuotaMet: func(string) {}, AskFork: func(*session.ForkRequest) {}, Audit: admission.NewAuditor(audits), Usage: admission.NewUsageCounter(audits), Instruments: admission.NewInstruments(), LimitHits: new(admission.LimitHits)})
}

// A defect in giving an answer costs that answer: the hub hears of the commit
// all the same, or it would hold back for ever what others tell of the session.
func TestAnswerThatPanics(t *testing.T) {
	t.Parallel()
	open := &openCommits{by: map[string]int{}}
	c := newCommitter(t, memtx.New(), open)
	c.Run()
	const id = "ses_01J0000000000000000000000A"
	answered := 0
	for i := range 2 {
		refused := c.Submit(&Pending{Ops: 1, Caller: t.Context(),
			Sub: decide.Submission{Ack: true, Batch: ledger.Batch{Session: id, Outbox: "obx_1"}},
			Done: func(decide.Answer) {
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

// eventLog is a hub and the callers of a committer, which record in what order events reach them.
type eventLog struct {
	mu     sync.Mutex
	events []string
}

func (o *eventLog) record(event string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.events = append(o.events, event)
}

func (o *eventLog) BeginCommit([]string)          {}
func (o *eventLog) Notify(string, uint64, uint64) {}

func (o *eventLog) EndCommit(_ []string, p *session.Published) {
	if p != nil && len(p.Sessions) > 0 {
		o.record("published")
	}
}

// A revoke returns when its server's subscribers know of it. Others do not wait for subscribers.
func TestARevokeIsPublishedBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	const id = "ses_01J0000000000000000000000A"
	rows, log := memtx.New(), &eventLog{}
	refs := map[string]string{}
	for _, name := range []string{"owner", "guest", "shared"} {
		secret := capability.NewSecret()
		refs[name] = capability.DeriveID(id, secret)
	}
	rows.AddGrant(capability.Grant{ID: refs["owner"], Target: id, Owner: true, Rights: capability.OwnerRights})
	rows.AddGrant(capability.Grant{ID: refs["guest"], Target: id, Parent: refs["owner"], Epoch: 1, Rights: capability.Read})
	err := rows.Update(t.Context(), func(tx session.Tx) error {
		if _, err := tx.Load(t.Context(), &session.ReadSet{Sessions: []string{id}}); err != nil {
			return err
		}
		return tx.Save(t.Context(), &session.Changes{Sessions: []*session.Row{{ID: id, Space: "spc_01J0000000000000000000000A", Life: session.Live, Epoch: 1, AuthGen: 1}}})
	})
	if err != nil {
		t.Fatal(err)
	}
	c := newCommitter(t, rows, log)
	c.Run()
	for _, do := range []*decide.Direct{
		{Ref: refs["guest"]}, {Epoch: true},
		{Share: &capability.MintRequest{ID: refs["shared"], Hash: [32]byte{1}, Rights: capability.Read}},
	} {
		done := make(chan *fault.Error, 1)
		refused := c.Submit(&Pending{Ops: 1, Caller: t.Context(), Sub: decide.Submission{Ref: refs["owner"], Direct: do, Batch: ledger.Batch{Session: id}},
			Done: func(a decide.Answer) {
				log.record("answered")
				done <- a.Err
			}})
		if refused != nil {
			t.Fatal(refused)
		}
		if why := <-done; why != nil {
			t.Fatal(why)
		}
	}
	c.Close()
	if want := []string{"published", "answered", "published", "answered", "answered", "published"}; !slices.Equal(log.events, want) {
		t.Errorf("a revoke, an epoch's end and a share are %q, not %q", log.events, want)
	}
}
