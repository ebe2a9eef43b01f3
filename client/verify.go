// Verifying a session: its log against the log's own chain, and its state
// against what the log alone makes.

package client

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/session"
)

// Verification is what Verify has found.
type Verification struct {
	Cursor uint64       // of the last event read
	Head   session.Hash // its hash: keep it elsewhere, and a log that was written anew can be told
	From   uint64       // the first cursor that could be read
	Events int          // read
	Purged int          // of them without their payload

	// StateCursor is the cursor of the state that was compared, and State its hash as
	// the log makes it; zero if it could not be compared.
	StateCursor uint64
	State       session.Hash

	Findings    []session.Finding // what is wrong with the log
	Differences []string          // where the state is not what the log makes of it
	Unverified  []string          // what could not be verified, and why
}

// Err is nil if all that could be verified is as it was written; else an Internal
// fault that names what is not.
func (v *Verification) Err() error {
	switch {
	case len(v.Findings) > 0:
		return session.FindingsError(v.Findings)
	case len(v.Differences) > 0:
		more := ""
		if n := len(v.Differences) - 10; n > 0 {
			more = fmt.Sprintf(" and %d more", n)
		}
		return fault.Internal.With("the state is not what the log makes of it, in %q%s", v.Differences[:min(len(v.Differences), 10)], more).Pos(v.StateCursor)
	}
	return nil
}

// verifyTries is how often Verify begins anew when the log changes under it.
const verifyTries = 4

// Verify reads the whole log as far as the ref shows it, checks its chain, folds
// it, and compares that with the state the server has. progress, if not nil, is
// told how far it is. The error is for what kept it from reading; what it found is
// told by Verification.Err.
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

// verify is one reading. again says that what was read was changed meanwhile, by
// a purge or a trimming, and proves nothing.
func (s *Session) verify(ctx context.Context, progress func(cursor, end uint64)) (v *Verification, again bool, err error) {
	d, err := s.Describe(ctx)
	if err != nil {
		return nil, false, err
	}
	if dead := d.Grant.Dead; dead != fault.None {
		return nil, false, dead.With("the ref is dead: nothing can be read through it")
	}
	r := &verification{v: &Verification{From: max(d.Grant.From, d.Session.Base+1, 1)}, described: d}
	whole := d.Session.Head != session.Hash{}
	switch {
	case r.v.From > 1 && d.Session.Base+1 >= d.Grant.From:
		r.v.Unverified = append(r.v.Unverified, fmt.Sprintf("the log was trimmed and starts after cursor %d: what was before it, how its first event goes on from that, and the state", d.Session.Base))
	case r.v.From > 1:
		r.v.Unverified = append(r.v.Unverified, fmt.Sprintf("the ref shows the log from cursor %d: what was before it, how the first event goes on from that, and the state", r.v.From))
	case !whole:
		return nil, false, fault.MissingRight.With("the ref does not show all of the session, so nothing can be verified through it: use an owner's ref")
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
		r.log.Expect(d.Session.Cursor, d.Session.Head)
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
		r.log.End(end, d.Session.Head)
	} else {
		r.log.End(max(end, r.log.Cursor()), head)
	}
	if n := r.log.RedactedEvents(); n > 0 {
		r.v.Unverified = append(r.v.Unverified, fmt.Sprintf("%d events hold values from before cursor %d, which the ref does not show: what they hold", n, d.Grant.From))
	}
	r.v.Cursor, r.v.Head, r.v.Findings = r.log.Cursor(), r.log.Head(), r.log.Findings()
	r.compare()
	return r.v, false, nil
}

// verification is a reading under way.
type verification struct {
	v         *Verification
	described Description
	log       *session.Verifier
	fold      *session.Fold // nil if there is none to compare, or it came to an end
	state     *State
	foldErr   error // why the log cannot be folded
	purged    bool  // meanwhile: what was read before may be there no more
}

func (r *verification) add(events []session.Event) {
	for i := range events {
		e := &events[i]
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

// compare holds the fold against the state.
func (r *verification) compare() {
	if r.foldErr != nil && len(r.v.Findings) == 0 {
		r.v.Differences = append(r.v.Differences, r.foldErr.Error())
	}
	if r.fold == nil || r.fold.Cursor != r.state.Cursor {
		return // the findings say why
	}
	entries, turns := make([]*session.Entry, len(r.state.Entries)), make([]*session.Turn, len(r.state.Turns))
	for i := range entries {
		entries[i] = &r.state.Entries[i]
	}
	for i := range turns {
		turns[i] = &r.state.Turns[i]
	}
	r.v.State = r.fold.Hash()
	for _, e := range entries {
		if want := r.fold.Entry(e.Key); want != nil && e.Ord != (session.Ord{}) && e.Ord != want.Ord { // a server of before says none
			r.v.Differences = append(r.v.Differences, "the place of "+e.Key)
		}
	}
	if len(r.v.Differences) == 0 && r.v.State == session.StateHash(r.state.Cursor, r.fold.Epoch, r.fold.Life, entries, turns) {
		return
	}
	has := map[string]*session.Entry{}
	for _, e := range entries {
		has[e.Key] = e
	}
	for _, want := range r.fold.Entries() {
		if e := has[want.Key]; e == nil || e.Cursor != want.Cursor || e.Schema != want.Schema || !bytes.Equal(e.Payload, want.Payload) {
			r.v.Differences = append(r.v.Differences, want.Key)
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
