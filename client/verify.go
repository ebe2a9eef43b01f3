// Verification of a session: its log against the log's hash chain, and its state against the
// state folded from the log.

package client

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Verification is the result of Verify.
type Verification struct {
	Cursor uint64 // of the last event read
	Head   Hash   // its hash: kept elsewhere, it detects a log that was rewritten later
	From   uint64 // the first cursor that could be read
	Events int    // events read
	Purged int    // events read whose payload was purged

	// StateCursor is the cursor of the state that was compared, and State its hash as folded from
	// the log; zero if it could not be compared.
	StateCursor uint64
	State       Hash

	Findings    []Finding // errors in the log
	Differences []string  // where the server's state differs from the folded one
	Unverified  []string  // parts that could not be verified, and why
}

// Finding is an event that is not as it was written.
type Finding struct {
	Cursor uint64
	What   string // what is wrong with it: "was changed", "is missing", …
}

// Err returns nil if everything that could be verified is as it was written; else an Internal
// fault that names the differences.
func (v *Verification) Err() error {
	switch {
	case len(v.Findings) > 0:
		found := make([]session.Finding, len(v.Findings))
		for i, f := range v.Findings {
			found[i] = session.Finding(f)
		}
		return session.FindingsError(found)
	case len(v.Differences) > 0:
		more := ""
		if n := len(v.Differences) - 10; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		return fault.Internal.With("the state is not what the log makes of it, in %q%s", v.Differences[:min(len(v.Differences), 10)], more).Pos(v.StateCursor)
	}
	return nil
}

// verifyTries is how often Verify starts over when the log changes while it reads.
const verifyTries = 4

// Verify reads the whole log as far as the ref shows it, checks its chain, folds it, and compares
// the result with the server's state. progress, if not nil, is called with the cursor reached.
// The error is for failures to read; Verification.Err is the verdict.
func (s *Session) Verify(ctx context.Context, progress func(cursor, end uint64)) (*Verification, error) {
	if progress == nil {
		progress = func(uint64, uint64) {}
	}
	for try := 1; ; try++ {
		v, again, err := s.verify(ctx, progress)
		if again && try < verifyTries && ctx.Err() == nil {
			continue
		}
		if again && err == nil {
			err = fault.Overloaded.With("the log was purged or trimmed each time it was read: try again")
		}
		return v, err
	}
}

// verify is one pass. again reports that events were changed while being read, by a purge or a
// trim, so that the pass proves nothing.
func (s *Session) verify(ctx context.Context, progress func(cursor, end uint64)) (v *Verification, again bool, err error) {
	d, err := s.Describe(ctx)
	if err != nil {
		return nil, false, err
	}
	if dead := d.Grant.Dead; dead != fault.None {
		return nil, false, dead.With("the ref is dead: nothing can be read through it")
	}
	r := &verification{v: &Verification{From: max(d.Grant.From, d.Session.Base+1, 1)}, described: d}
	whole := d.Session.Head != Hash{}
	switch {
	case len(d.Grant.ReadKeys) > 0, d.Grant.Message != "", !whole && r.v.From == 1:
		return nil, false, fault.MissingRight.With("the ref does not show all of the session, so nothing can be verified through it: use an owner's ref")
	case r.v.From > 1 && d.Session.Base+1 >= d.Grant.From:
		r.v.Unverified = append(r.v.Unverified, fmt.Sprintf("the log was trimmed and starts after cursor %d: what was before it, how its first event goes on from that, and the state", d.Session.Base))
	case r.v.From > 1:
		r.v.Unverified = append(r.v.Unverified, fmt.Sprintf("the ref shows the log from cursor %d: what was before it, how the first event goes on from that, and the state", r.v.From))
	}
	if r.v.From == 1 {
		r.log, r.fold = session.NewVerifier(session.Hash{}, 0), session.NewFold(s.id)
		if r.state, err = s.Snapshot(ctx); err != nil {
			return nil, false, err
		}
		r.v.StateCursor = r.state.Cursor
	} else {
		r.log = session.NewVerifierAfter(r.v.From - 1)
		if d.Grant.From > 1 {
			r.log.AllowRedacted()
		}
	}
	if whole {
		r.log.Expect(d.Session.Cursor, session.Hash(d.Session.Head))
	}
	end := d.Session.Cursor
	for after := r.v.From - 1; ; {
		page, err := s.Events(ctx, after, 0)
		if err != nil {
			return nil, fault.CodeOf(err) == fault.CursorExpired, err
		}
		end = max(end, page.Cursor)
		if len(page.Events) == 0 {
			break
		}
		r.add(page.Events)
		after = page.Events[len(page.Events)-1].Cursor
		if progress(after, end); after >= end {
			break
		}
	}
	if r.purged {
		return r.v, true, nil
	}
	if head := r.log.Head(); whole && end == d.Session.Cursor {
		r.log.End(end, session.Hash(d.Session.Head))
	} else {
		r.log.End(max(end, r.log.Cursor()), head)
	}
	if n := r.log.RedactedEvents(); n > 0 {
		r.v.Unverified = append(r.v.Unverified, fmt.Sprintf("%d events hold values from before cursor %d, which the ref does not show: what they hold", n, d.Grant.From))
	}
	r.v.Cursor, r.v.Head = r.log.Cursor(), Hash(r.log.Head())
	for _, f := range r.log.Findings() {
		r.v.Findings = append(r.v.Findings, Finding(f))
	}
	r.compare()
	return r.v, false, nil
}

// verification is a pass in progress.
type verification struct {
	v         *Verification
	described Description
	log       *session.Verifier
	fold      *session.Fold // nil if there is no state to compare, or folding failed
	state     *State
	foldErr   error // why the log cannot be folded
	purged    bool  // a purge or trim happened meanwhile: events already read may be gone
}

func (r *verification) add(events []Event) {
	for i := range events {
		e := events[i].stored()
		r.log.Add([]*session.Event{e})
		r.v.Events++
		if e.Payload == nil {
			r.v.Purged++
		}
		r.purged = r.purged || e.Method == session.MethodPurge && e.Cursor > r.described.Session.Cursor
		if r.fold == nil || e.Cursor > r.state.Cursor {
			continue
		}
		if err := r.fold.Apply(e); err != nil {
			r.foldErr, r.fold = err, nil
			continue
		}
		if e.Cursor == r.described.Session.Cursor && r.fold.Epoch != r.described.Session.Epoch {
			r.v.Differences = append(r.v.Differences, "epoch")
		}
	}
}

// compare compares the folded state with the server's.
func (r *verification) compare() {
	if r.foldErr != nil && len(r.v.Findings) == 0 {
		r.v.Differences = append(r.v.Differences, r.foldErr.Error())
	}
	if r.fold == nil || r.fold.Cursor != r.state.Cursor {
		return // the findings name the cause
	}
	entries, turns := make([]*session.Entry, len(r.state.Entries)), make([]*session.Turn, len(r.state.Turns))
	for i := range entries {
		entries[i] = r.state.Entries[i].stored()
	}
	for i := range turns {
		turns[i] = r.state.Turns[i].stored()
	}
	folded := r.fold.Hash()
	r.v.State = Hash(folded)
	for _, e := range entries {
		if want := r.fold.Entry(e.Key); want != nil && e.Ord != (session.Ord{}) && e.Ord != want.Ord { // older servers send no Ord
			r.v.Differences = append(r.v.Differences, "the place of "+e.Key)
		}
	}
	if len(r.v.Differences) == 0 && folded == session.StateHash(r.state.Cursor, r.fold.Epoch, r.fold.Life, entries, turns) {
		return
	}
	has := map[string]*session.Entry{}
	for _, e := range entries {
		has[e.Key] = e
	}
	for _, want := range r.fold.Entries() {
		if e := has[want.Key]; e == nil || e.Cursor != want.Cursor || e.Schema != want.Schema || !bytes.Equal(e.Payload, want.Payload) {
			r.v.Differences = append(r.v.Differences, want.Key)
		} else if (want.Claim == nil) != (e.Claim == nil) || want.Claim != nil && *want.Claim != *e.Claim {
			r.v.Differences = append(r.v.Differences, "the claim of "+want.Key)
		}
		delete(has, want.Key)
	}
	for key := range has {
		r.v.Differences = append(r.v.Differences, key)
	}
	began := map[string]*session.Turn{}
	for _, t := range turns {
		began[t.Message] = t
	}
	for _, want := range r.fold.Turns() {
		if t := began[want.Message]; t == nil || t.Status != want.Status || t.Begun != want.Begun || t.Ended != want.Ended {
			r.v.Differences = append(r.v.Differences, "turn of "+session.MessageKey(want.Message))
		}
		delete(began, want.Message)
	}
	for message := range began {
		r.v.Differences = append(r.v.Differences, "turn of "+session.MessageKey(message))
	}
	slices.Sort(r.v.Differences)
	if len(r.v.Differences) == 0 {
		r.v.Differences = []string{"its hash"}
	}
}
