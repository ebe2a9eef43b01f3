// The integrity check of a database's logs and audits, in one snapshot.

package upkeep

import (
	"context"
	"fmt"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
	"github.com/mooring-rpc/mooring/internal/store/txn"
)

// IntegrityReport counts the rows that CheckIntegrity has verified and lists its findings as text.
type IntegrityReport struct {
	Sessions, Events, AuditRows int
	Flaws                       []string // the first findings
	More                        int      // the number of further ones
}

// maxFlaws is the maximum number of listed flaws.
const maxFlaws = 100

func (c *IntegrityReport) flaw(format string, args ...any) {
	if len(c.Flaws) == maxFlaws {
		c.More++
		return
	}
	c.Flaws = append(c.Flaws, fmt.Sprintf(format, args...))
}

// checkPage is how many rows a check reads at once, and checkBytes how many bytes.
const (
	checkPage  = 500
	checkBytes = 4 << 20
)

var (
	pageSessions = dialect.Both("", `
		SELECT s.id, s.cursor, s.base, s.head FROM sessions s WHERE s.id > {1} ORDER BY s.id LIMIT {2}`)
	pageAuditHeads = dialect.Both("", `
		SELECT h.target, h.seq, h.head FROM audit_heads h WHERE h.target > {1} ORDER BY h.target LIMIT {2}`)
)

// CheckIntegrity verifies the hash chain of every session's log, with its payloads, and of every
// audit, in run's transaction. It needs no column that is newer than the audit's chain, so older
// databases can be checked too. The error is for a failure to read; flaws are in the report.
func CheckIntegrity(ctx context.Context, run dialect.Runner) (*IntegrityReport, error) {
	c := &IntegrityReport{}
	if err := c.logs(ctx, run); err != nil {
		return nil, fmt.Errorf("check logs: %w", err)
	}
	if err := c.audits(ctx, run); err != nil {
		return nil, fmt.Errorf("check audits: %w", err)
	}
	return c, nil
}

// logBounds are the first and last cursor of a session's log.
type logBounds struct {
	id           string
	cursor, base uint64
	head         session.Hash
}

func (c *IntegrityReport) logs(ctx context.Context, run dialect.Runner) error {
	for after := ""; ; {
		var page []logBounds
		if err := dialect.Query(ctx, run, pageSessions, nil, []any{after, int64(checkPage)}, func(row dialect.Scanner) error {
			var l logBounds
			var cursor, base int64
			var head []byte
			err := row.Scan(&l.id, &cursor, &base, &head)
			l.cursor, l.base = uint64(cursor), uint64(base)
			copy(l.head[:], head)
			page = append(page, l)
			return err
		}); err != nil {
			return err
		}
		for i := range page {
			if err := c.log(ctx, run, &page[i]); err != nil {
				return err
			}
		}
		if len(page) < checkPage {
			return nil
		}
		after = page[len(page)-1].id
	}
}

// log verifies one log. A trimmed log still has the event at its base, for its hash.
func (c *IntegrityReport) log(ctx context.Context, run dialect.Runner, l *logBounds) error {
	c.Sessions++
	v := session.NewVerifier(session.Hash{}, 0)
	if l.base > 0 {
		v = session.NewVerifierAfter(l.base)
		run.Queue(txn.ReadHashes, [][]any{{l.id, int64(l.base)}}, nil, func(row dialect.Scanner) error {
			var cursor int64
			var hash []byte
			err := row.Scan(&cursor, &hash)
			if len(hash) == len(session.Hash{}) {
				v = session.NewVerifier(session.Hash(hash), l.base)
			}
			return err
		})
	}
	for after := l.base; ; {
		var events []*session.Event
		bytes := 0
		if err := dialect.Query(ctx, run, txn.ReadEvents, nil, []any{l.id, int64(after), int64(checkPage), int64(checkBytes)}, func(row dialect.Scanner) error {
			e, err := txn.ScanEvent(row)
			if err != nil {
				return err
			}
			events = append(events, e)
			if bytes += txn.EventSize(e); bytes >= checkBytes {
				return dialect.ErrStopRows
			}
			return nil
		}); err != nil {
			return err
		}
		if len(events) == 0 {
			break
		}
		c.Events += len(events)
		v.Add(events)
		after = events[len(events)-1].Cursor
	}
	v.End(l.cursor, l.head)
	for _, f := range v.Findings() {
		c.flaw("session %s: event %d %s", l.id, f.Cursor, f.What)
	}
	return nil
}

func (c *IntegrityReport) audits(ctx context.Context, run dialect.Runner) error {
	for after := ""; ; {
		heads := map[string]txn.AuditHead{}
		var targets []string
		if err := dialect.Query(ctx, run, pageAuditHeads, nil, []any{after, int64(checkPage)}, func(row dialect.Scanner) error {
			target, h, err := txn.ScanAuditHead(row)
			heads[target], targets = h, append(targets, target)
			return err
		}); err != nil {
			return err
		}
		for _, target := range targets {
			if err := c.audit(ctx, run, target, heads[target]); err != nil {
				return err
			}
		}
		if len(targets) < checkPage {
			return nil
		}
		after = targets[len(targets)-1]
	}
}

func (c *IntegrityReport) audit(ctx context.Context, run dialect.Runner, target string, end txn.AuditHead) error {
	chain := capability.NewChainVerifier(0)
	for {
		var rows []*capability.AuditRow
		if err := dialect.Query(ctx, run, txn.ReadAudit, nil, []any{target, int64(chain.Seq()), int64(checkPage)}, dialect.Collect(&rows, txn.ScanAudit)); err != nil {
			return err
		}
		for _, r := range rows {
			chain.Add(r.ChainRow())
		}
		c.AuditRows += len(rows)
		if len(rows) == 0 {
			break
		}
	}
	for _, f := range chain.End(end.Seq, end.Hash) {
		c.flaw("audit of %s: %s", target, f.Text("row"))
	}
	return nil
}
