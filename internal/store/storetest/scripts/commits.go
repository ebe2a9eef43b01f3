// Scripts of all that ops can do.

package scripts

import (
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/session/memtx"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// testCommitScripts runs random scripts of everything that ops can do.
func testCommitScripts(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	for _, seed := range seeds(f, 1, 2) {
		s := newScript(&twin{Fixture: f, model: memtx.New(), seed: seed})
		for i := range 60 {
			if i%20 == 19 {
				s.newSession()
				s.finish() // on the way, too: a purge or a delete hides what was before
			}
			s.step()
		}
		s.finish()
	}
}

// testCommitEdits runs random scripts of what ops do with values of the users' own kinds: all of it
// happens, by several writers, while leases end.
func testCommitEdits(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	happened := map[string]int{}
	for _, seed := range seeds(f, 1, 2) {
		t.Logf("seed %d", seed)
		s := newScript(&twin{Fixture: f, model: memtx.New(), seed: seed})
		s.authors = s.authors[:1]
		owner := s.authors[0]
		guest := harness.ClientRef(owner.Session)
		s.commit(owner.Batch(false, harness.ShareOp(guest, "read", "append")))
		s.refs[owner.Session] = append(s.refs[owner.Session], guest)
		s.authors = append(s.authors, s.open(owner.WithRef(owner.Ref)), s.open(owner.WithRef(guest)))
		for i := range 120 {
			var group []decide.Submission
			for range 1 + s.rand.IntN(3) {
				o := pick(s, s.authors)
				var ops []ledger.Intent
				for range 1 + s.rand.IntN(3) {
					ops = append(ops, s.editOrEnd(o))
				}
				group = append(group, o.Batch(s.oneIn(6), ops...))
			}
			if s.oneIn(5) && len(s.sent) > 0 {
				group = append(group, pick(s, s.sent))
			}
			s.sent = append(s.sent, group...)
			for j, a := range s.commit(group...) {
				for k, out := range a.Outcomes {
					in := &group[j].Batch.Ops[k]
					what := fmt.Sprint(out.Status, " ", in.Method)
					if in.Method == session.MethodClaim {
						what += " of a " + in.Args[0].Name
					}
					happened[what]++
				}
			}
			if s.oneIn(4) {
				f.Later += int64(s.rand.IntN(3000)) // a lease of a second may be over
			}
			if i%6 == 5 {
				s.finish()
			}
			if s.oneIn(10) {
				s.search()
			}
		}
		s.finish()
		for _, e := range s.model.Events(owner.Session) {
			happened[e.Method]++
			if e.Method == session.MethodRelease && strings.Contains(string(e.Payload), `"broken":true`) {
				happened["break"]++
			}
			if e.Method == session.MethodClaim && strings.Contains(string(e.Payload), `"claim"`) {
				happened["renewal"]++
			}
			if strings.HasPrefix(e.Key, "schema/") {
				happened["schema"]++
			}
		}
	}
	if seed.Raced {
		return // with few seeds not all of it happens
	}
	for _, what := range []string{"put", "patch", "add", "remove", "purge", "claim", "renewal", "release", "break", "lapse", "schema", "conflict put", "conflict patch",
		"conflict add", "conflict remove", "applied claim of a prefix", "conflict claim of a key", "conflict release", "rejected put", "rejected patch", "rejected add", "rejected claim of a key", "denied purge"} {
		if happened[what] == 0 {
			t.Errorf("no %s has happened: %v", what, happened)
		}
	}
}
