// The API within the process: HTTP handlers reach the same sessions and spaces as
// peers, under the same checks and limits, without a wire between. inproc_follow.go delivers
// events and state to them, and inproc_stream.go commits the batches of an outbox.

package objects

import (
	"context"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/incident"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/server/commit"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// Caller is the client of one HTTP request, or of one long answer. It and its capabilities end
// with its context. Its methods and those of its capabilities may be called concurrently; their
// errors are faults.
type Caller struct {
	service *Service
	conn    *ConnState
	ctx     context.Context
	remote  string
}

// Caller returns the caller of a request from remote (http.Request.RemoteAddr).
func (s *Service) Caller(ctx context.Context, remote string) *Caller {
	c := &Caller{service: s, conn: s.NewConnState(remote, nil), ctx: ctx, remote: remote}
	c.conn.log = incident.Logger(ctx, s.cfg.Log)
	c.conn.SetPeer(c)
	return c
}

// RemoteAddr implements PeerConn.
func (c *Caller) RemoteAddr() string { return c.remote }

// Done implements PeerConn.
func (c *Caller) Done() <-chan struct{} { return c.ctx.Done() }

// Abort implements PeerConn. It does nothing: a request has no connection of its own to close.
func (c *Caller) Abort(error) {}

// Address returns the address that the caller's limits count by: without its port, and a /64
// for IPv6.
func (c *Caller) Address() string { return admission.AddressOf(c.remote) }

// Restore redeems a ref. redemption is the idempotency key of the redemption (at most 64 bytes);
// "" makes a new one. The error for an unknown ref or a wrong secret may be delayed, as over the
// other wires (ThrottleFailure). A dead ref with the right secret is restored: its calls return
// why it is dead.
func (c *Caller) Restore(ref capability.Ref, redemption string) (*Capability, error) {
	g := &gateway{service: c.service, conn: c.conn}
	object, refused := g.redeem(c.ctx, authority.Credential{ID: ref.ID, Secret: ref.Secret, Redemption: redemption})
	if refused == nil {
		h := &Capability{caller: c, ref: ref.ID}
		h.space, _ = object.(*space)
		h.sess, _ = object.(*sess)
		return h, nil
	}
	if refused.Code == fault.UnknownRef {
		if err := c.ThrottleFailure(); err != nil {
			return nil, err
		}
	}
	return nil, refused
}

// ThrottleFailure counts a wrong try of the caller's address, and waits as long as the answer to
// a wrong ref would: for a handler with secrets or names of its own. It returns Overloaded if too
// many answers of the address are waiting already.
func (c *Caller) ThrottleFailure() error {
	from, due := &throttledCaller{Caller: c}, make(chan struct{})
	c.service.cfg.AuthThrottle.Respond(from, func() { close(due) })
	select {
	case <-due:
	case <-c.ctx.Done():
		for _, give := range c.service.cfg.AuthThrottle.DropConn(from) {
			give()
		}
	}
	return errOrNil(from.refused)
}

// throttledCaller is the PeerConn of one wrong try.
type throttledCaller struct {
	*Caller
	refused *fault.Error
}

// Abort implements PeerConn: it records the refusal, that too many answers are waiting.
func (w *throttledCaller) Abort(why error) { w.refused = fault.From(w.conn.log, why, "wait") }

// Assume returns the capability of the ref of this id without its secret: for a handler that made
// the ref and authenticates its clients in a way of its own.
func (c *Caller) Assume(ref string) *Capability {
	h := &Capability{caller: c, ref: ref}
	if target := capability.Target(ref); capability.IsSpace(target) {
		h.space = &space{service: c.service, conn: c.conn, id: target, ref: ref}
	} else {
		h.sess = newSess(c.service, c.conn, &authority.Authority{Session: target, Ref: ref})
	}
	return h
}

// Capability is a live capability: a session or a space under one ref. Every call checks whether
// the ref still allows it.
type Capability struct {
	caller *Caller
	ref    string
	sess   *sess
	space  *space
}

// Ref returns the id of the capability's ref.
func (h *Capability) Ref() string { return h.ref }

// Target returns the session's or space's id.
func (h *Capability) Target() string {
	if h.sess != nil {
		return h.sess.auth.Session
	}
	return capability.Target(h.ref)
}

// IsSpace reports whether the capability is a space's.
func (h *Capability) IsSpace() bool { return h.space != nil }

// Attenuate returns the capability with limits below those it has, for as long as its ref lives. One
// of a dead ref is as dead. It is attached to no batch: Apply ignores it among with.
func (h *Capability) Attenuate(ctx context.Context, limits capability.MintRequest) (*Capability, error) {
	narrow := &Capability{caller: h.caller, ref: h.ref}
	var refused *fault.Error
	if h.space != nil {
		narrow.space, refused = h.space.within(ctx, limits, true)
	} else {
		narrow.sess, refused = h.sess.within(ctx, limits, true)
	}
	if refused != nil {
		return nil, refused
	}
	return narrow, nil
}

// session returns the session's object, or a fault for a space.
func (h *Capability) session() (*sess, *fault.Error) {
	if h.sess == nil {
		return nil, fault.BadArgument.With("the ref is one of a space: name a session's")
	}
	return h.sess, nil
}

// errOrNil converts a refusal to an error; a nil refusal is a nil error.
func errOrNil(refused *fault.Error) error {
	if refused == nil {
		return nil
	}
	return refused
}

// Description is the answer of Describe. Its Row is nil for a space.
type Description struct {
	session.Description
	Grant *capability.Grant
}

// Describe needs the right to read, or a live ref of a space.
func (h *Capability) Describe(ctx context.Context) (*Description, error) {
	if h.space != nil {
		grant, access, refused := h.space.readAccess(ctx, 0, "describe")
		if refused != nil {
			return nil, refused
		}
		h.caller.service.cfg.Usage.Record(h.caller.conn.peer, grant, "describe", 0)
		return &Description{Description: session.Description{Access: *access}, Grant: grant}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.caller.service.cfg.ReadTimeout)
	defer cancel()
	found, err := h.caller.service.cfg.Store.Describe(ctx, h.Target(), []string{h.ref})
	if err != nil {
		return nil, fault.From(h.caller.conn.log, err, "describe the session")
	}
	grant, refused := h.sess.check(found.Access(), capability.Read, "describe")
	if refused != nil {
		return nil, refused
	}
	h.caller.service.cfg.Usage.Record(h.caller.conn.peer, grant, "describe", found.Access().Row.Cursor)
	return &Description{Description: *found.Shown(grant), Grant: grant}, nil
}

// Range returns the folded state of the keys above after and below below, in order and from one
// snapshot: at most maxEntries and about maxBytes. Entries that the ref does not show are left
// out, so more may follow an empty page: next is the key to continue after, "" at the end.
// page.Row.Head is masked as the ref is shown it.
func (h *Capability) Range(ctx context.Context, after, below string, maxBytes, maxEntries int) (page *session.StateRange, next string, err error) {
	used := ""
	if after == "" {
		used = "snapshot"
	}
	page, err = h.readVisible(ctx, used, func(ctx context.Context, o *sess) (found *session.Unscoped[*session.StateRange], err error) {
		found, err = o.service.cfg.Store.ReadRange(ctx, h.Target(), after, below, maxBytes, maxEntries, []string{h.ref})
		if err == nil {
			next = session.NextKey(found)
		}
		return found, err
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// outlinePageKeys is the number of keys that Outline reads at once.
const outlinePageKeys = 1 << 14

// Outline calls each with pages of the entries of the keys above after and below below, by key and
// without values. A page has at most limit entries and comes from a snapshot of its own. Entries
// that the ref does not show are left out. An error of each ends Outline, which returns it.
func (h *Capability) Outline(ctx context.Context, after, below string, limit int, each func([]*session.Entry) error) error {
	for more := true; more; more = after != "" {
		page, err := h.readVisible(ctx, "snapshot", func(ctx context.Context, o *sess) (found *session.Unscoped[*session.StateRange], err error) {
			found, err = o.service.cfg.Store.ReadOutline(ctx, h.Target(), after, below, min(outlinePageKeys, limit), []string{h.ref})
			if err == nil {
				after = session.NextKey(found)
			}
			return found, err
		})
		if err == nil {
			err = each(page.Entries)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// Values returns the entries of keys, in their order and from one snapshot, until they reach
// about maxBytes. next is the number of keys read; keys that are gone, or not shown by the ref,
// are left out of the page.
func (h *Capability) Values(ctx context.Context, keys []string, maxBytes int) (page *session.StateRange, next int, err error) {
	page, err = h.readVisible(ctx, "", func(ctx context.Context, o *sess) (found *session.Unscoped[*session.StateRange], err error) {
		found, next, err = o.service.cfg.Store.ReadValues(ctx, h.Target(), keys, maxBytes, []string{h.ref})
		return found, err
	})
	return page, next, err
}

// readVisible reads a part of the state and removes what the ref does not show. used is the
// method that is counted as a use, "" for none.
func (h *Capability) readVisible(ctx context.Context, used string, read func(context.Context, *sess) (*session.Unscoped[*session.StateRange], error)) (*session.StateRange, error) {
	o, refused := h.session()
	if refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	found, err := read(ctx, o)
	if err != nil {
		return nil, fault.From(o.conn.log, err, "read the state")
	}
	grant, refused := o.check(found.Access(), capability.Read, "snapshot")
	if refused != nil {
		return nil, refused
	}
	if used != "" {
		o.service.cfg.Usage.Record(o.conn.peer, grant, used, found.Access().Row.Cursor)
	}
	return found.Shown(grant), nil
}

// Events returns a page of the log's events about keys after a position: at most limit events, and at most the
// limits of one answer (1000 events, 4 MiB).
func (h *Capability) Events(ctx context.Context, after fanout.Position, keys *session.Selection, limit int) (*session.LogPage, error) {
	o, refused := h.session()
	if refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	page, refused := o.readEvents(ctx, o.auth.InProcess(), after.Cursor, after.Hash, min(max(limit, 1), maxEvents), keys)
	return page, errOrNil(refused)
}

// ApplyDirect applies ops, all or none, without recording them in a ledger. The methods are
// create, put, remove, ask, answer and withdraw, which may be repeated. When the error is nil, the ops are committed; cursor
// is that of the last one's event, of the event of a request that it repeats, or the session's if it changed nothing.
func (h *Capability) ApplyDirect(ctx context.Context, ops ...ledger.Intent) (cursor uint64, err error) {
	o, refused := h.session()
	if refused != nil {
		return 0, refused
	}
	a := o.commitDirect(ctx, ledger.Batch{Session: h.Target(), Ops: ops}, &decide.Direct{Ops: true})
	return a.At, errOrNil(a.Err)
}

// Create makes a session in a space. args are those of the op create; owner is the id of the
// owner's ref that they name; with are the live sessions that they name (create's parent).
func (h *Capability) Create(ctx context.Context, id, owner string, with []*Capability, args ...ledger.Arg) error {
	return h.create(ctx, id, owner, with, args, &decide.Direct{Ops: true})
}

// CreateSharedExternalID is Create of a session whose external id other sessions made under the
// ref may have too.
func (h *Capability) CreateSharedExternalID(ctx context.Context, id, owner string, args ...ledger.Arg) error {
	return h.create(ctx, id, owner, nil, args, &decide.Direct{Ops: true, SharedExternalID: true})
}

func (h *Capability) create(ctx context.Context, id, owner string, with []*Capability, args []ledger.Arg, do *decide.Direct) error {
	if h.space == nil {
		return fault.BadArgument.With("sessions are made in a space: name a space's ref")
	}
	o, refused := h.space.newSession(id, owner)
	if refused == nil { // a refusal below leaves a row
		_, _, refused = h.space.readAccess(ctx, capability.Create, session.MethodCreate)
	}
	if refused != nil {
		return refused
	}
	op := ledger.Intent{OpID: ulid.Make().String(), BatchID: ulid.Make().String(), Session: id, Method: session.MethodCreate, Args: args}
	return errOrNil(o.commitDirect(ctx, ledger.Batch{Session: id, Ops: []ledger.Intent{op}}, do, passedRefs(with)...).Err)
}

// Share mints a ref of the session or space below the capability's ref. The same again changes
// nothing.
func (h *Capability) Share(ctx context.Context, m capability.MintRequest) error {
	if h.space != nil {
		return errOrNil(h.space.mint(m))
	}
	return errOrNil(h.sess.commitDirect(ctx, ledger.Batch{Session: h.Target()}, &decide.Direct{Share: &m}).Err)
}

// Revoke revokes a ref of the session and all refs below it; nothing commits under them after
// cut. Of a session that was opened by manage (Open), the owner's ref only with takeOver.
func (h *Capability) Revoke(ctx context.Context, ref string, takeOver bool) (decide.Answer, error) {
	o, refused := h.session()
	if refused != nil {
		return decide.Answer{}, refused
	}
	a := o.commitDirect(ctx, ledger.Batch{Session: h.Target()}, &decide.Direct{Ref: ref, TakeOver: takeOver})
	return a, errOrNil(a.Err)
}

// RevokeInSpace revokes a space's own ref, or one below it, also of a session, with all refs below
// that. It returns how many died.
func (h *Capability) RevokeInSpace(_ context.Context, ref string) (died uint64, err error) {
	if h.space == nil {
		return 0, fault.BadArgument.With("the ref is one of a session: name a space's")
	}
	died, refused := h.space.revokeTree(ref)
	return died, errOrNil(refused)
}

// Rotate puts a new ref in the place of the capability's, which is a session's owner's or a
// space's root ref, and alone is revoked. For a session nothing commits under it after cut. The
// same again changes nothing. Of a session that was opened by manage (Open), the owner's ref is replaced,
// only with takeOver.
func (h *Capability) Rotate(ctx context.Context, to decide.Rotation, takeOver bool) (cut uint64, err error) {
	if h.space != nil {
		return 0, errOrNil(h.space.rotateTo(to))
	}
	if refused := checkRotation(to, h.Target()); refused != nil {
		return 0, refused
	}
	if h.sess.auth.Manage {
		if refused := h.sess.findReplaced(ctx, &to); refused != nil {
			return 0, refused
		}
	}
	a := h.sess.commitDirect(ctx, ledger.Batch{Session: h.Target()}, &decide.Direct{Rotate: &to, TakeOver: takeOver})
	return a.Cut, errOrNil(a.Err)
}

// Audit returns a page of the audit of the session, to its owner's ref, or of the space, to its
// root ref: at most limit rows after the row after.
func (h *Capability) Audit(ctx context.Context, after uint64, limit int) (*session.AuditPage, error) {
	if h.space != nil {
		page, refused := h.space.readAudit(ctx, after, uint32(max(limit, 1)))
		return page, errOrNil(refused)
	}
	page, refused := h.sess.readAudit(ctx, after, uint32(max(limit, 1)))
	return page, errOrNil(refused)
}

// commitDirect queues a commit without an outbox, with the refs of the live sessions that came with it, and
// waits for its answer.
func (o *sess) commitDirect(ctx context.Context, batch ledger.Batch, do *decide.Direct, passed ...string) decide.Answer {
	done := make(chan decide.Answer, 1)
	w := &commit.Pending{Ops: max(len(batch.Ops), 1), Bytes: 64 + codec.OpsSize(batch.Ops), Caller: ctx, Done: func(a decide.Answer) { done <- a },
		Sub: decide.Submission{Batch: batch, Direct: do, PassedRefs: passed}}
	o.auth.Stamp(&w.Sub, o.conn.peer)
	if refused := o.service.cfg.Committer.Submit(w); refused != nil {
		return decide.Answer{Err: refused}
	}
	return <-done // once begun it is finished; before that ctx drops it
}

// List returns a page of a space's sessions; it needs the right to list.
func (h *Capability) List(ctx context.Context, q session.ListQuery) (*session.ListPage, error) {
	if h.space == nil {
		return nil, fault.BadArgument.With("sessions are listed by their space: name a space's ref")
	}
	page, refused := h.space.listPage(ctx, q)
	return page, errOrNil(refused)
}

// Refs returns a page of a tree of refs; it needs the right to revoke.
func (h *Capability) Refs(ctx context.Context, q session.TreeQuery) (*session.TreePage, error) {
	if h.space != nil {
		page, refused := h.space.tree(ctx, q)
		return page, errOrNil(refused)
	}
	page, refused := h.sess.tree(ctx, q)
	return page, errOrNil(refused)
}
