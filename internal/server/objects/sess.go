// Session: one session under one ref. Every method checks the ref again, in the snapshot that
// it reads its result from.

package objects

import (
	"context"
	"errors"
	"strings"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
	"github.com/mooring-rpc/mooring/internal/server/authority"
	"github.com/mooring-rpc/mooring/internal/server/codec"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/rpc"
)

// sess serves the schema's Session.
type sess struct {
	service *Service
	conn    *ConnState
	auth    *authority.Authority
}

func newSess(s *Service, l *ConnState, a *authority.Authority) *sess {
	return &sess{service: s, conn: l, auth: a}
}

// Limits of one answer of events.
const (
	maxEvents      = 1000
	maxEventsBytes = 4 << 20
)

var sessMethods = newMethodTable("Session", map[methods.Method]func(*sess, *rpc.Call){
	methods.SessionDescribe:   inBackground((*sess).describe),
	methods.SessionOpenStream: uncanceled((*sess).openStream),
	methods.SessionSnapshot:   (*sess).snapshot,
	methods.SessionSubscribe:  (*sess).subscribe,
	methods.SessionRevoke:     (*sess).revoke,
	methods.SessionEvents:     inBackground((*sess).events),
	methods.SessionAttenuate:  inBackground((*sess).attenuate),
	methods.SessionAudit:      inBackground((*sess).audit),
	methods.SessionRefs:       inBackground((*sess).refs),
	methods.SessionRotate:     (*sess).rotate,
	methods.SessionShare:      (*sess).share,
	methods.SessionStat:       inBackground((*sess).stat),
	methods.SessionGet:        inBackground((*sess).get),
	methods.SessionList:       inBackground((*sess).list),
	methods.SessionSearch:     inBackground((*sess).search),
	methods.SessionChildren:   inBackground((*sess).children),
	methods.SessionOpen:       inBackground((*sess).open),
	methods.SessionAddWebhook: uncanceled((*sess).addWebhook), methods.SessionRemoveWebhook: uncanceled((*sess).removeWebhook),
	methods.SessionWebhooks: inBackground((*sess).webhooks),
	methods.PersistentSave:  uncanceled(func(o *sess, c *rpc.Call) { o.service.save(c, o.conn, o.auth) }),
})

// Serve implements rpc.Object.
func (o *sess) Serve(c *rpc.Call) {
	o.service.cfg.Instruments.ObserveCall(c, o.service.cfg.Instruments.Session)
	sessMethods.serve(o, c)
}

// check is authority.check, and audits a refusal.
func (o *sess) check(at *session.Access, need capability.Rights, label string) (*capability.Grant, *fault.Error) {
	return o.checkAs(o.auth, at, need, label)
}

// checkAs is check for an authority of the object, or a reader's.
func (o *sess) checkAs(as fanout.Authority, at *session.Access, need capability.Rights, label string) (*capability.Grant, *fault.Error) {
	grant, refused := as.Check(at, need)
	if refused != nil {
		o.service.cfg.Audit.Deny(o.conn.peer, o.auth.Ref, at.Grants[o.auth.Ref], label, refused)
	}
	return grant, refused
}

// describe returns the grant even of a dead ref, but the session's row only to a live ref, and
// its content only to one that may read.
func (o *sess) describe(ctx context.Context, c *rpc.Call) {
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	found, err := o.service.cfg.Store.Describe(ctx, o.auth.Session, o.auth.Refs())
	if err != nil {
		fail(c, fault.From(o.conn.log, err, "describe the session"))
		return
	}
	grant, refused := o.auth.Check(found.Access(), capability.Read)
	if grant == nil {
		fail(c, refused)
		return
	}
	shown := found.Shown(grant)
	row, title := *shown.Row, ""
	if refused == nil || refused.Code == fault.MissingRight {
		o.service.cfg.Usage.Record(o.conn.peer, grant, "describe", row.Cursor)
	}
	switch {
	case refused == nil:
		title = shown.Title()
	case refused.Code == fault.MissingRight:
		row.External, row.Origin, row.Parent, row.Revert, row.Compaction = "", session.Origin{}, session.Parent{}, session.Revert{}, session.Compaction{} // the cursor stays: the ack of any op would show it
	default:
		row = session.Row{ID: row.ID, Epoch: row.Epoch, Life: row.Life} // it learns why it is dead
	}
	// The head of the log's hash chain is shown only to a ref that can read the whole chain.
	whole := refused == nil && grant.VisibleFrom <= 1 && grant.ShowsAllKeys()
	reply(c, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_describe_Results(s)
		r.SetNow(shown.Now)
		info, err := r.NewInfo()
		if err != nil {
			return err
		}
		if err := codec.EncodeSessionInfo(info, &row, title); err != nil {
			return err
		}
		if whole {
			if err := info.SetHead(row.Head[:]); err != nil {
				return err
			}
		}
		to, err := r.NewGrant()
		if err != nil {
			return err
		}
		if err := codec.EncodeGrantInfo(to, grant, shown.Row.Epoch, shown.Now); err != nil {
			return err
		}
		if to.Dead() == 0 && row.Life == session.Deleted {
			to.SetDead(uint16(fault.SessionDeleted))
		}
		return nil
	})
}

// maxOutbox is the maximum length of an outbox id, in bytes.
const maxOutbox = 64

func (o *sess) openStream(c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_openStream_Params(s)
	var r codec.FieldReader
	outbox, secret := r.Text(p.Outbox()), r.Data(p.Secret())
	if refused := r.Fault("the call"); refused != nil {
		fail(c, refused)
		return
	}
	opened, row, refused := o.registerStream(outbox, secret, p.Incarnation())
	if refused != nil {
		fail(c, refused)
		return
	}
	cap := rpc.NewLocal(opened)
	defer cap.Release()
	reply(c, func(s capnp.Struct, caps *rpc.CapTable) error {
		r := wire.Session_openStream_Results(s)
		r.SetLastSeq(row.LastSeq)
		r.SetAckedThrough(row.AckedThrough)
		return caps.Set(s, 0, cap)
	})
}

// registerStream opens an outbox's stream, after checking the outbox's secret. It needs no right
// on the session: the ops are decided one by one, and the ops of a dead ref are recorded as
// denied. But a ref that can change nothing may make only ReadOnlyStreams streams, so that it
// cannot fill the database with them.
func (o *sess) registerStream(outbox string, secret []byte, incarnation uint64) (*stream, *ledger.Stream, *fault.Error) {
	shown, err := capability.SecretFrom(secret)
	switch {
	case outbox == "" || len(outbox) > maxOutbox:
		return nil, nil, fault.BadArgument.With("an outbox's id has 1 to %d bytes", maxOutbox)
	case err != nil:
		return nil, nil, fault.BadArgument.With("an outbox's secret has %d bytes", capability.SecretBytes)
	case incarnation == 0 || incarnation > 1<<62:
		return nil, nil, fault.BadArgument.With("an outbox's incarnation counts from 1")
	}
	opening := session.StreamRequest{Key: session.StreamKey{Session: o.auth.Session, Outbox: outbox}, SecretHash: shown.Hash(),
		Incarnation: incarnation, MaxReadOnlyStreams: o.service.cfg.ReadOnlyStreams, Refs: o.auth.Refs()}
	if o.auth.Space != "" {
		opening.Refs = append(opening.Refs, o.auth.Space)
	}
	// It outlives the connection once begun.
	ctx, cancel := o.service.commitContext()
	defer cancel()
	// The answer reports the stream's LastSeq, by which a client drops ops. So a transaction in
	// flight, which may contain ops of the stream, ends first.
	if err := o.service.cfg.Committer.WaitTx(ctx, opening.Key.Session); err != nil {
		return nil, nil, fault.From(o.conn.log, err, "open the stream")
	}
	var found openingDecision
	opening.Decide = func(opening *session.StreamRequest, access *session.Access, streams map[session.StreamKey]*ledger.Stream) error {
		if found = o.decideOpening(opening, shown, access, streams); found.refused != nil {
			return found.refused
		}
		return nil
	}
	if !o.auth.FirstRedeemed { // else the stream is probably new
		access, streams, err := o.service.cfg.Store.FindStreams(ctx, session.CandidateStreams(opening.Key, opening.SecretHash), opening.Refs)
		if err != nil {
			return nil, nil, fault.From(o.conn.log, err, "open the stream")
		}
		if access.Row != nil && access.Row.Forgotten {
			found.stream = opening.Forgotten()
		} else {
			found = o.decideOpening(&opening, shown, access, streams)
		}
	}
	row, refused := found.stream, found.refused
	if refused == nil && (row == nil || !opening.AlreadyOpen(row)) { // otherwise it changes nothing, and needs no lock
		row, err = o.service.cfg.Store.OpenStream(ctx, opening)
		if errors.Is(err, session.ErrReadOnlyStreams) {
			idle := found.idle
			o.service.cfg.Audit.Deny(o.conn.peer, found.idleRef, found.grant, "openStream", idle)
			return nil, nil, idle.Code.Because(idle, "%s; %d streams were made under the ref, which can change nothing: no new one is", idle.Message, opening.MaxReadOnlyStreams).Pos(idle.At)
		}
		refused = fault.From(o.conn.log, err, "open the stream")
	}
	if refused != nil {
		if refused.Code == fault.WrongOutbox {
			o.service.cfg.Audit.Deny(o.conn.peer, o.auth.Ref, found.grant, "openStream", refused)
		}
		return nil, nil, refused
	}
	crashpoint.Hit(crashpoint.ServerOpenStreamAfter)
	o.auth.AddStream(row.Outbox)
	return &stream{service: o.service, peer: o.conn.peer, auth: o.auth, id: row.Outbox, incarnation: incarnation, maxInFlight: o.conn.maxBatches}, row, nil
}

// openingDecision is what is decided on a session's row, its grants and streams, before a stream is
// opened.
type openingDecision struct {
	stream  *ledger.Stream    // nil if it is new
	grant   *capability.Grant // of the ref; nil if there is none
	idle    *fault.Error      // why the ref can change nothing in the session; nil if it can
	idleRef string            // the ref that the stream counts as a read-only one of, if idle is set
	refused *fault.Error
}

// decideOpening decides whether a stream may be opened, and sets the opening's ReadOnlyRef.
//
// The streams of a ref that can change nothing are never swept, however old, until the session is
// deleted and forgotten; nor are sessions that do not exist. Otherwise a late copy of a refused
// create would be decided again, possibly under a better ref, in addition to its writer's
// replacement. And an outbox that has acknowledged the refusal would be told that the server is
// behind, while anyone could set the secret and incarnation of its stream.
func (o *sess) decideOpening(opening *session.StreamRequest, secret capability.Secret, access *session.Access, streams map[session.StreamKey]*ledger.Stream) (d openingDecision) {
	key := opening.Key
	d.grant, d.idleRef, d.idle = o.readOnlyRef(access)
	opening.ReadOnlyRef = d.idleRef
	_, d.stream, _ = session.MatchStream(key, opening.SecretHash, streams)
	switch first := streams[key]; {
	case d.stream != nil:
	case first != nil && first.SecretHash == secret.StreamSecret(key.Session).Hash():
		// An older client continues a newer client's outbox. With a stream of its own, ops that
		// the newer one has sent would count as new, and be done twice.
		d.refused = fault.WrongOutbox.With("the session knows this outbox by a secret that newer clients derive from the one that was shown: use the client that wrote to the outbox last")
	case first == nil && strings.Contains(key.Outbox, session.FallbackSep):
		d.refused = fault.BadArgument.With("a new outbox's id must not contain %s", session.FallbackSep)
	}
	return d
}

// readOnlyRef returns the grant of the acting ref, which may be dead, and, if that can change
// nothing in the session, the ref's id and the reason.
func (o *sess) readOnlyRef(at *session.Access) (grant *capability.Grant, ref string, why *fault.Error) {
	ref = o.auth.Ref
	if at.Row == nil || at.Row.Life == session.Absent {
		if ref = o.auth.Space; ref == "" {
			return nil, "", nil // only a space's ref can act on a session that does not exist
		}
		grant, why = capability.CheckLive(at.Grants[ref], o.auth.Outer, 0, at.Now, capability.Create, "")
	} else if grant, why = o.auth.Check(at, 0); why == nil && grant.Rights&^capability.Read == 0 {
		why = fault.MissingRight.With("the ref carries %s", grant.Rights)
	}
	switch {
	case why == nil:
		return grant, "", nil
	case grant == nil && o.auth.Space != "": // another ref made the session
		ref = o.auth.Space
	}
	return grant, ref, why
}

// events returns a page of the log.
func (o *sess) events(ctx context.Context, c *rpc.Call) {
	s, _ := c.Params()
	p := wire.Session_events_Params(s)
	limit := int(min(p.Limit(), maxEvents))
	if limit == 0 {
		limit = maxEvents
	}
	ctx, cancel := context.WithTimeout(ctx, o.service.cfg.ReadTimeout)
	defer cancel()
	as, hash, keys, refused := o.reading(p)
	if refused != nil {
		fail(c, refused)
		return
	}
	page, refused := o.readEvents(ctx, as, p.From(), hash, limit, keys)
	answer(c, refused, func(s capnp.Struct, _ *rpc.CapTable) error {
		r := wire.Session_events_Results(s)
		r.SetCursor(page.Row.Cursor)
		return codec.EncodeList(r.NewEvents, page.Events, codec.EncodeLogged)
	})
}

// readEvents reads for a reader at most limit events after from, or after the events that the ref does not
// show, of which keys are shown. hash is that of the event at from, zero if the caller does not name it.
func (o *sess) readEvents(ctx context.Context, as authority.Reader, from uint64, hash session.Hash, limit int, keys *session.Selection) (*session.LogPage, *fault.Error) {
	for {
		var hashesAt []uint64
		if hash != (session.Hash{}) {
			hashesAt = []uint64{from}
		}
		page, err := o.service.cfg.Store.ReadLog(ctx, o.auth.Session, from, maxEventsBytes, limit, o.auth.Refs(), hashesAt...)
		if err != nil {
			return nil, fault.From(o.conn.log, err, "read the log")
		}
		access := page.Access()
		grant, refused := o.checkAs(as, access, capability.Read, "events")
		if refused != nil {
			return nil, refused
		}
		if grant.VisibleFrom > 0 && from < grant.VisibleFrom-1 {
			from, hash = grant.VisibleFrom-1, session.Hash{} // the page read is discarded
			continue
		}
		if from <= access.Row.Cursor || from >= grant.VisibleFrom { // otherwise no event is visible yet
			refused = fanout.CheckCursor(access.Row, from)
		}
		if refused == nil && hash != (session.Hash{}) && !session.SameLog(page, grant, from, hash) {
			refused = fanout.LogDiverged(from)
		}
		if refused != nil {
			return nil, refused
		}
		o.service.cfg.Usage.Record(o.conn.peer, grant, "events", access.Row.Cursor)
		return keys.Page(page.Shown(grant)), nil
	}
}
