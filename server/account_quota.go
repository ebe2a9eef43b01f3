// Accounts: what all sessions hold together that were made under one ref of a space. It is
// added up now and then, where something is written: to count it with each write would have
// the writers of all those sessions wait for one row.

package server

import (
	"context"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/mooring-rpc/mooring/fault"
)

// maxAccountEntries is how many sessions and refs are known by the account that they count for.
const maxAccountEntries = 100_000

// accountQuotas are what is known of them. Safe for concurrent use.
type accountQuotas struct {
	mu         sync.Mutex
	quota      int64
	accountOf  map[string]string   // by session or ref of a space; "" for the space's owner's
	unresolved map[string]struct{} // of which it is not known
	usage      map[string]*accountUsage
}

type accountUsage struct {
	bytes, exempt int64
	dirty         bool // something was to be written since it was added up
}

func newAccountQuotas(quota int) *accountQuotas {
	return &accountQuotas{quota: int64(quota), accountOf: map[string]string{}, unresolved: map[string]struct{}{}, usage: map[string]*accountUsage{}}
}

func (a *accountQuotas) setQuota(quota int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.quota = int64(quota)
}

// check says why nothing more may be written to a session, or be made under a ref of a space.
// What is not known yet is let through.
func (a *accountQuotas) check(id string) *fault.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quota <= 0 {
		return nil
	}
	ref, known := a.accountOf[id]
	if !known && len(a.unresolved) < maxAccountEntries {
		a.unresolved[id] = struct{}{}
	}
	held := a.usage[ref]
	if held == nil {
		return nil
	}
	held.dirty = true
	if held.exempt < 0 || held.bytes < a.quota+held.exempt {
		return nil
	}
	return fault.QuotaExceeded.With("the sessions that were made under one ref of the space hold %s, and may hold %s together: purge or delete some of them, or have the server's operator raise --create-quota",
		humanize.IBytes(uint64(held.bytes)), humanize.IBytes(uint64(a.quota+held.exempt)))
}

// takeDue gives what is to be looked up, and the accounts that are to be added up.
func (a *accountQuotas) takeDue() (ids, refs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.unresolved {
		ids = append(ids, id)
	}
	clear(a.unresolved)
	for ref, held := range a.usage {
		if held.dirty {
			held.dirty = false
			refs = append(refs, ref)
		}
	}
	return ids, refs
}

// setAccount keeps which account something counts for.
func (a *accountQuotas) setAccount(id, ref string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.accountOf) >= maxAccountEntries {
		clear(a.accountOf) // who writes is looked up again
	}
	a.accountOf[id] = ref
}

// hasUsage says whether an account was added up.
func (a *accountQuotas) hasUsage(ref string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ref == "" || a.usage[ref] != nil
}

// setUsage keeps what an account holds.
func (a *accountQuotas) setUsage(ref string, bytes, spared int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.usage[ref]
	if held == nil {
		held = &accountUsage{}
		a.usage[ref] = held
	}
	held.bytes, held.exempt = bytes, spared
}

// refreshAccounts brings the accounts up to date to which something is written.
func (s *Server) refreshAccounts(ctx context.Context) {
	ids, refs := s.accountQuotas.takeDue()
	for _, id := range ids {
		ref, err := s.cfg.Store.AccountRef(ctx, id)
		if err != nil {
			s.warnNotMeasured(ctx, err)
			return
		}
		s.accountQuotas.setAccount(id, ref)
		if !s.accountQuotas.hasUsage(ref) {
			refs = append(refs, ref)
			s.accountQuotas.setUsage(ref, 0, 0)
		}
	}
	for _, ref := range refs {
		once, cancel := s.commitContext()
		bytes, spared, err := s.cfg.Store.AccountUsage(once, ref)
		cancel()
		if err != nil {
			s.warnNotMeasured(ctx, err)
			return
		}
		s.accountQuotas.setUsage(ref, bytes, spared)
	}
}
