// Reads, and the verbs that go to the server directly. Each is retried over broken connections
// and other hosts for Config.RetryTimeout; all of them can be repeated without harm.

package client

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"capnproto.org/go/capnp/v3"
	"capnproto.org/go/capnp/v3/std/capnp/persistent"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// Description is what a ref's holder may know: its target, what it allows, and the server's
// clock.
type Description struct {
	Session SessionInfo // zero for a space
	Grant   GrantInfo
	Now     time.Time
}

// Redeem restores a ref and describes it. The ref is saved in the outbox as by Session, and is
// from then on preferred to other refs of the same session or space. A ref that its server does
// not know (UnknownRef), or that is bound to another key (Sealed), is dropped again if it was not
// saved before. A ref that is revoked or otherwise dead is described too: Grant.Dead. The error
// is NotYetKnown for a ref whose share has not arrived; that ref stays saved.
func (c *Client) Redeem(ctx context.Context, ref capability.Ref) (d Description, err error) {
	_, missing := c.box.Ref(ctx, ref.ID)
	var saved outbox.SavedRef
	if capability.IsSpace(ref.Target()) {
		var sp *Space
		if sp, err = c.Space(ctx, ref); err != nil {
			return d, err
		}
		saved = sp.saved
	} else {
		var s *Session
		if s, err = c.Session(ctx, ref); err != nil {
			return d, err
		}
		saved = s.saved
	}
	d, err = c.describe(ctx, access{SavedRef: saved})
	switch code := fault.CodeOf(err); {
	case err == nil: // the ref redeemed last is preferred
		answer := d.refAnswer()
		answer.Renew = true
		c.saveAnswer(ctx, saved.Ref, answer)
	case missing != nil && (code == fault.UnknownRef || code == fault.Sealed):
		if err := c.box.DropRef(context.WithoutCancel(ctx), saved.ID, false); err != nil {
			c.cfg.Logger.Warn("the ref could not be forgotten", "ref", saved.Ref, "error", err)
		}
	}
	return d, err
}

// Describe returns a description of the session and of the ref it is reached by.
func (s *Session) Describe(ctx context.Context) (Description, error) {
	return s.client.describe(ctx, s.refFor(ctx, capability.Read))
}

// CheckFeatures returns Unsupported if the session's server does not have all features in use that are named, as its answer
// to hello names them ("compact"): ops that need them would wait in the outbox.
func (s *Session) CheckFeatures(ctx context.Context, names ...string) error {
	ref := s.refFor(ctx, capability.Read)
	if err := s.client.checkUsable(ref.Ref); err != nil {
		return err
	}
	p, err := s.client.peer(ctx, ref.Ref)
	if err != nil {
		return err
	}
	needs := session.FeaturesNamed(names)
	if len(needs.Names()) != len(names) {
		return fault.Unsupported.With("this client knows no %s", strings.Join(names, ", "))
	}
	err = p.AwaitFeatures(ctx, needs)
	if errors.Is(err, fault.Unsupported) {
		err = fault.Unsupported.With("the server does not have %s in use: it, or another replica, is of an earlier version", strings.Join(names, ", "))
	}
	return err
}

func (d *Description) readSession(results capnp.Struct) error {
	r := wire.Session_describe_Results(results)
	d.Now = timeOf(r.Now())
	info, err := r.Info()
	if err == nil {
		d.Session, err = decodeSessionInfo(info)
	}
	if err != nil {
		return err
	}
	grant, err := r.Grant()
	if err == nil {
		d.Grant, err = decodeGrantInfo(grant)
	}
	return err
}

func (d *Description) readSpace(results capnp.Struct) error {
	r := wire.Space_describe_Results(results)
	d.Now = timeOf(r.Now())
	grant, err := r.Info()
	if err == nil {
		d.Grant, err = decodeGrantInfo(grant)
	}
	return err
}

// Describe returns a description of the ref the space is reached by.
func (sp *Space) Describe(ctx context.Context) (Description, error) {
	return sp.client.describe(ctx, sp.access())
}

// Position is a point in a session's log: after the event at Cursor (0: the log's start). Hash is
// that event's (Event.Hash, State.Hash), or zero. If it is set, the server compares it and
// answers ServerBehind if it differs, as it may on a server restored from a backup.
type Position struct {
	Cursor uint64
	Hash   Hash
}

// String formats the position as commands print and read it: CURSOR:HASH, or CURSOR.
func (p Position) String() string {
	if p.Hash == (Hash{}) {
		return strconv.FormatUint(p.Cursor, 10)
	}
	return fmt.Sprintf("%d:%s", p.Cursor, p.Hash)
}

// ParsePosition parses CURSOR or CURSOR:HASH.
func ParsePosition(text string) (p Position, err error) {
	cursor, hash, named := strings.Cut(text, ":")
	if p.Cursor, err = strconv.ParseUint(cursor, 10, 64); err == nil && named {
		var sum session.Hash
		sum, err = session.ParseHash(hash)
		p.Hash = Hash(sum)
	}
	if err != nil {
		return Position{}, fault.BadArgument.With("a position is CURSOR or CURSOR:HASH, a number and 64 hexadecimal digits")
	}
	return p, nil
}

// encode sets the hash, if there is one.
func (p Position) encode(set func([]byte) error) error {
	if p.Hash == (Hash{}) {
		return nil
	}
	return set(p.Hash[:])
}

// Page is a part of a session's log.
type Page struct {
	Events []Event
	Cursor uint64 // the session's: the log may continue beyond Events
}

// Events returns up to limit events after a cursor (0: from the first that the ref shows), with
// cursor marks (Event.Hidden) in place of events that the ref does not show. The error is
// CursorExpired if the log no longer reaches back, ServerBehind if it ends before the cursor.
func (s *Session) Events(ctx context.Context, after uint64, limit uint32) (page Page, err error) {
	return s.EventsFrom(ctx, Position{Cursor: after}, limit)
}

// EventsFrom is Events after a position. The error is also ServerBehind if the log has another
// event there than the one of its hash.
func (s *Session) EventsFrom(ctx context.Context, after Position, limit uint32) (page Page, err error) {
	return s.EventsOf(ctx, after, nil, limit)
}

// EventsOf is EventsFrom with the events about some keys alone; cursor marks stand for all others. A
// text that ends in "/" is all that is below it; nil is all that the ref shows.
func (s *Session) EventsOf(ctx context.Context, after Position, keys []string, limit uint32) (page Page, err error) {
	if err := checkKeys("keys", keys); err != nil {
		return page, err
	}
	err = s.call(ctx, capability.Read, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return callEvents(ctx, live, after, keys, limit)
	}, func(results capnp.Struct) error {
		if err := page.read(s.id, results); err != nil {
			return err
		}
		return checkSelected(keys, page.Events)
	})
	return page, err
}

func callEvents(ctx context.Context, session *rpc.Ref, from Position, keys []string, limit uint32) *rpc.Promise {
	return calls.Make(ctx, session, methods.SessionEvents, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_events_Params(s)
		p.SetFrom(from.Cursor)
		p.SetLimit(limit)
		return errors.Join(from.encode(p.SetHash), calls.SetTexts(p.NewUnderstands, understands), calls.SetTexts(p.NewKeys, keys))
	})
}

// checkSelected refuses events about keys that were not asked for: a server of an earlier version
// sends all.
func checkSelected(keys []string, events []Event) error {
	selected, refused := session.SelectKeys(keys)
	if refused != nil {
		return refused
	}
	for _, e := range events {
		if !e.Hidden && !selected.Shows(&session.Event{Method: e.Method, Key: e.Key}) {
			return errAllKeys()
		}
	}
	return nil
}

func errAllKeys() error {
	return fault.Incompatible.With("the server is of an earlier version and cannot send some keys alone: read all, or upgrade it")
}

func (page *Page) read(session string, results capnp.Struct) error {
	r := wire.Session_events_Results(results)
	list, err := r.Events()
	if err != nil {
		return err
	}
	page.Cursor = r.Cursor()
	page.Events, err = decodeEvents(session, list, Event{})
	return err
}

// Stat is how much of a session a ref shows.
type Stat struct {
	Cursor      uint64    // of the session's last event
	Events      uint64    // that are in the log and that the ref shows, without cursor marks
	First, Last time.Time // when the first and the last of them were committed; zero if there is none
	Kinds       []KindStat
}

// KindStat is how many keys of a kind a ref shows, and how many bytes their values have. What was
// appended to a part since it was put is counted as text, without the escapes of JSON.
type KindStat struct {
	Kind        string // message, part, model, session or session_diff
	Keys, Bytes uint64
}

// Stat returns how much of the session the ref shows. It costs the server a look at each of the keys
// and, under a ref of one message, at each event. Incompatible is the error of a server that is too
// old for it.
func (s *Session) Stat(ctx context.Context) (stat Stat, err error) {
	err = s.call(ctx, capability.Read, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, methods.SessionStat, nil)
	}, stat.read)
	return stat, err
}

func (s *Stat) read(results capnp.Struct) error {
	r, err := wire.Session_stat_Results(results).Stat()
	if err != nil {
		return err
	}
	*s = Stat{Cursor: r.Cursor(), Events: r.Events(), First: timeOf(r.First()), Last: timeOf(r.Last())}
	kinds, err := r.Kinds()
	for i := 0; err == nil && i < kinds.Len(); i++ {
		k := KindStat{Keys: kinds.At(i).Keys(), Bytes: kinds.At(i).Bytes()}
		k.Kind, err = kinds.At(i).Kind()
		s.Kinds = append(s.Kinds, k)
	}
	return err
}

// State is a session's folded state as of a cursor.
type State struct {
	Cursor  uint64
	Hash    Hash    // of the event at Cursor; zero if the server sends none
	Entries []Entry // in the session's order: by first put or, in a session ordered by time, by creation
	Turns   []Turn

	// Compacted is what a compacted view is compacted to; zero in any other. LeftOut are the ids of the messages that it
	// leaves out: whoever follows it leaves out what comes of them, and reads it again after an event compact.
	Compacted Compacted
	LeftOut   []string
}

// Position returns where to go on from to follow the state.
func (s *State) Position() Position { return Position{s.Cursor, s.Hash} }

// Entry returns the entry of a key; nil if there is none.
func (s *State) Entry(key string) *Entry {
	for i := range s.Entries {
		if s.Entries[i].Key == key {
			return &s.Entries[i]
		}
	}
	return nil
}

// Snapshot returns the present folded state.
func (s *Session) Snapshot(ctx context.Context) (*State, error) { return s.SnapshotAt(ctx, 0) }

// SnapshotAt returns the folded state as of a cursor; 0 is now. Of a session whose log was
// trimmed only the present state exists: CursorExpired for any other.
func (s *Session) SnapshotAt(ctx context.Context, cursor uint64) (*State, error) {
	return s.SnapshotOf(ctx, Position{Cursor: cursor})
}

// SnapshotOf is SnapshotAt for a position: ServerBehind if the log has another event
// there than the one of its hash.
func (s *Session) SnapshotOf(ctx context.Context, at Position) (*State, error) {
	return s.SnapshotOfKeys(ctx, at, nil)
}

// SnapshotOfKeys is SnapshotOf with some keys alone, as in EventsOf.
func (s *Session) SnapshotOfKeys(ctx context.Context, at Position, keys []string) (*State, error) {
	return s.SnapshotWith(ctx, SnapshotOptions{At: at, Keys: keys})
}

// SnapshotOptions say which state is read, and what of it.
type SnapshotOptions struct {
	At   Position // as in SnapshotOf; zero is now
	Keys []string // some keys alone, as in EventsOf; nil is all

	// Compacted asks for the compacted view: of a session that is compacted (Batch.Compact), the summary and the messages
	// after the mark, with their parts and turns, and all other keys. It is the whole state if the session is not compacted,
	// and for a ref that does not show all of it.
	Compacted bool
}

// SnapshotWith returns a folded state, or a view of it.
func (s *Session) SnapshotWith(ctx context.Context, o SnapshotOptions) (*State, error) {
	if err := checkKeys("keys", o.Keys); err != nil {
		return nil, err
	}
	var state *snapshotSink
	err := s.call(ctx, capability.Read, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		state = &snapshotSink{session: s.id}
		sink := rpc.NewLocal(state)
		defer sink.Release()
		return callSnapshot(ctx, live, o, sink)
	}, func(results capnp.Struct) error { return state.read(results) })
	if err == nil && slices.ContainsFunc(state.state.Entries, func(e Entry) bool { return !capability.CoversKey(o.Keys, e.Key) }) {
		err = errAllKeys()
	}
	if err != nil {
		return nil, err
	}
	return &state.state, nil
}

// understands names the features of a server that this client knows, as a reader.
var understands = session.AllFeatures.Names()

func callSnapshot(ctx context.Context, session *rpc.Ref, o SnapshotOptions, sink *rpc.Ref) *rpc.Promise {
	return calls.Make(ctx, session, methods.SessionSnapshot, func(s capnp.Struct, caps *rpc.CapTable) error {
		p := wire.Session_snapshot_Params(s)
		p.SetAt(o.At.Cursor)
		p.SetCompacted(o.Compacted)
		if err := errors.Join(o.At.encode(p.SetHash), calls.SetTexts(p.NewUnderstands, understands), calls.SetTexts(p.NewKeys, o.Keys)); err != nil {
			return err
		}
		return caps.Set(s, 0, sink)
	})
}

// Cut is where an authority ended.
type Cut struct {
	Cursor uint64 // nothing under that authority commits after it
	Epoch  uint64 // the session's, afterwards

	// Children are the cuts in the session's children, by id, if a ref that reaches them has ended: the first 1,000
	// of ChildCount.
	Children   []ChildCut
	ChildCount int
}

// ChildCut is where a session's ref ended in a child.
type ChildCut struct {
	Session string
	Cursor  uint64 // nothing under the ref commits there after it
}

// Revoke revokes a ref of the session and all refs minted from it, at once and without the
// outbox. Repeating it returns the same cut.
func (s *Session) Revoke(ctx context.Context, refID string) (Cut, error) {
	return s.revoke(ctx, refID, false, false)
}

// RevokeOwner is Revoke of the owner's ref of a session that was opened through its space (Space.Open),
// which Revoke refuses (NotAnOwner): whoever has it loses the session, with all refs minted from it.
func (s *Session) RevokeOwner(ctx context.Context, refID string) (Cut, error) {
	return s.revoke(ctx, refID, false, true)
}

// BumpEpoch revokes every share of the session, at once and without the outbox.
func (s *Session) BumpEpoch(ctx context.Context) (Cut, error) { return s.revoke(ctx, "", true, false) }

func (s *Session) revoke(ctx context.Context, refID string, epoch, takeOver bool) (cut Cut, err error) {
	err = s.call(ctx, capability.Revoke, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return callRevoke(ctx, live, refID, epoch, takeOver)
	}, func(results capnp.Struct) error {
		r := wire.Session_revoke_Results(results)
		w, err := r.Refusal()
		if err != nil {
			return err
		}
		if f, err := calls.RefusalOf(w); err != nil {
			return err
		} else if f != nil {
			return f
		}
		cut = Cut{Cursor: r.Cut(), Epoch: r.Epoch(), ChildCount: int(r.ChildCount())}
		list, err := r.Children()
		if err != nil {
			return err
		}
		t := calls.Texts{}
		for i := range list.Len() {
			cut.Children = append(cut.Children, ChildCut{t.Get(list.At(i).Session()), list.At(i).Cut()})
		}
		return t.Err
	})
	return cut, err
}

func callRevoke(ctx context.Context, session *rpc.Ref, refID string, epoch, takeOver bool) *rpc.Promise {
	return calls.Make(ctx, session, methods.SessionRevoke, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_revoke_Params(s)
		p.SetEpoch(epoch)
		p.SetTakeOver(takeOver)
		return p.SetRef(refID)
	})
}

// Save has the server mint a ref that allows what this one does and dies with it
// (Persistent.save). It takes the right to share, as Share does, but also the server. Repeated
// over one connection it returns the same ref. It is tried once: if the connection breaks, the
// server may have minted a ref whose secret is lost.
func (s *Session) Save(ctx context.Context) (capability.Ref, error) {
	return s.client.save(ctx, s.access(s.saved))
}

// Save is Session.Save for a space.
func (sp *Space) Save(ctx context.Context) (capability.Ref, error) {
	return sp.client.save(ctx, sp.access())
}

func (c *Client) save(ctx context.Context, ref access) (made capability.Ref, err error) {
	err = c.try(ctx, ref, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return calls.Make(ctx, live, methods.PersistentSave, nil)
	}, func(results capnp.Struct) error {
		id, secret, err := readSaved(results)
		if err == nil && capability.Target(id) != ref.Target() {
			err = fault.Incompatible.With("the server saved a ref for another object")
		}
		made = ref.Ref.With(id, secret)
		return err
	})
	return made, err
}

// readSaved decodes the ref that Persistent.save minted.
func readSaved(results capnp.Struct) (id string, secret capability.Secret, err error) {
	ptr, err := persistent.Persistent_SaveResults(results).SturdyRef()
	if err != nil {
		return "", secret, err
	}
	w := wire.SturdyRef(ptr.Struct())
	if id, err = w.Id(); err != nil {
		return "", secret, err
	}
	bytes, err := w.Secret()
	if err != nil {
		return "", secret, err
	}
	secret, err = capability.SecretFrom(bytes)
	return id, secret, err
}
