package admission

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// auditInto configures an audit into st, with windows of a minute.
func auditInto(st AuditStore, now func() time.Time) AuditConfig {
	return AuditConfig{Store: st, Log: slog.New(slog.DiscardHandler), Now: now, Window: time.Minute}
}

// clerk takes audit rows and uses, and fails when it is told to.
type clerk struct {
	mu    sync.Mutex
	away  bool
	rows  []*capability.AuditRow
	uses  map[string]uint64
	tries int
}

func (c *clerk) Audit(_ context.Context, _ capability.IdempotencyKey, rows []*capability.AuditRow) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.away {
		return fault.Unavailable.With("away")
	}
	c.rows = append(c.rows, rows...)
	return nil
}

func (c *clerk) AddUses(_ context.Context, _ capability.IdempotencyKey, uses []capability.RefUses) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tries++; c.away {
		return fault.Unavailable.With("away")
	}
	for _, u := range uses {
		c.uses[u.Ref] += u.Count
	}
	return nil
}

// One row a window; the table of uses earlier; a database that is away costs
// nothing but time.
func TestUsesAreWrittenWhenTheirWindowIsOver(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(600_000)
	c := &clerk{uses: map[string]uint64{}}
	u := NewUsageCounter(auditInto(c, func() time.Time { return now }))
	ref := capability.ServerID(capability.SessionPrefix+ulid.Make().String(), ulid.Make())
	put := decide.Use{Ref: ref, Actor: "owner", Method: "put", Count: 2}
	step := func(d time.Duration, rows int, counted uint64) {
		t.Helper()
		now = now.Add(d)
		u.Flush(t.Context(), false)
		if len(c.rows) != rows || c.uses[ref] != counted {
			t.Fatalf("at %v: %d rows, %d uses counted; want %d and %d", now.UnixMilli(), len(c.rows), c.uses[ref], rows, counted)
		}
	}
	u.Add("a", 3, put)
	step(5*time.Second, 0, 2)
	u.Add("a", 4, put, decide.Use{Ref: ref, Actor: "owner", Method: "remove", Count: 1})
	step(5*time.Second, 0, 5)
	step(time.Minute, 2, 5)
	if r := c.rows[0]; r.Count != 4 || r.Cursor != 4 || r.Peer != "a" || r.At != 605_000 || r.Subject != "put" && r.Subject != "remove" {
		if c.rows[1].Count != 4 {
			t.Errorf("rows are %+v, %+v", r, c.rows[1])
		}
	}
	u.Add("a", 5, put)
	c.away = true
	step(2*time.Minute, 2, 5)
	u.Add("b", 6, put)
	step(2*time.Minute, 2, 5)
	c.away = false
	step(time.Second, 4, 9)
	u.Add("b", 7, put)
	u.Flush(t.Context(), true) // the server stops
	if len(c.rows) != 5 || c.uses[ref] != 11 {
		t.Errorf("at the end %d rows, %d uses", len(c.rows), c.uses[ref])
	}
}

// Counting must not cost what it counts. It is not parallel: it measures.
func TestCountingUsesAllocatesNothing(t *testing.T) {
	u := NewUsageCounter(auditInto(&clerk{}, time.Now))
	uses := []decide.Use{{Ref: "ses_1.sX", Actor: "owner", Method: "put", Count: 1}, {Ref: "ses_1.sX", Actor: "owner", Method: "remove", Count: 1}}
	u.Add("a", 1, uses...)
	if n := testing.AllocsPerRun(1000, func() { u.Add("a", 2, uses...) }); n > 0 {
		t.Errorf("counting allocates %v times", n)
	}
}

// However many refs are used while nothing can be written, memory is bounded
// and every use is counted somewhere.
func TestUsesAreBoundedAndNoneIsLost(t *testing.T) {
	t.Parallel()
	c := &clerk{uses: map[string]uint64{}, away: true}
	u := NewUsageCounter(auditInto(c, time.Now))
	target, total := capability.SessionPrefix+ulid.Make().String(), uint64(0)
	for i := range 6 * maxUses {
		n := 1 + rand.Uint32N(3)
		u.Add("a", 1, decide.Use{Ref: fmt.Sprintf("%s.%d", target, i), Method: "put", Count: n})
		total += uint64(n)
		if i%maxUses == 17 {
			u.Flush(t.Context(), false)
		}
	}
	if held := len(u.open) + len(u.closed) + len(u.pendingCounts) + len(u.countWriter.pending) + len(u.auditWriter.pending); held > 8*maxUses {
		t.Errorf("%d things are held", held)
	}
	select {
	case <-u.WindowFull:
	default:
		t.Error("nobody is told that a window ended early")
	}
	c.away = false
	u.Flush(t.Context(), true)
	var rows, uses uint64
	for _, r := range c.rows {
		rows += uint64(r.Count)
	}
	for _, n := range c.uses {
		uses += n
	}
	if rows != total || uses != total {
		t.Errorf("%d uses are audited as %d and counted as %d", total, rows, uses)
	}
}
