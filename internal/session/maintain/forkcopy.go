package maintain

// Forks in pieces. A fork that is too large for one event, and for one transaction, is copied before its session is
// made: until then its row is Absent, so it is in no list, no ref of it is known, and no server serves it, of whatever
// version. Its op is answered not_yet_known, which is not recorded, and outboxes send it again; all that it was to be a
// copy of is fixed when the first of its batches arrives (BeginFork), in the row's Forking. Any server copies it,
// a piece in a transaction (CopyFork). When it is there, the next batch is decided as any other, and makes the session.
//
// Its log begins where the source was, and with a checkpoint, as a trimmed one does: the fork's event, without its
// payload, comes after the source's cursor, so the copied entries keep their places.
//
// What it was at an earlier cursor is folded from the source's log first (forkfold.go).
//
// The source goes on meanwhile. Before it changes an entry of then for the first time, the database keeps the old one
// (Changes, Row.Copies), and that is copied in its place. A purge or delete of the source ends the fork, and takes
// with it what of it was copied; if the ref that it is read through dies, it ends too, and leaves in pieces.

import (
	"bytes"
	"context"
	"slices"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/view"
)

// scopeOf returns what of the source is copied for a fork, under the ref via.
func scopeOf(f *session.Forking, via *capability.Grant) ForkScope {
	return ForkScope{Via: via, Reverts: f.Reverts, Message: f.Message, Place: session.KeyPosition{Ord: f.Place, Key: session.MessageKey(f.Message)}}
}

// ForkScope says what a fork has of its source.
type ForkScope struct {
	Via     *capability.Grant
	Reverts session.Reverts
	Message string              // id of the last message, in the source's order; "" for all
	Place   session.KeyPosition // of that message
}

// shows reports whether the fork's ref is shown an entry, which is not hidden. head is the message by which that is
// decided, nil if there is none.
func (s *ForkScope) shows(e, head *session.Entry) bool {
	return session.ShowsEntry(s.Via, e) && !s.Reverts.Hides(e, head)
}

// Has reports whether the fork has an entry. A part goes with its message, and one whose message is not shown by its own place.
func (s *ForkScope) Has(e, head *session.Entry) bool {
	if !s.shows(e, head) || session.KindOf(e.Key) == session.RequestKind { // what was asked of one session is not asked of another
		return false
	}
	if s.Message == "" || session.HeadOf(e.Key) == "" {
		return true
	}
	if head != nil && s.shows(head, head) {
		e = head
	}
	return session.PositionOf(e).Compare(session.ByPut, s.Place) <= 0
}

// OrdInFork returns the place in a fork, whose source has an order, of what has a place in that. Times are moved to before everything that
// is put into the fork, in their order.
func OrdInFork(o session.Order, at session.Ord) session.Ord {
	if o == session.ByLog {
		return at
	}
	const indexes = 20 // bits
	return session.Ord{At: 1, Index: min(at.At, 1<<43-1)<<indexes | min(at.Index, 1<<indexes-1)}
}

// ErrForkPurged returns the refusal of a fork from whose source a key was purged meanwhile.
func ErrForkPurged(f *session.Forking) *fault.Error {
	return fault.CursorExpired.With("a key of the source was purged while its state as of cursor %d was copied: fork it again", f.At)
}

// BeginFork fixes inside tx what a fork is a copy of, unless it is fixed already: then it notes that it was
// asked for. What is wrong with it is the answer of its op.
func BeginFork(ctx context.Context, tx session.Tx, r *session.ForkRequest) error {
	v := view.New(ctx, tx, 0)
	ids, refs := []string{r.Session, r.Source}, []string{r.Via}
	slices.Sort(ids)
	w := &session.ReadSet{Sessions: slices.Compact(ids), Grants: refs, Ordered: []string{r.Source}}
	if r.Message != "" {
		w.EntryMeta = map[string][]string{r.Source: {session.MessageKey(r.Message)}}
	}
	if err := v.Load(w, true); err != nil {
		return err
	}
	s, source := v.Sessions[r.Session], v.Sessions[r.Source]
	via := v.Grants[r.Via].Grant
	switch f := s.Row.Forking; {
	case s.Row.Life != session.Absent || r.Session == r.Source:
		return nil
	case f != nil:
		if f.By(r) && f.State < session.ForkFailed && v.Now > f.Asked {
			next := *f
			next.Asked = v.Now
			v.ChangeRow(s).Forking = &next
		}
	case source.Row.Life != session.Live || len(source.Row.Copies.List()) >= MaxCopies || r.At > source.Row.Cursor || capability.Check(via, source.Row.Epoch, v.Now, capability.Read, "") != nil:
		return nil
	default:
		f := &session.Forking{Source: r.Source, Via: r.Via, Space: r.Space, Ref: r.Ref, Stream: r.Stream, Message: r.Message, At: source.Row.Cursor, Named: r.At,
			Order: source.Row.Order, Total: source.Row.Bytes, Asked: v.Now, State: session.ForkCopies}
		if r.At > 0 && r.At < f.At {
			if source.Row.Base > 0 { // it was trimmed just now
				return nil
			}
			f.At, f.State, f.Fold = r.At, session.ForkFolds, &session.ForkFold{Hash: r.AtHash}
		} else if f.Reverts = source.Row.Hiding(); session.ShowsAll(via) {
			f.Compaction = source.Row.Compacted()
		}
		if r.Message != "" && f.Fold == nil {
			head := source.Entries[session.MessageKey(r.Message)].Entry
			scope := scopeOf(f, via)
			if head == nil || !scope.shows(head, head) {
				return nil
			}
			f.Place = head.Ord
		}
		v.ChangeRow(s).Forking = f
		v.ChangeRow(source).Copies = &session.Copies{Forks: append(slices.Clone(source.Row.Copies.List()), session.Copied{Session: r.Session, At: f.At, Whole: f.Fold != nil})}
	}
	if c, _ := v.Changes(); c != nil {
		return tx.Save(ctx, c)
	}
	return nil
}

// CopyFork copies inside tx the next piece of a fork: about so many bytes, and at most so many keys; with none it is only
// ended, if there is a reason. It returns how far it is then, nil if nothing has changed; more reports that there is another to be copied now. It may run on any
// server, any number of times.
func CopyFork(ctx context.Context, tx session.Tx, work session.ForkWork, bytes, keys int) (f *session.Forking, more bool, err error) {
	c := &forkCopier{ctx: ctx, tx: tx, v: view.New(ctx, tx, 0), bytes: bytes, keys: keys}
	ids := []string{work.Session, work.Source}
	slices.Sort(ids)
	if err := c.v.Load(&session.ReadSet{Sessions: ids}, true); err != nil {
		return nil, false, err
	}
	c.s, c.source = c.v.Sessions[work.Session], c.v.Sessions[work.Source]
	if c.s.Row.Forking == nil || c.s.Row.Forking.Source != work.Source {
		return nil, false, nil
	}
	c.f = *c.s.Row.Forking
	if err := c.v.Load(&session.ReadSet{Grants: slices.Sorted(slices.Values([]string{c.f.Via, c.f.Space}))}, false); err != nil {
		return nil, false, err
	}
	if why := c.wrong(); why != nil && c.f.State < session.ForkFailed {
		c.fail(why)
	} else if keys == 0 && c.f.State < session.ForkReady {
		return nil, false, nil
	} else if err := c.piece(); err != nil {
		return nil, false, err
	}
	if before := *c.s.Row.Forking; before.State == c.f.State && before.After == c.f.After && before.Fold == c.f.Fold && c.changes.DropBefore == nil && c.changes.DropEntries == nil {
		return nil, false, nil
	}
	c.v.ChangeRow(c.s).Forking = &c.f
	rows, _ := c.v.Changes()
	c.changes.Sessions = rows.Sessions
	return &c.f, c.f.State != session.ForkReady && c.f.State != session.ForkDropped, tx.Save(ctx, &c.changes)
}

// forkCopier copies one piece.
type forkCopier struct {
	ctx         context.Context
	tx          session.Tx
	v           *view.View
	s, source   *view.Session
	f           session.Forking // as it will be
	bytes, keys int
	changes     session.Changes
}

// fail ends the fork.
func (c *forkCopier) fail(why *fault.Error) {
	c.f.State, c.f.After, c.f.Code, c.f.Reason = session.ForkFailed, "", why.Code, why.Message
	if id := c.s.Row.ID; c.source.Row.Copies.Has(id) {
		c.v.ChangeRow(c.source).Copies = c.source.Row.Copies.Without(id)
	}
}

// wrong returns the reason that the fork cannot be made any more.
func (c *forkCopier) wrong() *fault.Error {
	via, space := c.v.Grants[c.f.Via], c.v.Grants[c.f.Space]
	switch {
	case c.source.Row.Life == session.Deleted:
		return fault.SessionDeleted.With("the source was deleted while it was copied")
	case !c.source.Row.Copies.Has(c.s.Row.ID):
		return ErrForkPurged(&c.f)
	case c.v.Now-c.f.Asked > session.ForkPatience:
		return fault.Expired.With("nobody has asked for the fork for %d days", session.ForkPatience/(24*3600*1000))
	}
	if err := capability.Check(via.Grant, c.source.Row.Epoch, c.v.Now, capability.Read, ""); err != nil {
		return err
	}
	return capability.Check(space.Grant, 0, c.v.Now, capability.Create, "")
}

// piece does the next piece of work.
func (c *forkCopier) piece() error {
	id := c.s.Row.ID
	page := &session.EntryPage{Session: c.f.Source, After: c.f.After, Bytes: c.bytes, Keys: c.keys}
	switch c.f.State {
	case session.ForkFolds:
		return c.fold()
	case session.ForkMends, session.ForkTidies:
		page.Session, page.Before, page.Log = id, true, c.f.Source
	case session.ForkFailed:
		page.Session, page.After = id, ""
	case session.ForkReady, session.ForkDropped:
		return nil
	}
	rows, err := c.tx.Load(c.ctx, &session.ReadSet{Page: page})
	if err != nil {
		return err
	}
	n := len(rows.Page)
	if n > 0 {
		c.f.After = rows.Page[n-1].Key
	}
	switch c.f.State {
	case session.ForkCopies:
		if err := c.copy(rows.Page); err != nil {
			return err
		}
	case session.ForkMends:
		left, err := c.notCopied(rows.Page)
		if err == nil {
			err = c.copy(left)
		}
		if err != nil {
			return err
		}
	case session.ForkTidies:
		for _, e := range rows.Page {
			view.AddKey(&c.changes.DropBefore, id, e.Key)
		}
	case session.ForkFailed:
		for _, e := range rows.Page {
			view.AddKey(&c.changes.DropEntries, id, e.Key)
		}
		if n == 0 { // then what was kept
			if rows, err = c.tx.Load(c.ctx, &session.ReadSet{Page: &session.EntryPage{Session: id, Before: true, Log: c.f.Source, Bytes: c.bytes, Keys: c.keys}}); err != nil {
				return err
			}
			for _, e := range rows.Page {
				view.AddKey(&c.changes.DropBefore, id, e.Key)
			}
			n = len(rows.Page)
		}
	}
	if c.f.State == session.ForkFailed {
		if n == 0 {
			c.f.State = session.ForkDropped
		}
	} else if !rows.MorePage {
		if c.f.State == session.ForkMends {
			c.v.ChangeRow(c.source).Copies = c.source.Row.Copies.Whole(id)
		}
		c.f.State, c.f.After = c.f.State+1, ""
	}
	return nil
}

// notCopied returns those of the entries that were kept which had not been copied when they changed.
func (c *forkCopier) notCopied(kept []*session.Entry) (left []*session.Entry, err error) {
	if len(kept) == 0 {
		return nil, nil
	}
	id := c.s.Row.ID
	keys := make([]string, len(kept))
	for i, e := range kept {
		keys[i] = e.Key
	}
	rows, err := c.tx.Load(c.ctx, &session.ReadSet{EntryMeta: map[string][]string{id: keys}})
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(kept, func(e *session.Entry) bool { return rows.Entries[id][e.Key] != nil }), nil
}

// copy copies entries, those of the source that have not changed since, or those that were kept.
func (c *forkCopier) copy(entries []*session.Entry) error {
	heads, err := c.heads(entries)
	if err != nil {
		return err
	}
	scope := scopeOf(&c.f, c.v.Grants[c.f.Via].Grant)
	for _, e := range entries {
		head := heads[session.HeadOf(e.Key)]
		if e.Changed() > c.f.At || !scope.Has(e, head) {
			continue
		}
		k, bad := session.ParseKey(e.Key)
		if bad != nil {
			return bad
		}
		if k.Own() {
			c.f.Needs |= session.FeatureKeys
		}
		switch {
		case c.f.Compaction.InForce() && e.Key == c.f.Compaction.Summary:
			c.f.Summary = true
		case session.HeadOf(e.Key) == e.Key && c.f.Compaction.LeavesOut(e):
			c.f.LeftOut = true
		}
		at := c.f.At + 1 // the fork's event
		c.changes.Entries = append(c.changes.Entries, &session.Entry{Session: c.s.Row.ID, Key: e.Key, Cursor: at, Since: at, Ord: OrdInFork(c.f.Order, e.Ord),
			Schema: e.Schema, Sum: session.SumOf(e.Payload), Payload: e.Payload, TextLen: session.EntryTextLen(k, e.Payload)})
		c.f.Keys, c.f.Bytes = c.f.Keys+1, c.f.Bytes+int64(len(e.Payload))
	}
	return nil
}

// heads returns the messages of entries as they were, by key, without their values.
func (c *forkCopier) heads(entries []*session.Entry) (map[string]*session.Entry, error) {
	if c.f.Message == "" && len(c.f.Reverts) == 0 {
		return nil, nil
	}
	var keys []string
	for _, e := range entries {
		if head := session.HeadOf(e.Key); head != "" {
			keys = append(keys, head)
		}
	}
	slices.Sort(keys)
	if keys = slices.Compact(keys); len(keys) == 0 {
		return nil, nil
	}
	w := &session.ReadSet{Before: &session.BeforeSet{Session: c.s.Row.ID, Keys: keys}}
	if c.f.Fold == nil {
		w.EntryMeta = map[string][]string{c.f.Source: keys}
	}
	rows, err := c.tx.Load(c.ctx, w)
	if err != nil {
		return nil, err
	}
	heads := map[string]*session.Entry{}
	for _, key := range keys {
		if e := rows.Before[key]; e != nil {
			heads[key] = e
		} else if e := rows.Entries[c.f.Source][key]; e != nil && e.Changed() <= c.f.At {
			heads[key] = e
		}
	}
	return heads, nil
}

// MaxCopies is how many forks of one session are copied at a time. Others wait.
const MaxCopies = 8

// CheckForkHash refuses a fork as of another event than the one whose hash the op wants; head is that of the event at cursor
// at.
func CheckForkHash(via *capability.Grant, at uint64, want []byte, head session.Hash) *fault.Error {
	if want == nil || !via.ShowsAllKeys() || bytes.Equal(want, head[:]) {
		return nil
	}
	return fault.BadArgument.With("at_hash: the source's event %d is not the one whose hash is given: its server was restored to an earlier state and continued from there", at)
}

// ErrNoMessage returns the refusal of a fork up to a message that its source does not have at a cursor.
func ErrNoMessage(id string, at uint64) *fault.Error {
	return fault.NotFound.With("the source has no message/%s as of cursor %d", id, at)
}
