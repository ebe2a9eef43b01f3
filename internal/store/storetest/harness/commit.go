// Commits as a server makes them.

package harness

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// Commit is decide.Commit in one transaction; now is the one it had.
func (f *Fixture) Commit(subs ...decide.Submission) (answers []decide.Answer, now int64) {
	f.Helper()
	err := f.Update(f.Ctx, func(tx session.Tx) (err error) {
		clock := &ClockTx{Tx: tx, later: f.Later}
		answers, _, err = decide.Commit(f.Ctx, clock, subs, decide.DefaultConfig())
		now = clock.Now
		return err
	})
	if err != nil {
		f.Fatalf("commit: %v", err)
	}
	return answers, now
}

// Applied commits and stops the test unless every op applied.
func (f *Fixture) Applied(sub decide.Submission) {
	f.Helper()
	answers, _ := f.Commit(sub)
	if answers[0].Err != nil {
		f.Fatalf("commit: %v", answers[0].Err)
	}
	for _, o := range answers[0].Outcomes {
		if o.Status != ledger.Applied {
			f.Fatalf("op did not apply: %+v", o)
		}
	}
}

// ClockTx remembers its transaction's now.
type ClockTx struct {
	session.Tx
	later, Now int64
}

// Load is the transaction's, as many milliseconds later as the test asks.
func (t *ClockTx) Load(ctx context.Context, w *session.ReadSet) (*session.Rows, error) {
	rows, err := t.Tx.Load(ctx, w)
	if rows != nil {
		rows.Now += t.later
		t.Now = rows.Now
	}
	return rows, err
}

// Space makes a space's ref.
func (f *Fixture) Space() *capability.Grant {
	f.Helper()
	root := Grant(NewRef(NewSpace()), "")
	root.Rights, root.Epoch = capability.SpaceRights, 0
	f.Save(&session.Changes{Grants: []*capability.Grant{root}})
	return root
}
