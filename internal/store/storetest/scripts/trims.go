// Scripts of logs that are trimmed meanwhile.

package scripts

import (
	"fmt"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testTrimScripts: random scripts come to the same, answer by answer, as on a
// model that is never trimmed.
func testTrimScripts(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	for _, seed := range seeds(f, 1) {
		s := newScript(&twin{Fixture: f, model: memtx.New(), seed: seed})
		s.trims = true
		for i := range 48 {
			if i%20 == 19 {
				s.newSession()
			}
			s.step()
			if _, err := f.Trim(f.Ctx, pick(s, s.authors).Session, harness.KeepNothing, 1+s.rand.IntN(10), 1+s.rand.IntN(1000)); err != nil {
				t.Fatalf("seed %d: trim: %v", seed, err)
			}
			if i%8 == 7 {
				s.endTurns()
			}
		}
		s.finish()
		trimmed := uint64(0)
		for _, o := range s.authors {
			if row := f.LogOf(o.Session).Row; row != nil {
				trimmed += row.Base
			}
		}
		if seed == 1 && trimmed < 100 { // else little was tested
			t.Errorf("seed %d: only %d events were trimmed", seed, trimmed)
		}
	}
}

// endTurns ends the turns of messages written to so far, and goes on to others.
func (s *script) endTurns() {
	for _, o := range s.authors {
		if o.Ref != s.refs[o.Session][0] {
			continue
		}
		var ops []ledger.Intent
		for m := s.oldest; m < s.oldest+3; m++ {
			ops = append(ops, harness.NewIntent(session.MethodFinalize, "message", fmt.Sprintf("m%d", m), "status", "aborted"))
		}
		s.commit(o.Batch(false, ops...))
	}
	s.oldest += 2
}
