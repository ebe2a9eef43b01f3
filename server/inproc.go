// The API within the process: pages and APIs over HTTP reach the same
// sessions and spaces, under the same checks and limits, without a wire between.
// inproc_follow.go is what they are sent, inproc_stream.go what an outbox sends.

package server

import (
	"context"
	"net/http"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

// Caller is somebody who asks over HTTP: a request, or a page that follows. What
// it holds ends with its context. Its methods, and those of what it holds, may be
// called concurrently; their errors are faults.
type Caller struct {
	server *Server
	conn   *connState
	ctx    context.Context
	remote string
}

// Caller is for a request from remote (http.Request.RemoteAddr).
func (s *Server) Caller(ctx context.Context, remote string) *Caller {
	c := &Caller{server: s, conn: s.newConnState(remote), ctx: ctx, remote: remote}
	c.conn.log = logOf(ctx, s.log)
	c.conn.peerConn = c
	return c
}

// RemoteAddr implements origin.
func (c *Caller) RemoteAddr() string { return c.remote }

// Done implements origin.
func (c *Caller) Done() <-chan struct{} { return c.ctx.Done() }

// Abort implements origin: a request has no connection of its own to lose.
func (c *Caller) Abort(error) {}

// Address is whom the caller counts for: an address without its port, of IPv6 a
// /64.
func (c *Caller) Address() string { return addressOf(c.remote) }

// Restore redeems a ref. redemption is what counts as one redemption of it (64
// bytes at most); "" is one of its own. The answer to an unknown or wrong ref may
// take long, as over the other wires (ThrottleFailure); a dead one with the right secret is
// given, and says what killed it when it is used.
func (c *Caller) Restore(ref capability.Ref, redemption string) (*Capability, error) {
	g := &gateway{server: c.server, conn: c.conn}
	object, refused := g.redeem(c.ctx, credential{id: ref.ID, secret: ref.Secret, redemption: redemption})
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

// ThrottleFailure counts a wrong try of the caller's address, and waits until it may be told
// so, as the answer to a wrong ref does: for a face with secrets or names of its
// own. The error is Overloaded if too many such answers wait already.
func (c *Caller) ThrottleFailure() error {
	from, told := &throttledCaller{Caller: c}, make(chan struct{})
	c.server.authThrottle.respond(from, func() { close(told) })
	select {
	case <-told:
	case <-c.ctx.Done():
		for _, give := range c.server.authThrottle.dropConn(from) {
			give()
		}
	}
	return errOrNil(from.refused)
}

// throttledCaller is the origin of one wrong try.
type throttledCaller struct {
	*Caller
	refused *fault.Error
}

// Abort implements origin: it is told that too many wait, by who called.
func (w *throttledCaller) Abort(why error) { w.refused = toFault(w.conn.log, why, "wait") }

// Assume is what the ref of this id allows, without its secret: for a face that
// made the ref and has its own way of knowing whom it speaks for.
func (c *Caller) Assume(ref string) *Capability {
	h := &Capability{caller: c, ref: ref}
	if target := capability.Target(ref); capability.IsSpace(target) {
		h.space = &space{server: c.server, conn: c.conn, id: target, ref: ref}
	} else {
		h.sess = newSess(c.server, c.conn, &authority{session: target, ref: ref})
	}
	return h
}

// Capability is a live capability: a session or a space under one ref. Whether that
// still allows anything is looked at in every call.
type Capability struct {
	caller *Caller
	ref    string
	sess   *sess
	space  *space
}

// Ref is the id of the ref that it stands on.
func (h *Capability) Ref() string { return h.ref }

// Target is the session's or space's id.
func (h *Capability) Target() string { return capability.Target(h.ref) }

// IsSpace says whether it is a space.
func (h *Capability) IsSpace() bool { return h.space != nil }

// session is the object, or why there is none.
func (h *Capability) session() (*sess, *fault.Error) {
	if h.sess == nil {
		return nil, fault.BadArgument.With("the ref is one of a space: name a session's")
	}
	return h.sess, nil
}

// errOrNil makes an error of a refusal, which may be none.
func errOrNil(refused *fault.Error) error {
	if refused == nil {
		return nil
	}
	return refused
}

// Description is what a ref is told of itself and its session.
type Description struct {
	Now   int64 // database clock, Unix ms
	Grant *capability.Grant
	Row   *session.Row // nil for a space; Head is as the ref is shown it
	Info  *session.Entry
}

// Describe needs the right to read, or that the ref is a space's and alive. Info
// is the session's info; nil if there is none, or the ref does not show it.
func (h *Capability) Describe(ctx context.Context) (*Description, error) {
	if h.space != nil {
		grant, sight, refused := h.space.readAccess(ctx, 0, "describe")
		if refused != nil {
			return nil, refused
		}
		h.caller.server.recordUse(h.caller.conn.peer, grant, "describe", 0)
		return &Description{Now: sight.Now, Grant: grant}, nil
	}
	ctx, cancel := context.WithTimeout(ctx, h.caller.server.cfg.ReadTimeout)
	defer cancel()
	sight, info, err := h.caller.server.cfg.Store.Describe(ctx, h.Target(), []string{h.ref})
	if err != nil {
		return nil, toFault(h.caller.conn.log, err, "describe the session")
	}
	grant, refused := h.sess.check(sight, capability.Read, "describe")
	if refused != nil {
		return nil, refused
	}
	h.caller.server.recordUse(h.caller.conn.peer, grant, "describe", sight.Row.Cursor)
	if info != nil && !session.ShowsEntry(grant, info) {
		info = nil
	}
	sight.Row.Head = sight.Key.Mask(grant, sight.Row.Head)
	return &Description{Now: sight.Now, Grant: grant, Row: sight.Row, Info: info}, nil
}

// Range gives the folded state of the keys above after and below below, in order
// and in a snapshot of its own: at most maxEntries and about maxBytes. What the
// ref does not show is left out, so there may be more after a page of nothing:
// next is the key to go on after, "" at the end. page.Row.Head is as the ref is shown it.
func (h *Capability) Range(ctx context.Context, after, below string, maxBytes, maxEntries int) (page *session.StateRange, next string, err error) {
	used := ""
	if after == "" {
		used = "snapshot"
	}
	page, err = h.readVisible(ctx, used, func(ctx context.Context, o *sess) (*session.StateRange, error) {
		page, err := o.server.cfg.Store.ReadRange(ctx, h.Target(), after, below, maxBytes, maxEntries, []string{h.ref})
		if err == nil && page.More {
			next = page.Entries[len(page.Entries)-1].Key
		}
		return page, err
	})
	if err != nil {
		return nil, "", err
	}
	return page, next, nil
}

// outlinePageKeys is how many keys Outline reads at once.
const outlinePageKeys = 1 << 14

// Outline calls each with what there is of the keys above after and below below, without
// values and by key, some at a time, at most most of them, and each time in a snapshot of its
// own. What the ref does not show is left out. An error of each ends it, and is given back.
func (h *Capability) Outline(ctx context.Context, after, below string, most int, each func([]*session.Entry) error) error {
	for more := true; more; {
		page, err := h.readVisible(ctx, "snapshot", func(ctx context.Context, o *sess) (*session.StateRange, error) {
			page, err := o.server.cfg.Store.ReadOutline(ctx, h.Target(), after, below, min(outlinePageKeys, most), []string{h.ref})
			if more = err == nil && page.More; more {
				after = page.Entries[len(page.Entries)-1].Key
			}
			return page, err
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

// Values gives the entries of keys, in their order and in a snapshot of its own, as
// many as weigh about maxBytes, and of next keys in all: what is gone, or not shown by
// the ref, is left out.
func (h *Capability) Values(ctx context.Context, keys []string, maxBytes int) (page *session.StateRange, next int, err error) {
	page, err = h.readVisible(ctx, "", func(ctx context.Context, o *sess) (page *session.StateRange, err error) {
		page, next, err = o.server.cfg.Store.ReadValues(ctx, h.Target(), keys, maxBytes, []string{h.ref})
		return page, err
	})
	return page, next, err
}

// readVisible reads a part of the state and leaves out what the ref does not show. used is
// the use that is counted, "" for none.
func (h *Capability) readVisible(ctx context.Context, used string, read func(context.Context, *sess) (*session.StateRange, error)) (*session.StateRange, error) {
	o, refused := h.session()
	if refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.server.cfg.ReadTimeout)
	defer cancel()
	page, err := read(ctx, o)
	if err != nil {
		return nil, toFault(o.conn.log, err, "read the state")
	}
	grant, refused := o.check(&page.Access, capability.Read, "snapshot")
	if refused != nil {
		return nil, refused
	}
	if used != "" {
		o.server.recordUse(o.conn.peer, grant, used, page.Row.Cursor)
	}
	page.Entries = slices.DeleteFunc(page.Entries, func(e *session.Entry) bool { return !session.ShowsEntry(grant, e) })
	page.Turns = slices.DeleteFunc(page.Turns, func(t *session.Turn) bool { return !session.ShowsTurn(grant, t) })
	page.Row.Head = page.Key.Mask(grant, page.Row.Head)
	return page, nil
}

// Position is a place in a log: after the event at Cursor. Hash is that event's as it
// was shown, or zero: it is compared, since a server that was restored has others at
// the same cursors.
type Position struct {
	Cursor uint64
	Hash   session.Hash
}

// Events gives a page of the log after a position: at most limit events, and at most
// as many as one answer may have.
func (h *Capability) Events(ctx context.Context, after Position, limit int) (*session.LogPage, error) {
	o, refused := h.session()
	if refused != nil {
		return nil, refused
	}
	ctx, cancel := context.WithTimeout(ctx, o.server.cfg.ReadTimeout)
	defer cancel()
	page, refused := o.readEvents(ctx, after.Cursor, after.Hash, min(max(limit, 1), maxEvents))
	return page, errOrNil(refused)
}

// ApplyDirect applies ops, all or none, and recorded in no ledger: create, put and remove,
// which may be said again. When it returns, what it did is committed. cursor is
// the session's after it.
func (h *Capability) ApplyDirect(ctx context.Context, ops ...ledger.Intent) (cursor uint64, err error) {
	o, refused := h.session()
	if refused != nil {
		return 0, refused
	}
	a := o.commitDirect(ctx, ledger.Batch{Session: h.Target(), Ops: ops}, &session.Direct{Ops: true})
	return a.Cursor, errOrNil(a.Err)
}

// Create makes a session of a space that the ref may make sessions in. args are
// those of the op create; owner is the id of the owner's ref that they name.
func (h *Capability) Create(ctx context.Context, id, owner string, args ...ledger.Arg) error {
	return h.create(ctx, id, owner, args, &session.Direct{Ops: true})
}

// CreateSharedExternalID is Create of a session whose external id other sessions that were
// made under the ref may have too.
func (h *Capability) CreateSharedExternalID(ctx context.Context, id, owner string, args ...ledger.Arg) error {
	return h.create(ctx, id, owner, args, &session.Direct{Ops: true, SharedExternalID: true})
}

func (h *Capability) create(ctx context.Context, id, owner string, args []ledger.Arg, do *session.Direct) error {
	if h.space == nil {
		return fault.BadArgument.With("sessions are made in a space: name a space's ref")
	}
	o, refused := h.space.newSession(id, owner)
	if refused == nil { // what is refused below leaves a row
		_, _, refused = h.space.readAccess(ctx, capability.Create, session.MethodCreate)
	}
	if refused != nil {
		return refused
	}
	op := ledger.Intent{OpID: ulid.Make().String(), BatchID: ulid.Make().String(), Session: id, Method: session.MethodCreate, Args: args}
	return errOrNil(o.commitDirect(ctx, ledger.Batch{Session: id, Ops: []ledger.Intent{op}}, do).Err)
}

// Share mints a ref of the session below the one it stands on.
func (h *Capability) Share(ctx context.Context, m capability.MintRequest) error {
	o, refused := h.session()
	if refused != nil {
		return refused
	}
	return errOrNil(o.commitDirect(ctx, ledger.Batch{Session: h.Target()}, &session.Direct{Share: &m}).Err)
}

// Revoke ends a ref of the session and all below it; nothing under it commits
// after cut.
func (h *Capability) Revoke(ctx context.Context, ref string) (cut uint64, err error) {
	o, refused := h.session()
	if refused != nil {
		return 0, refused
	}
	a := o.commitDirect(ctx, ledger.Batch{Session: h.Target()}, &session.Direct{Ref: ref})
	return a.Cut, errOrNil(a.Err)
}

// commitDirect queues what needs no outbox and waits for what came of it.
func (o *sess) commitDirect(ctx context.Context, batch ledger.Batch, do *session.Direct) session.Answer {
	done := make(chan session.Answer, 1)
	w := &pendingCommit{ops: max(len(batch.Ops), 1), bytes: 64 + opsSize(batch.Ops), caller: ctx, done: func(a session.Answer) { done <- a },
		sub: session.Submission{Batch: batch, Direct: do}}
	o.auth.stamp(&w.sub, o.conn.peer)
	if refused := o.server.committer.submit(w); refused != nil {
		return session.Answer{Err: refused}
	}
	return <-done // what has begun is finished; else ctx drops it
}

// List gives a page of a space's sessions; it needs the right to list.
func (h *Capability) List(ctx context.Context, q session.ListQuery) (*session.ListPage, error) {
	if h.space == nil {
		return nil, fault.BadArgument.With("sessions are listed by their space: name a space's ref")
	}
	page, refused := h.space.listPage(ctx, q)
	return page, errOrNil(refused)
}

// Refs gives a page of a tree of refs; it needs the right to revoke.
func (h *Capability) Refs(ctx context.Context, q session.TreeQuery) (*session.TreePage, error) {
	if h.space != nil {
		page, refused := h.space.tree(ctx, q)
		return page, errOrNil(refused)
	}
	page, refused := h.sess.tree(ctx, q)
	return page, errOrNil(refused)
}

// Mount has a face served at path, and below it if it ends in a slash, at the root
// and below Config.Prefix, which the face does not see. Before Run and Handler.
func (s *Server) Mount(path string, face http.Handler) { s.mounts[path] = face }

// Admit counts a stream over HTTP that lasts (server-sent events, a WebSocket of a
// face's own) as a connection. Who gets no refusal calls done, and ends when the
// server drains: what it follows does then.
func (s *Server) Admit(remote string) (done func(), err error) {
	done, refused := s.admit(remote)
	return done, errOrNil(refused)
}

// Draining is closed when the server begins to drain: what a face keeps open without
// following anything ends then.
func (s *Server) Draining() <-chan struct{} { return s.drainStarted }
