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

// accountsKept is how many sessions and refs are known by the account that they count for.
const accountsKept = 100_000

// accounts are what is known of them. Safe for concurrent use.
type accounts struct {
	mu     sync.Mutex
	quota  int64
	of     map[string]string   // by session or ref of a space; "" for the space's owner's
	wanted map[string]struct{} // of which it is not known
	held   map[string]*total
}

type total struct {
	bytes, spared int64
	busy          bool // something was to be written since it was added up
}

func newAccounts(quota int) *accounts {
	return &accounts{quota: int64(quota), of: map[string]string{}, wanted: map[string]struct{}{}, held: map[string]*total{}}
}

func (a *accounts) setQuota(quota int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.quota = int64(quota)
}

// full says why nothing more may be written to a session, or be made under a ref of a space.
// What is not known yet is let through.
func (a *accounts) full(id string) *fault.Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.quota <= 0 {
		return nil
	}
	ref, known := a.of[id]
	if !known && len(a.wanted) < accountsKept {
		a.wanted[id] = struct{}{}
	}
	held := a.held[ref]
	if held == nil {
		return nil
	}
	held.busy = true
	if held.spared < 0 || held.bytes < a.quota+held.spared {
		return nil
	}
	return fault.QuotaExceeded.With("the sessions that were made under one ref of the space hold %s, and may hold %s together: purge or delete some of them, or have the server's operator raise --create-quota",
		humanize.IBytes(uint64(held.bytes)), humanize.IBytes(uint64(a.quota+held.spared)))
}

// due gives what is to be looked up, and the accounts that are to be added up.
func (a *accounts) due() (ids, refs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.wanted {
		ids = append(ids, id)
	}
	clear(a.wanted)
	for ref, held := range a.held {
		if held.busy {
			held.busy = false
			refs = append(refs, ref)
		}
	}
	return ids, refs
}

// found keeps which account something counts for.
func (a *accounts) found(id, ref string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.of) >= accountsKept {
		clear(a.of) // who writes is looked up again
	}
	a.of[id] = ref
}

// known says whether an account was added up.
func (a *accounts) known(ref string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ref == "" || a.held[ref] != nil
}

// keep keeps what an account holds.
func (a *accounts) keep(ref string, bytes, spared int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	held := a.held[ref]
	if held == nil {
		held = &total{}
		a.held[ref] = held
	}
	held.bytes, held.spared = bytes, spared
}

// addUp brings the accounts up to date to which something is written.
func (s *Server) addUp(ctx context.Context) {
	ids, refs := s.accounts.due()
	for _, id := range ids {
		ref, err := s.cfg.Store.Account(ctx, id)
		if err != nil {
			s.notMeasured(ctx, err)
			return
		}
		s.accounts.found(id, ref)
		if !s.accounts.known(ref) {
			refs = append(refs, ref)
			s.accounts.keep(ref, 0, 0)
		}
	}
	for _, ref := range refs {
		once, cancel := s.writing()
		bytes, spared, err := s.cfg.Store.Held(once, ref)
		cancel()
		if err != nil {
			s.notMeasured(ctx, err)
			return
		}
		s.accounts.keep(ref, bytes, spared)
	}
}
