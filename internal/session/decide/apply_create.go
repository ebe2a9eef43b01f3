package decide

// create, fork and delete: a session's beginning and end.

import (
	"bytes"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// createResult is the result of create; fork sets all fields.
type createResult struct {
	changeResult
	Session string `json:"session"`
	Ref     string `json:"ref"`
	Source  string `json:"source,omitempty"`
	At      uint64 `json:"at,omitempty"`
}

func (o *opCreate) apply(a *applier) (result, *fault.Error) {
	if a.s.Row.Forking != nil {
		return nil, fault.AlreadyExists.With("a session of this id is being made by a fork: make another id")
	}
	owner, err := o.mintOwner(a)
	if err != nil {
		return nil, err
	}
	parent, err := o.childOf(a)
	if err != nil {
		return nil, err
	}
	o.createSession(a, session.MethodCreate, owner, rawjson.Encode(o.payload(owner)))
	a.s.Row.Parent, a.s.Row.Origin = parent, o.origin // its row is journaled by createSession
	return createResult{changeResult: a.changed(), Session: a.s.Row.ID, Ref: o.ref}, nil
}

// childOf returns the parent of the new session, which the submission must hold under a ref that may append
// to it. Its row is locked, so a revoke in the parent comes before the child or after it.
func (o *opCreate) childOf(a *applier) (p session.Parent, err *fault.Error) {
	if o.parent == "" {
		return p, nil
	}
	parent, via, err := a.passed(o.parent, o.via, "parent", capability.Append, session.MethodCreate)
	if err != nil {
		return p, err
	}
	switch depth := parent.Row.Parent.Depth(); {
	case parent.Row.Space != a.grant.Target:
		return p, fault.BadArgument.With("the parent is not in the space in which its child is made")
	case depth >= session.MaxDepth:
		return p, fault.TooLarge.With("the parent is a child %d levels down, the limit: make this one the child of a session above it", depth)
	case !session.WritesAll(via) && (o.part == "" || !session.Writes(via, o.part)):
		return p, fault.MissingRight.With("the ref of the parent is limited to some keys: name a message or part that it writes as the one that starts the child, or ask for one that covers more")
	default:
		return session.Parent{Session: o.parent, Key: o.part, Above: strings.TrimSpace(parent.Row.Parent.Above + " " + o.parent)}, nil
	}
}

// mintOwner checks that the session can be created and returns its owner's grant.
func (o *opCreate) mintOwner(a *applier) (*capability.Grant, *fault.Error) {
	switch a.s.Row.Life {
	case session.Live:
		return nil, fault.AlreadyExists.With("the session exists already")
	case session.Deleted:
		return nil, fault.SessionDeleted.With("a session of this id was deleted: make another id")
	}
	if o.ref != a.sub.Ref || capability.Target(o.ref) != a.s.Row.ID {
		return nil, fault.BadArgument.With("ref is not the owner ref with which the space made the session")
	}
	if there, err := a.v.Grant(o.ref); err != nil {
		return nil, err
	} else if there != nil {
		return nil, fault.AlreadyExists.With("a ref with this id exists already")
	}
	if o.external != "" && !o.shared && !a.sub.sharesExternalID() {
		if taken, err := a.v.ExternalOf(o.externalID(a)); err != nil {
			return nil, err
		} else if taken != "" {
			return nil, fault.AlreadyExists.With("another session that was made under this ref has this external id: continue with that one, or give another id")
		}
	}
	return capability.MintOwner(a.grant, capability.MintRequest{ID: o.ref, Hash: o.hash, Label: o.label, Actor: o.actor}, a.v.Now)
}

// externalID returns the external id that must be free for the session.
func (o *opCreate) externalID(a *applier) session.ExternalID {
	return session.ExternalID{Space: a.grant.Target, SpaceRef: a.grant.ID, ID: o.external}
}

// payload returns the first event's payload, without fork's additions.
func (o *opCreate) payload(owner *capability.Grant) session.CreatePayload {
	return session.CreatePayload{External: o.external, Ref: owner.ID, Label: owner.Label, Actor: owner.Actor, Order: o.order.String(), Parent: o.parent, Part: o.part}
}

// createSession makes the session live with its first event.
func (o *opCreate) createSession(a *applier, method string, owner *capability.Grant, payload []byte) *session.Event {
	row := a.v.ChangeRow(a.s)
	row.Life, row.Space, row.External = session.Live, a.grant.Target, o.external
	row.Epoch, row.Created, row.Creator, row.Order = 1, a.v.Now, a.outbox, o.order
	if o.external != "" {
		a.v.ClaimExternal(o.externalID(a), row.ID)
	}
	a.v.Mint(owner)
	ev := a.emit(method, session.RefKey(owner.ID), 1, payload)
	a.audit(capability.AuditShare, owner.ID)
	return ev
}

// apply makes a session that begins with the entries that another had at a cursor, as far as the
// ref it is read through shows them. Open turns are copied as plain messages and parts in their
// current state; grants are not copied.
func (o *opFork) apply(a *applier) (result, *fault.Error) {
	owner, err := o.mintOwner(a)
	if err != nil {
		return nil, err
	}
	if f := a.s.Row.Forking; f != nil {
		return o.copied(a, f, owner)
	}
	source, via, err := o.forkSource(a)
	if err != nil {
		return nil, err
	}
	at := source.Row.Cursor
	if o.atSet {
		at = o.at
	}
	entries, head, compacted, err := o.sourceEntries(a, source, at)
	if err != nil {
		if err.Code == fault.TooLarge {
			err = o.inPieces(a, source, via, at)
		}
		return nil, err
	}
	if err := checkForkHash(via, at, o.atHash, head); err != nil {
		return nil, err
	}
	if entries, err = o.part(source, via, at, entries); err != nil {
		return nil, err
	}
	p := o.payload(owner)
	p.Source, p.At, p.Message = o.source, at, o.message
	if session.ShowsAll(via) {
		p.Compact = compacted.Forked(entries)
	}
	for _, e := range entries {
		p.Entries = append(p.Entries, session.EntryPayload{Key: e.Key, Schema: e.Schema, JSON: string(e.Payload)})
	}
	text := rawjson.Encode(p)
	if len(text) > a.cfg.forkBytes() {
		return nil, o.inPieces(a, source, via, at)
	}
	ev := o.createSession(a, session.MethodFork, owner, text)
	a.s.Row.Origin = session.Origin{Session: o.source, Cursor: at, Message: o.message} // its row is journaled by createSession
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
	return createResult{changeResult: a.changed(), Session: a.s.Row.ID, Ref: o.ref, Source: o.source, At: at}, nil
}

// checkForkHash refuses a fork as of another event than the one whose hash the op wants; head is that of the event at cursor
// at.
func checkForkHash(via *capability.Grant, at uint64, want []byte, head session.Hash) *fault.Error {
	if want == nil || !via.ShowsAllKeys() || bytes.Equal(want, head[:]) {
		return nil
	}
	return fault.BadArgument.With("at_hash: the source's event %d is not the one whose hash is given: its server was restored to an earlier state and continued from there", at)
}

// part returns the entries of the source as of cursor at that the fork has, in their order. What is hidden now was not
// at an earlier cursor.
func (o *opFork) part(source *view.Session, via *capability.Grant, at uint64, entries []session.Entry) ([]session.Entry, *fault.Error) {
	scope := forkScope{via: via, message: o.message}
	if at == source.Row.Cursor {
		scope.reverts = source.Row.Hiding()
	}
	heads := map[string]*session.Entry{}
	for i := range entries {
		if e := &entries[i]; session.HeadOf(e.Key) == e.Key {
			heads[e.Key] = new(*e)
		}
	}
	if o.message != "" {
		head := heads[session.MessageKey(o.message)]
		switch {
		case head == nil || !session.ShowsEntry(via, head):
			return nil, errNoMessage(o.message, at)
		case scope.reverts.Hides(head, head):
			return nil, errReverted(head.Key, &source.Row.Revert, via)
		}
		scope.place = session.PositionOf(head)
	}
	entries = slices.DeleteFunc(entries, func(e session.Entry) bool { return !scope.has(&e, heads[session.HeadOf(e.Key)]) })
	slices.SortFunc(entries, func(a, b session.Entry) int { return session.CompareEntries(&a, &b) }) // the order of the fork's event
	return entries, nil
}

func errNoMessage(id string, at uint64) *fault.Error {
	return fault.NotFound.With("the source has no message/%s as of cursor %d", id, at)
}

// endCopies ends the forks that are being copied of the session, in which its purged values were.
func (a *applier) endCopies() {
	if a.s.Row.Copies != nil {
		a.v.ChangeRow(a.s).Copies = nil
	}
}

// forkSource returns the source and the ref it is read through, which the submission must hold.
func (o *opFork) forkSource(a *applier) (*view.Session, *capability.Grant, *fault.Error) {
	source, via, err := a.passed(o.source, o.via, "source", capability.Read, "")
	if err == nil && o.atSet && o.at > source.Row.Cursor {
		err = fault.BadArgument.With("at is %d, the source is at cursor %d", o.at, source.Row.Cursor)
	}
	return source, via, err
}

// passed returns the live session id, the argument name of the op, and the ref via, under which the
// submission must hold it with a right.
func (a *applier) passed(id, via, name string, need capability.Rights, method string) (*view.Session, *capability.Grant, *fault.Error) {
	if !slices.Contains(a.sub.PassedRefs, via) || capability.Target(via) != id {
		return nil, nil, fault.UnknownRef.With("the %s's live session must be passed along with the batch, under the ref named by via", name)
	}
	s := a.v.Sessions[id]
	if s == nil {
		return nil, nil, fault.BadReference.With("%s must be a value and not a reference", name)
	}
	g, err := a.v.Grant(via)
	if err != nil {
		return nil, nil, err
	}
	if err := capability.Check(g, s.Row.Epoch, a.v.Now, need, method); err != nil {
		return nil, nil, err
	}
	switch s.Row.Life {
	case session.Deleted:
		return nil, nil, fault.SessionDeleted.With("the %s was deleted", name)
	case session.Absent:
		return nil, nil, fault.NotFound.With("there is no session %s", id)
	}
	return s, g, nil
}

// sourceEntries returns the source's entries as of cursor at, the hash of the event there, and up to where it was
// compacted.
func (o *opFork) sourceEntries(a *applier, source *view.Session, at uint64) (entries []session.Entry, head session.Hash, c session.Compaction, err *fault.Error) {
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

// emptyPayload is the payload of events that consist of their method and key.
var emptyPayload = []byte("{}")

func (o *opDelete) apply(a *applier) (result, *fault.Error) {
	if err := a.requireLive(); err != nil {
		return nil, err
	}
	children, err := a.reachEnding("")
	if err != nil {
		return nil, err
	}
	a.emit(session.MethodDelete, "", 1, emptyPayload)
	row := a.v.ChangeRow(a.s)
	row.Life, row.AuthGen, row.Revert, row.Left, row.Compaction = session.Deleted, row.AuthGen+1, session.Revert{}, nil, session.Compaction{}
	row.Copies = nil
	row.Bytes = int64(row.Cursor-row.Base) * session.EventCost // all payloads are removed
	a.v.DiscardPurges(a.s)
	a.v.DropState(a.s)
	a.audit(capability.AuditDelete, "")
	a.cutChildren(children, a.s.Row.ID)
	return a.changed(), nil
}
