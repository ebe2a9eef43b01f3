// Account quotas: the bytes of all sessions made under one ref of a space. They are summed at
// intervals, for accounts that are written to: counting them with each write would make the
// writers of all those sessions contend for one row.

package operator

import (
	"context"
	"sync"

	"github.com/dustin/go-humanize"

	"github.com/mooring-rpc/mooring/fault"
)

// maxAccountEntries bounds the sessions and refs whose account is cached.
const maxAccountEntries = 100_000

// accountQuotas caches accounts and their usage. It is safe for concurrent use.
type accountQuotas struct {
	mu         sync.Mutex
	quota      int64
	accountOf  map[string]string   // by session or ref of a space; "" for the account of the space's owner
	unresolved map[string]struct{} // sessions and refs whose account is to be looked up
	usage      map[string]*accountUsage
}

type accountUsage struct {
	bytes, exempt int64
	dirty         bool // checked since the last sum
}

func newAccountQuotas(quota int) *accountQuotas {
	return &accountQuotas{quota: int64(quota), accountOf: map[string]string{}, unresolved: map[string]struct{}{}, usage: map[string]*accountUsage{}}
}

func (a *accountQuotas) setQuota(quota int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.quota = int64(quota)
}

// limit returns the quota of an account.
func (a *accountQuotas) limit() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.quota
}

// check returns why nothing more may be written to a session, or made under a ref of a space.
// An account that is not known yet passes.
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
	usage := a.usage[ref]
	if usage == nil {
		return nil
	}
	usage.dirty = true
	if usage.exempt < 0 || usage.bytes < a.quota+usage.exempt {
		return nil
	}
	return fault.QuotaExceeded.With("the sessions that were made under one ref of the space have %s, their quota is %s: purge or delete some of them, or have the server's operator raise the quota (mooring serve --create-quota, or server.Limits.CreateQuota)",
		humanize.IBytes(uint64(usage.bytes)), humanize.IBytes(uint64(a.quota+usage.exempt)))
}

// takeDue returns the ids whose account is to be looked up, and the accounts to be summed.
func (a *accountQuotas) takeDue() (ids, refs []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for id := range a.unresolved {
		ids = append(ids, id)
	}
	clear(a.unresolved)
	for ref, usage := range a.usage {
		if usage.dirty {
			usage.dirty = false
			refs = append(refs, ref)
		}
	}
	return ids, refs
}

// setAccount caches the account of a session or ref.
func (a *accountQuotas) setAccount(id, ref string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.accountOf) >= maxAccountEntries {
		clear(a.accountOf) // writers are looked up again
	}
	a.accountOf[id] = ref
}

// hasUsage reports whether an account has been summed.
func (a *accountQuotas) hasUsage(ref string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return ref == "" || a.usage[ref] != nil
}

// setUsage records the bytes of an account, and those exempt from its quota.
func (a *accountQuotas) setUsage(ref string, bytes, spared int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	usage := a.usage[ref]
	if usage == nil {
		usage = &accountUsage{}
		a.usage[ref] = usage
	}
	usage.bytes, usage.exempt = bytes, spared
}

// copied returns the bytes of forks that count for an account and are in no session yet.
func (a *accountQuotas) copied(ref string, c *Copying) (bytes int64) {
	if c == nil {
		return 0
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for id, n := range c.bySpace {
		if of, known := a.accountOf[id]; known && of == ref {
			bytes += n
		}
	}
	return bytes
}

// grow adds to the account of a ref of a space, if it has been summed, until it is again.
func (a *accountQuotas) grow(id string, bytes int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ref, known := a.accountOf[id]; known && a.usage[ref] != nil {
		a.usage[ref].bytes += bytes
	}
}

// refreshAccounts sums the accounts that were written to.
func (o *Operator) refreshAccounts(ctx context.Context) {
	ids, refs := o.accountQuotas.takeDue()
	for _, id := range ids {
		ref, err := o.cfg.Store.AccountRef(ctx, id)
		if err != nil {
			o.warnNotMeasured(ctx, err)
			return
		}
		o.accountQuotas.setAccount(id, ref)
		if !o.accountQuotas.hasUsage(ref) {
			refs = append(refs, ref)
			o.accountQuotas.setUsage(ref, 0, 0)
		}
	}
	for _, ref := range refs {
		once, cancel := o.commitContext()
		bytes, spared, err := o.cfg.Store.AccountUsage(once, ref)
		cancel()
		if err != nil {
			o.warnNotMeasured(ctx, err)
			return
		}
		o.accountQuotas.setUsage(ref, bytes+o.accountQuotas.copied(ref, o.copying.Load()), spared)
	}
}
