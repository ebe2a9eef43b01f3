// The audit: the calls and ops under each ref. A session's audit may be read under an owner's
// ref, a space's under its root ref.

package client

import (
	"context"
	"fmt"
	"iter"
	"time"

	"capnproto.org/go/capnp/v3"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnp/wire/methods"
	"github.com/mooring-rpc/mooring/client/internal/calls"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/rpc"
)

// AuditPage is a part of an audit. The rows are as the server sends them; capability.Chain
// verifies that they are the ones written.
type AuditPage struct {
	Rows []capability.AuditRow // by Seq
	Seq  uint64                // of the last row in the audit
	Head Hash                  // that row's hash
}

// Follows checks that the page continues the audit from which a row was read: after is that row's
// number, and its hash or zero if unknown. The error is ServerBehind if the page is of another
// audit: one that ends before the row, or continues from a different row.
func (p *AuditPage) Follows(after Position) error {
	known := after.Hash != Hash{}
	switch {
	case p.Seq < after.Cursor:
		return fault.ServerBehind.With("the audit ends at row %d: the server was restored to before row %d", p.Seq, after.Cursor).Pos(p.Seq)
	case !known:
	case p.Seq == after.Cursor && p.Head != after.Hash,
		len(p.Rows) > 0 && p.Rows[0].Hash != capability.HashAuditRow(after.Hash, &p.Rows[0]):
		return fault.ServerBehind.With("the audit does not go on from the row %d that was seen: the server was restored to before it, or rows were changed by hand (mooring audit verify)", after.Cursor)
	}
	return nil
}

// Audit returns up to limit rows (0: the server's maximum) of the session's audit after a row.
// The error is NotAnOwner for a ref that is not an owner's.
func (s *Session) Audit(ctx context.Context, after uint64, limit uint32) (AuditPage, error) {
	return s.client.audit(ctx, s.refFor(ctx, capability.SessionRights), methods.SessionAudit, after, limit)
}

// Audit is Session.Audit for a space. The error is MissingRight for any ref but its root ref.
func (sp *Space) Audit(ctx context.Context, after uint64, limit uint32) (AuditPage, error) {
	return sp.client.audit(ctx, sp.access(), methods.SpaceAudit, after, limit)
}

// AuditOptions are the options of FollowAudit.
type AuditOptions struct {
	After    uint64        // number of the last row read
	Hash     Hash          // its hash; zero: not compared
	Interval time.Duration // polling interval; 0 is a second
	Trouble  func(error)   // called with each error that is retried; may be nil
}

// FollowAudit yields the rows of the session's audit after a row, then new ones, over
// disconnects, until ctx ends or a request is refused. The error is ServerBehind if the server's
// audit is another than that of the rows it sent before (AuditPage.Follows), as after a restore
// from a backup.
func (s *Session) FollowAudit(ctx context.Context, o AuditOptions) iter.Seq2[capability.AuditRow, error] {
	return followAudit(ctx, o, s.Audit)
}

// FollowAudit is Session.FollowAudit for a space.
func (sp *Space) FollowAudit(ctx context.Context, o AuditOptions) iter.Seq2[capability.AuditRow, error] {
	return followAudit(ctx, o, sp.Audit)
}

func followAudit(ctx context.Context, o AuditOptions, read func(context.Context, uint64, uint32) (AuditPage, error)) iter.Seq2[capability.AuditRow, error] {
	if o.Interval <= 0 {
		o.Interval = time.Second
	}
	return func(yield func(capability.AuditRow, error) bool) {
		for at := (Position{o.After, o.Hash}); ; {
			page, err := read(ctx, at.Cursor, 0)
			if err == nil {
				err = page.Follows(at)
			}
			switch {
			case err == nil:
			case ctx.Err() == nil && fault.CodeOf(err).Transient():
				if o.Trouble != nil {
					o.Trouble(err)
				}
			default:
				yield(capability.AuditRow{}, err)
				return
			}
			for _, row := range page.Rows {
				if !yield(row, nil) {
					return
				}
				at = Position{row.Seq, row.Hash}
			}
			if len(page.Rows) > 0 && at.Cursor < page.Seq {
				continue
			}
			timer := time.NewTimer(o.Interval)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				yield(capability.AuditRow{}, fault.Canceled.Because(ctx.Err(), "%v", ctx.Err()))
				return
			}
		}
	}
}

func (c *Client) audit(ctx context.Context, ref access, method methods.Method, after uint64, limit uint32) (page AuditPage, err error) {
	err = c.call(ctx, ref, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		return callAudit(ctx, live, method, after, limit)
	}, func(results capnp.Struct) error {
		w, err := wire.Session_audit_Results(results).Page() // Space.audit's are laid out alike
		if err != nil {
			return err
		}
		page, err = decodeAuditPage(ref.Target(), w)
		return err
	})
	return page, err
}

// callAudit is Session.audit or Space.audit, whose parameters are laid out alike.
func callAudit(ctx context.Context, of *rpc.Ref, method methods.Method, after uint64, limit uint32) *rpc.Promise {
	return calls.Make(ctx, of, method, func(s capnp.Struct, _ *rpc.CapTable) error {
		p := wire.Session_audit_Params(s)
		p.SetAfter(after)
		p.SetLimit(limit)
		return nil
	})
}

func decodeAuditPage(target string, w wire.AuditPage) (page AuditPage, err error) {
	list, err := w.Rows()
	if err != nil {
		return page, err
	}
	head, err := w.Head()
	if err != nil {
		return page, err
	}
	page.Seq = w.Seq()
	copy(page.Head[:], head)
	page.Rows = make([]capability.AuditRow, list.Len())
	for i := range page.Rows {
		w, t := list.At(i), calls.Texts{}
		page.Rows[i] = capability.AuditRow{
			Target: target, Seq: w.Seq(), At: w.At(), Act: capability.AuditAct(w.Act()), Ref: t.Get(w.Ref()), Actor: t.Get(w.Actor()),
			Subject: t.Get(w.Subject()), Reason: fault.Code(w.Reason()), Op: t.Get(w.Op()), Cursor: w.Cursor(), Count: w.Count(), Peer: t.Get(w.Peer()),
		}
		hash, err := w.Hash()
		if err == nil {
			err = t.Err
		}
		if err != nil {
			return page, fmt.Errorf("decode audit: %w", err)
		}
		copy(page.Rows[i].Hash[:], hash)
	}
	return page, nil
}
