package admission

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// Whoever asks on and on under a dead ref gets a few rows a window, and a count.
func TestFloodOfDenialsIsAFewRows(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(600_000)
	c := &clerk{}
	a := NewAuditor(auditInto(c, func() time.Time { return now }))
	ref := capability.ServerID(capability.SessionPrefix+ulid.Make().String(), ulid.Make())
	flood := func(kinds, each int) {
		for i := range kinds {
			for range each {
				a.AddDenial(capability.AuditRow{Act: capability.AuditDenial, Ref: ref, Subject: "events", Reason: fault.Revoked, Peer: fmt.Sprint(i)})
			}
		}
	}
	written := func(label string, rows int, denials uint32) {
		t.Helper()
		var n uint32
		for _, r := range c.rows {
			n += r.Count
		}
		if len(c.rows) != rows || n != denials {
			t.Errorf("%s: %d denials in %d rows, want %d in %d", label, n, len(c.rows), denials, rows)
		}
	}
	for range 10 { // rounds of account, in one window
		flood(1, 1000)
		a.Flush(t.Context(), false)
		now = now.Add(time.Second)
	}
	written("in the window", maxVerbatimRepeats, maxVerbatimRepeats)
	now = now.Add(time.Minute)
	a.Flush(t.Context(), false)
	written("when it is over", maxVerbatimRepeats+1, 10_000)
	flood(1, 1)
	a.Flush(t.Context(), false)
	written("in the next", maxVerbatimRepeats+2, 10_001)

	c.rows = nil
	for range 10 {
		flood(10*maxAuditRows, 1) // from everywhere
		a.Flush(t.Context(), false)
	}
	written("of many kinds", maxAuditRows-1, maxAuditRows-1)
	now = now.Add(time.Minute)
	a.Flush(t.Context(), false)
	written("of many kinds, counted", 2*maxAuditRows, 100*maxAuditRows)
}

func TestAuditIsBoundedAndLosesNoCount(t *testing.T) {
	t.Parallel()
	st := teststore.SQLite(t)
	a := NewAuditor(auditInto(st, time.Now))
	target, total := capability.SessionPrefix+ulid.Make().String(), 0
	for i := range 3 * maxAuditRows {
		a.AddDenial(capability.AuditRow{Target: target, Act: capability.AuditStranger, Ref: fmt.Sprintf("ref %d", i), Reason: fault.UnknownRef})
		total++
	}
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	a.Flush(gone, true) // cannot be written: it is kept
	if n := len(a.tallies); n > maxAuditRows+1 {
		t.Errorf("%d kinds are kept", n)
	}
	a.Flush(t.Context(), true)
	counted := 0
	for _, target := range []string{"", target} {
		page, err := st.ReadAudit(t.Context(), target, 0, 10*maxAuditRows, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, row := range page.Rows {
			counted += int(row.Count)
			if row.Reason != fault.UnknownRef {
				t.Errorf("audited as %+v", row)
			}
		}
	}
	if counted != total {
		t.Errorf("%d denials were counted as %d", total, counted)
	}
}
