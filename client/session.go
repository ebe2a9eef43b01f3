// Spaces and sessions, reached by sturdy refs. Getting one asks no server. A ref that is used is
// saved in the outbox, because batches committed under it may be sent by a later process.

package client

import (
	"context"
	"errors"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// Session is a session reached by one ref.
type Session struct {
	client *Client
	id     string
	saved  outbox.SavedRef
	opened bool // saved is a ref of its space, by whose right manage it is opened, or of a session above, which reaches it
	byID   bool // saved was chosen among the session's saved refs, for appending: other rights may use another
}

// Space is a space reached by one ref.
type Space struct {
	client *Client
	id     string
	saved  outbox.SavedRef
}

// Session returns the session of a ref and saves the ref in the outbox. It works offline; whether
// the ref is valid shows when it is used. The error is BadRefText if the ref is a space's or
// names no host, UnknownRef if its secret does not belong to its id, Plaintext if the secret
// would be sent unencrypted.
func (c *Client) Session(ctx context.Context, ref capability.Ref) (*Session, error) {
	if !capability.IsSession(ref.Target()) {
		return nil, fault.BadRefText.With("this is not a session's ref: its id does not begin with %s", capability.SessionPrefix)
	}
	saved, err := c.saveRef(ctx, ref, outbox.Shared)
	if err != nil {
		return nil, err
	}
	return &Session{client: c, id: ref.Target(), saved: saved}, nil
}

// Space returns the space of a ref and saves the ref in the outbox, as Session does.
func (c *Client) Space(ctx context.Context, ref capability.Ref) (*Space, error) {
	if !capability.IsSpace(ref.Target()) {
		return nil, fault.BadRefText.With("this is not a space's ref: its id does not begin with %s", capability.SpacePrefix)
	}
	saved, err := c.saveRef(ctx, ref, outbox.SpaceOwner)
	if err != nil {
		return nil, err
	}
	return &Space{client: c, id: ref.Target(), saved: saved}, nil
}

// Open returns a session of the space by its id, with all rights, for which the space's ref needs the right
// manage. What is done there is done under that ref, and batches are sent through it, also by a later
// process. A server that does not know the right, or beside which one runs that does not, refuses it
// (Unsupported); batches wait in the outbox. The error is BadArgument if id is not a session's.
func (sp *Space) Open(id string) (*Session, error) {
	if !capability.IsSession(id) {
		return nil, fault.BadArgument.With("%q is not a session's id", fault.Clip(id))
	}
	return &Session{client: sp.client, id: id, saved: sp.saved, opened: true}, nil
}

// Open returns a session below this one, at any depth, by its id, through the ref of this one, which needs rights
// in children (ShareOptions.Children): these are the rights that it has there. What is done there is done under that
// ref, and batches are sent through it, also by a later process. A server that does not know such refs, or beside
// which one runs that does not, refuses it (Unsupported); batches wait in the outbox. Of a session that was opened
// through its space (Space.Open) it is the same as opening that one there. The error is BadArgument if id is not a
// session's.
func (s *Session) Open(id string) (*Session, error) {
	if !capability.IsSession(id) {
		return nil, fault.BadArgument.With("%q is not a session's id", fault.Clip(id))
	}
	return &Session{client: s.client, id: id, saved: s.saved, opened: true}, nil
}

// SessionByID returns a session by its id or its external id. Each verb then uses the saved ref
// of the session that has the right it needs (outbox.Box.RefFor); Session.Ref is the one for
// appending. The error is NotFound or Ambiguous.
func (c *Client) SessionByID(ctx context.Context, id string) (*Session, error) {
	saved, err := c.box.RefFor(ctx, id, capability.Append)
	if err != nil {
		return nil, err
	}
	if !capability.IsSession(saved.Target()) {
		return nil, fault.NotFound.With("the ref stored for %s is not a session's", id)
	}
	if err := c.checkUsable(saved.Ref); err != nil {
		return nil, err
	}
	return &Session{client: c, id: saved.Target(), saved: saved, byID: true}, nil
}

// refFor returns the ref to use for a verb that needs the rights want.
func (s *Session) refFor(ctx context.Context, want capability.Rights) access {
	if s.byID && s.client.box != nil {
		if saved, err := s.client.box.RefFor(ctx, s.id, want); err == nil {
			return s.access(saved)
		}
	}
	return s.access(s.saved)
}

// access is how an object is reached: by a ref, or, if through is not "", as the session of that id that is opened
// through the ref, which is one of its space or of a session above.
type access struct {
	outbox.SavedRef
	opens string
}

func (s *Session) access(saved outbox.SavedRef) access {
	if s.opened {
		return access{saved, s.id}
	}
	return access{SavedRef: saved}
}

func (sp *Space) access() access { return access{SavedRef: sp.saved} }

// call is Client.call under the ref for the rights want.
func (s *Session) call(ctx context.Context, want capability.Rights, ask func(context.Context, *rpc.Ref) *rpc.Promise, read func(capnp.Struct) error) error {
	ref := s.refFor(ctx, want)
	return s.explainRef(s.client.call(ctx, ref, ask, read), ref)
}

// explainRef adds to a refusal for a missing right which ref it is about, if SessionByID chose
// that ref.
func (s *Session) explainRef(err error, ref access) error {
	var f *fault.Error
	if !s.byID || !errors.As(err, &f) || f.Code != fault.MissingRight && f.Code != fault.NotAnOwner {
		return err
	}
	return f.Code.Because(err, "%s (it went through ref %s, of those kept for %s here the one that fits best)", f.Message, ref.ID, s.id)
}

// ID returns the session's id.
func (s *Session) ID() string { return s.id }

// Ref returns the ref the session is reached by. Its Text contains the secret.
func (s *Session) Ref() capability.Ref { return s.saved.Ref }

// ID returns the space's id.
func (sp *Space) ID() string { return sp.id }

// Ref returns the ref the space is reached by. Its Text contains the secret.
func (sp *Space) Ref() capability.Ref { return sp.saved.Ref }

// Batch begins a batch of ops for the session.
func (s *Session) Batch() *Batch {
	return &Batch{session: s, batch: outbox.Batch{ID: outbox.NewBatchID(), Session: s.id, Via: s.saved.ID, ViaSecret: s.saved.Secret}}
}

// CreateOptions are the options of a new session.
type CreateOptions struct {
	External string // the id another system knows it by; unique among the sessions made under one ref
	// SharedExternal permits that other sessions which were made under the ref have the external id too, and the outbox
	// does not find the session by it. A server of the version before does not know it: the outbox keeps the batch until it
	// does (Unsupported).
	SharedExternal bool
	Label          string // of the owner's ref
	Actor          string // of the owner's ref; "owner" if empty
	ByTime         bool   // its state is ordered by times of creation, as opencode's sessions are, not by its log; a fork has its source's order
	// Owner is the owner's ref, if it was made before (Space.NewOwner): a caller that keeps it
	// and the batch's id may repeat the creation after a crash.
	Owner capability.Ref
	// BatchID is the id of the creating batch, to make the creation repeatable.
	BatchID string
	// AtHash, of a fork at a cursor, is the hash of the source's event there (Event.Hash):
	// the op is rejected (BadArgument) if the source has another one.
	AtHash Hash
	// Message, of a fork, is the id of a message: what comes after it in the source's order, other
	// messages with their parts, is not copied; all else is. A server of the version before does not know
	// it: the outbox keeps the batch until it does (Unsupported). The op is rejected (NotFound) if the
	// source has no such message, or the ref it is read by does not show it.
	Message string
	// Parent is the session whose child the new one is, as the run of a sub-agent; nil is none. It is in the
	// same space, and is passed along under its own ref (BadArgument for one that Open returned), which must allow
	// to append to it. A fork has none. A
	// server of the version before does not know it: the outbox keeps the batch until it does (Unsupported).
	Parent *Session
	// Part is the key of the parent's message or part that starts the child; "" if none is named.
	Part string
	// Origin is what a session was forked from before it was exported, to be shown of the new one too
	// (SessionInfo.Origin). Nothing is read of it, and it gives no right. A fork has its own. A server of the
	// version before leaves it out.
	Origin Origin
}

// NewOwner returns an id for a new session and its owner's ref. Nothing is created.
func (sp *Space) NewOwner() capability.Ref {
	return sp.saved.Ref.New(capability.SessionPrefix + ulid.Make().String())
}

// Create returns a new session, offline: the session can be used at once. The batch begins with
// the create op, may be given more ops, and creates the session when it is committed. The owner's
// ref is Session.Ref; Commit saves it in the outbox.
func (sp *Space) Create(o CreateOptions) (*Session, *Batch) {
	s, b := sp.newSession(o)
	args := s.createArgs(o)
	if o.Parent != nil {
		b.err = o.Parent.checkPassed()
		b.batch.ForkViaSecret = o.Parent.saved.Secret
		args = append(args, Arg{"parent", o.Parent.id}, Arg{"via", o.Parent.saved.ID})
	}
	if o.SharedExternal {
		args = append(args, Arg{"shared_external", true})
	}
	if o.Part != "" {
		args = append(args, Arg{"part", o.Part})
	}
	if o.Origin.Session != "" {
		args = append(args, Arg{ledger.HintOrigin, o.Origin.Session}, Arg{ledger.HintOriginAt, o.Origin.Cursor})
		if o.Origin.Message != "" {
			args = append(args, Arg{ledger.HintOriginID, o.Origin.Message})
		}
	}
	b.Do(session.MethodCreate, args...)
	return s, b
}

// Fork returns a new session that begins as a copy of source as of a cursor (0: as of when the op
// applies), of all of it or up to a message (CreateOptions.Message), under a ref of its own that may read
// it (BadArgument for one that Open returned). If source's log was trimmed, its earlier states are gone: the op is then rejected.
func (sp *Space) Fork(source *Session, at uint64, o CreateOptions) (*Session, *Batch) {
	o.ByTime, o.SharedExternal = false, false
	s, b := sp.newSession(o)
	if source == nil {
		b.err = fault.Usage.With("fork: there is no session to fork")
		return s, b
	}
	b.err = source.checkPassed()
	b.batch.ForkViaSecret = source.saved.Secret
	args := []Arg{{"source", source.id}, {"via", source.saved.ID}}
	if at != 0 {
		args = append(args, Arg{"at", at})
	}
	if o.AtHash != (Hash{}) {
		args = append(args, Arg{"at_hash", o.AtHash.String()})
	}
	if o.Message != "" {
		args = append(args, Arg{"message", o.Message})
	}
	b.Do(session.MethodFork, append(args, s.createArgs(o)...)...)
	return s, b
}

// checkPassed returns an error for a session that was opened through a ref of another: a server would refuse it for good as
// what a fork copies, or as a parent.
func (s *Session) checkPassed() error {
	if s.opened {
		return fault.BadArgument.With("the session is opened through a ref of another, and a fork or a child takes one of the session's own: make it with Share")
	}
	return nil
}

func (sp *Space) newSession(o CreateOptions) (*Session, *Batch) {
	owner := o.Owner
	if owner.ID == "" {
		owner = sp.NewOwner()
	}
	s := &Session{client: sp.client, id: owner.Target(), saved: outbox.SavedRef{
		Ref: owner, RefMeta: outbox.RefMeta{Role: outbox.SessionOwner, External: o.External, Label: o.Label},
	}}
	if o.SharedExternal {
		s.saved.External = ""
	}
	b := s.Batch()
	b.batch.Via, b.batch.ViaSecret = sp.saved.ID, sp.saved.Secret
	b.batch.Owner = &outbox.OwnerRef{Ref: owner, Meta: s.saved.RefMeta}
	if o.BatchID != "" {
		b.SetID(o.BatchID)
	}
	return s, b
}

// createArgs returns the arguments that create and fork share.
func (s *Session) createArgs(o CreateOptions) []Arg {
	args := []Arg{{"ref", s.saved.ID}, {"hash", s.saved.Secret.HashText()}}
	order := session.ByLog
	if o.ByTime {
		order = session.ByTime
	}
	for _, a := range []struct{ name, value string }{{"external", o.External}, {"label", o.Label}, {"actor", o.Actor}, {"order", order.String()}} {
		if a.value != "" {
			args = append(args, Arg{a.name, a.value})
		}
	}
	return args
}

// Share commits a share of the session and returns the new ref: the batch is durable, and the ref
// works once the server has applied it.
func (s *Session) Share(ctx context.Context, o ShareOptions) (capability.Ref, Ticket, error) {
	b := s.Batch()
	ref, _ := b.Share(o)
	t, err := b.Commit(ctx)
	return ref, t, err
}

// Put commits one put.
func (s *Session) Put(ctx context.Context, key string, payload any) (Ticket, error) {
	b := s.Batch()
	b.Put(key, payload)
	return b.Commit(ctx)
}
