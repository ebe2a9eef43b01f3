package decide

// fork: a session that begins with the entries of another one. One that is too large for an event is copied in pieces before its
// session is made (package maintain); the op is answered not_yet_known until then.

import (
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/maintain"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// applyFork makes a session that begins with the entries that another had at a cursor, as far as the
// ref it is read through shows them. Open turns are copied as plain messages and parts in their
// current state; grants are not copied.
func (a *applier) applyFork(o *opargs.Fork) (result, *fault.Error) {
	owner, err := a.mintOwner(&o.Create)
	if err != nil {
		return nil, err
	}
	if f := a.s.Row.Forking; f != nil {
		return a.copiedFork(o, f, owner)
	}
	source, via, err := a.forkSource(o)
	if err != nil {
		return nil, err
	}
	at := source.Row.Cursor
	if o.AtSet {
		at = o.At
	}
	entries, head, compacted, err := a.sourceEntries(source, at)
	if err != nil {
		if err.Code == fault.TooLarge {
			err = a.forkInPieces(o, source, via, at)
		}
		return nil, err
	}
	if err := maintain.CheckForkHash(via, at, o.AtHash, head); err != nil {
		return nil, err
	}
	if entries, err = forked(o, source, via, at, entries); err != nil {
		return nil, err
	}
	p := createPayload(&o.Create, owner)
	p.Source, p.At, p.Message = o.Source, at, o.Message
	if session.ShowsAll(via) {
		p.Compact = compacted.Forked(entries)
	}
	for _, e := range entries {
		p.Entries = append(p.Entries, session.EntryPayload{Key: e.Key, Schema: e.Schema, JSON: string(e.Payload)})
	}
	text := rawjson.Encode(p)
	if len(text) > a.cfg.forkBytes() {
		return nil, a.forkInPieces(o, source, via, at)
	}
	ev := a.createSession(&o.Create, session.MethodFork, owner, text)
	a.s.Row.Origin = session.Origin{Session: o.Source, Cursor: at, Message: o.Message} // its row is journaled by createSession
	if p.Compact != nil {
		a.s.Row.Compaction = p.Compact.By(ev)
	}
	for i, e := range entries {
		k, err := session.ParseKey(e.Key)
		if err != nil {
			return nil, err
		}
		if k.Own() {
			a.s.Row.Needs |= session.FeatureKeys
		}
		a.v.Put(a.s, &session.Entry{Session: a.s.Row.ID, Key: e.Key, Cursor: ev.Cursor, Since: ev.Cursor, Schema: e.Schema, Sum: e.Sum, Payload: e.Payload, TextLen: session.EntryTextLen(k, e.Payload)}, ev, i, view.WriteWhole)
	}
	return createResult{changeResult: a.changed(), Session: a.s.Row.ID, Ref: o.Ref, Source: o.Source, At: at}, nil
}

// forked returns the entries of the source as of cursor at that the fork has, in their order. What is hidden now was not
// at an earlier cursor.
func forked(o *opargs.Fork, source *view.Session, via *capability.Grant, at uint64, entries []session.Entry) ([]session.Entry, *fault.Error) {
	scope := maintain.ForkScope{Via: via, Message: o.Message}
	if at == source.Row.Cursor {
		scope.Reverts = source.Row.Hiding()
	}
	heads := map[string]*session.Entry{}
	for i := range entries {
		if e := &entries[i]; session.HeadOf(e.Key) == e.Key {
			heads[e.Key] = new(*e)
		}
	}
	if o.Message != "" {
		head := heads[session.MessageKey(o.Message)]
		switch {
		case head == nil || !session.ShowsEntry(via, head):
			return nil, maintain.ErrNoMessage(o.Message, at)
		case scope.Reverts.Hides(head, head):
			return nil, errReverted(head.Key, &source.Row.Revert, via)
		}
		scope.Place = session.PositionOf(head)
	}
	entries = slices.DeleteFunc(entries, func(e session.Entry) bool { return !scope.Has(&e, heads[session.HeadOf(e.Key)]) })
	slices.SortFunc(entries, func(a, b session.Entry) int { return session.CompareEntries(&a, &b) }) // the order of the fork's event
	return entries, nil
}

// endCopies ends the forks that are being copied of the session, in which its purged values were.
func (a *applier) endCopies() {
	if a.s.Row.Copies != nil {
		a.v.ChangeRow(a.s).Copies = nil
	}
}

// forkSource returns the source and the ref it is read through, which the submission must hold.
func (a *applier) forkSource(o *opargs.Fork) (*view.Session, *capability.Grant, *fault.Error) {
	source, via, err := a.passed(o.Source, o.Via, "source", capability.Read, "")
	if err == nil && o.AtSet && o.At > source.Row.Cursor {
		err = fault.BadArgument.With("at is %d, the source is at cursor %d", o.At, source.Row.Cursor)
	}
	return source, via, err
}

// sourceEntries returns the source's entries as of cursor at, the hash of the event there, and up to where it was
// compacted.
func (a *applier) sourceEntries(source *view.Session, at uint64) (entries []session.Entry, head session.Hash, c session.Compaction, err *fault.Error) {
	if at == source.Row.Cursor {
		entries, err = a.v.AllEntries(source)
		return entries, source.Row.Head, source.Row.Compacted(), err
	}
	if base := source.Row.Base; base > 0 { // the state as of the base is not kept
		return nil, head, c, fault.CursorExpired.With("the source's log starts after cursor %d, so earlier states are gone: fork the present one", base).Pos(base + 1)
	}
	events, err := a.v.EventsUpTo(source, at)
	if err != nil {
		return nil, head, c, err
	}
	f := session.NewFold(source.Row.ID)
	for _, e := range events {
		head = e.Hash
		if err := f.Apply(e); err != nil {
			return nil, head, c, fault.Internal.Because(err, "the source's log could not be folded")
		}
	}
	for _, e := range f.Entries() {
		entries = append(entries, *e)
	}
	return entries, head, f.Compacted(), nil
}

// forkInPieces answers a fork that is copied before its session is made. The caller sees to it that it is. What it was at an
// earlier cursor is not known yet.
func (a *applier) forkInPieces(o *opargs.Fork, source *view.Session, via *capability.Grant, at uint64) *fault.Error {
	if a.cfg.Features != nil {
		if err := session.CheckFeatures(session.FeatureLargeForks, a.cfg.Features()); err != nil {
			return err
		}
	}
	present := at == source.Row.Cursor
	if err := maintain.CheckForkHash(via, at, o.AtHash, source.Row.Head); present && err != nil {
		return err
	}
	if o.Message != "" && present {
		head, err := a.v.EntryMeta(source, session.MessageKey(o.Message))
		if err != nil {
			return err
		}
		if head.Entry == nil || !session.ShowsEntry(via, head.Entry) {
			return maintain.ErrNoMessage(o.Message, source.Row.Cursor)
		}
		if r := &source.Row.Revert; r.Hides(head.Entry, head.Entry) {
			return errReverted(head.Entry.Key, r, via)
		}
	}
	if n := len(source.Row.Copies.List()); n >= maintain.MaxCopies {
		return fault.Overloaded.With("%d forks of %s are being made, the maximum: this one begins when one of them is there", n, source.Row.ID)
	}
	a.fork = a.forkRequest(o)
	return fault.NotYetKnown.With(session.ForkWaits + "large, and is copied in pieces").Pos(at)
}

// forkBytes is how much a fork's event may have.
func (c *Config) forkBytes() int {
	if most := c.Limits.ForkBytes; most > 0 && c.inUse(session.FeatureLargeForks) {
		return min(most, c.Limits.EventBytes)
	}
	return c.Limits.EventBytes
}

func (a *applier) forkRequest(o *opargs.Fork) *session.ForkRequest {
	return &session.ForkRequest{Session: a.s.Row.ID, Source: o.Source, Via: o.Via, Space: a.sub.Space, Ref: o.Ref, Stream: a.outbox, Message: o.Message, At: o.At, AtHash: o.AtHash}
}

// copiedFork makes the session of a fork that was copied, or says how far it is.
func (a *applier) copiedFork(o *opargs.Fork, f *session.Forking, owner *capability.Grant) (result, *fault.Error) {
	r := a.forkRequest(o)
	switch {
	case !f.By(r):
		return nil, fault.AlreadyExists.With("a session of this id is being made by another fork: make another id")
	case f.State >= session.ForkFailed:
		return nil, f.Code.With("%s", f.Reason)
	}
	source, _, err := a.passed(o.Source, o.Via, "source", capability.Read, "")
	switch {
	case err != nil:
		return nil, err
	case !source.Row.Copies.Has(a.s.Row.ID):
		return nil, maintain.ErrForkPurged(f)
	case f.State != session.ForkReady:
		if a.v.Now-f.Asked > forkAsked {
			a.fork = r
		}
		return nil, fault.NotYetKnown.With(session.ForkWaits+"being copied: %s", f.Progress()).Pos(f.At)
	}
	p := createPayload(&o.Create, owner)
	p.Source, p.At, p.Message = o.Source, f.At, o.Message
	text := rawjson.Encode(p)
	row := a.v.ChangeRow(a.s)
	row.Cursor = f.At
	ev := a.createSession(&o.Create, session.MethodFork, owner, text)
	row.Base, row.Forking, row.Needs = ev.Cursor, nil, row.Needs|f.Needs
	row.Bytes = f.Bytes + session.EventCost
	row.Origin = session.Origin{Session: o.Source, Cursor: f.At, Message: o.Message}
	if f.Summary && f.LeftOut {
		c := f.Compaction
		c.Ord, c.Place, c.Cursor, c.Actor, c.At = maintain.OrdInFork(f.Order, c.Ord), maintain.OrdInFork(f.Order, c.Place), ev.Cursor, ev.Actor, ev.At
		row.Compaction = c
	}
	ev.Payload = nil // it is the checkpoint
	a.v.ChangeRow(source).Copies = source.Row.Copies.Without(row.ID)
	return createResult{changeResult: a.changed(), Session: row.ID, Ref: o.Ref, Source: o.Source, At: f.At}, nil
}

// forkAsked is how long it is not noted that somebody has asked for a fork, in ms.
const forkAsked = 60 * 1000
