package view

// Claims in the view: which keys are free, and how many claims are in force.

import (
	"maps"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// MaxPassedClaims bounds the keys that the search for a free one passes over: all that may be claimed at
// once (MaxSessionClaims), and some that the ref does not show.
const MaxPassedClaims = 10_000

// SetClaim sets the claim of a key that has a value, nil for none.
func (v *View) SetClaim(s *Session, key string, slot *EntryState, c *session.Claim) {
	v.countClaim(s, slot.Entry.Claim, -1)
	v.countClaim(s, c, 1)
	next, e := *slot, *slot.Entry
	e.Claim = c
	next.Entry, next.claimChanged = &e, true
	v.setEntry(s, key, &next)
}

// freeKeys are the keys without a live claim that the database has below a prefix, as far as they were
// read: in key order.
type freeKeys struct {
	keys  []string
	after string // the last of them
	done  bool   // no others are read
	more  bool   // others may follow the claimed keys that were passed over
}

// freePiece is how many free keys are read at first, since a group of batches may claim several;
// further ones are read for groups that claim more, and for refs that do not show them.
const freePiece = 32

// FirstStored returns the first key that the database had as free below a prefix and that still is,
// "" if there is none; more reports that the search gave up before the last key.
func (v *View) FirstStored(s *Session, prefix string, free func(key string) bool) (first string, more bool, err *fault.Error) {
	if s.free == nil {
		s.free = map[string]*freeKeys{}
	}
	f := s.free[prefix]
	if f == nil {
		f = &freeKeys{after: prefix}
		s.free[prefix] = f
	}
	for looked := 0; ; {
		if i := slices.IndexFunc(f.keys[looked:], free); i >= 0 {
			return f.keys[looked+i], false, nil
		}
		if looked = len(f.keys); f.done || looked > MaxPassedClaims {
			return "", f.more || !f.done, nil
		}
		piece := min(max(freePiece, looked), session.MaxListKeys)
		rows, err := v.LoadBounded(&session.ReadSet{FreeKeys: &session.FreeKeys{Session: s.Row.ID, After: f.after, Below: session.PrefixEnd(prefix), Now: v.Now, Limit: piece, Passed: MaxPassedClaims}})
		if err != nil {
			return "", false, err
		}
		for _, e := range rows.FreeKeys {
			s.fill(e.Key, e, false)
			f.keys, f.after = append(f.keys, e.Key), e.Key
		}
		f.done, f.more = len(rows.FreeKeys) < piece, rows.MoreFreeKeys
	}
}

// claimCount is the number of claims in force of a session: those of the database, which are read when
// they are first asked for, and what the group has changed since it began.
type claimCount struct {
	stored map[string]int // by the ref that they were last made or renewed under; nil: not read
	total  int            // of stored
	under  map[string]int // by ref, descendants included; nil: not summed
	change map[string]int // of the group, by ref
}

// ClaimTotal returns how many claims of a session are in force.
func (v *View) ClaimTotal(s *Session) (int, *fault.Error) {
	if err := v.readClaimCount(s); err != nil {
		return 0, err
	}
	total := s.claims.total
	for _, change := range s.claims.change {
		total += change
	}
	return total, nil
}

// readClaimCount reads the counts of the database, once a group.
func (v *View) readClaimCount(s *Session) *fault.Error {
	if s.claims.stored != nil {
		return nil
	}
	rows, err := v.LoadBounded(&session.ReadSet{CountedClaims: s.Row.ID, LapsedBy: v.Now})
	if err != nil {
		return err
	}
	s.claims.stored = rows.ClaimCounts
	for _, n := range rows.ClaimCounts {
		s.claims.total += n
	}
	return nil
}

// CheckClaimsUnder returns the reason that a ref, or one above it, may not have one more claim: a new
// one, or a renewed one.
func (v *View) CheckClaimsUnder(s *Session, ref string, renewed *session.Claim) *fault.Error {
	n := &s.claims
	if n.under == nil {
		refs := slices.Sorted(maps.Keys(n.stored))
		if err := v.loadMissing(&session.ReadSet{Lineages: refs}); err != nil {
			return err
		}
		under := map[string]int{}
		for _, id := range refs {
			line, err := v.Lineage(s, id)
			if err != nil {
				return err
			}
			for _, g := range line {
				under[g.ID] += n.stored[id]
			}
		}
		n.under = under
	}
	line, err := v.Lineage(s, ref)
	if err != nil {
		return err
	}
	change := map[string]int{}
	maps.Copy(change, n.change)
	if renewed != nil {
		change[renewed.Ref]--
	}
	changed := map[string]int{}
	for id, change := range change {
		below, err := v.Lineage(s, id)
		if err != nil {
			return err
		}
		for _, g := range below {
			changed[g.ID] += change
		}
	}
	for _, g := range line {
		if sum := n.under[g.ID] + changed[g.ID]; !g.Owner && sum >= session.MaxRefClaims {
			return fault.Overloaded.With("%d keys are claimed under ref %s and refs made from it, the maximum: the op waits until some are free", sum, g.ID)
		}
	}
	return nil
}

// countClaim adds n to the count of a claim, if it is in force.
func (v *View) countClaim(s *Session, c *session.Claim, n int) {
	if c == nil || c.Until <= v.Now {
		return
	}
	if s.claims.change == nil {
		s.claims.change = map[string]int{}
	}
	s.claims.change[c.Ref] += n
	v.journalUndo(func() { s.claims.change[c.Ref] -= n })
}
