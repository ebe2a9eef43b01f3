// Ending turns that others have left open.

package client

import (
	"context"
	"encoding/json"
	"slices"

	"capnproto.org/go/capnp/v3"
	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client/internal/serverconn"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/rpc"
)

// AbortOptions select the open turns to end.
type AbortOptions struct {
	// DeadOnly skips turns of living refs, and of refs that the session's ref may not list
	// because they are not below it.
	DeadOnly bool
	// Progress, if not nil, is called with the number of turns done and of all.
	Progress func(done, total int)
}

// AbortedTurns counts the open turns by outcome.
type AbortedTurns struct {
	Aborted      int // ended as aborted
	AlreadyEnded int // ended by others before their batch
	Skipped      int // left open, since their refs are not dead
	Refused      int // could not be ended
}

// abortBatchSize is how many turns are ended at once: ending one reads and writes its message and
// parts.
const abortBatchSize = 50

// AbortTurns ends the session's open turns, or those of dead refs, as aborted: turns that no
// agent will end, which count against the bounds on open turns or keep a log from being trimmed.
// Their content stays. It takes the rights to read and to revoke. Turns begun meanwhile are not
// included. The error may also be the first refusal of a turn; the counts are then returned with
// it.
//
// It goes to the server directly, without the outbox, whose first queued op may be the begin that
// waits for it.
func (s *Session) AbortTurns(ctx context.Context, o AbortOptions) (a AbortedTurns, err error) {
	state, err := s.Snapshot(ctx)
	if err != nil {
		return a, err
	}
	open := slices.DeleteFunc(state.Turns, func(t Turn) bool { return !t.Open() })
	if o.DeadOnly && len(open) > 0 {
		dead, err := s.deadRefs(ctx) // after the turns, so that their refs are in the tree
		if err != nil {
			return a, err
		}
		all := len(open)
		open = slices.DeleteFunc(open, func(t Turn) bool { return !dead(t.Ref) })
		a.Skipped = all - len(open)
	}
	if o.Progress == nil {
		o.Progress = func(int, int) {}
	}
	own, total := newDirectStream(s), len(open)
	o.Progress(0, total)
	for done := 0; done < total && err == nil; {
		some := open[done:min(done+abortBatchSize, total)]
		if err = own.abortTurns(ctx, some, &a); err == nil {
			done += len(some)
			o.Progress(done, total)
		}
	}
	own.close(ctx)
	if err == nil {
		err = own.refusal
	}
	return a, err
}

// deadRefs returns a test of which refs are dead: of those that the ref may list, the ones not
// alive; an owner's ref lists all living refs, so any unlisted one is dead.
func (s *Session) deadRefs(ctx context.Context) (dead func(ref string) bool, err error) {
	refs, owner := map[string]bool{}, false
	for info, err := range s.Refs(ctx, "") {
		if err != nil {
			return nil, err
		}
		owner = owner || len(refs) == 0 && info.Owner // the first is the ref itself
		refs[info.Ref] = info.Dead != fault.None
	}
	return func(ref string) bool {
		dead, listed := refs[ref]
		return dead || !listed && owner && ref != "" // an older server sends no turn's ref
	}, nil
}

// directStream is a stream of this verb alone, under an outbox id that is not saved.
type directStream struct {
	session *Session
	outbox  string
	secret  capability.Secret
	seq     uint64 // last used, and answered
	refusal error  // the first
}

func newDirectStream(s *Session) *directStream {
	return &directStream{session: s, outbox: "obx_" + ulid.Make().String(), secret: capability.NewSecret()}
}

// abortTurns ends turns in one batch.
func (w *directStream) abortTurns(ctx context.Context, turns []Turn, a *AbortedTurns) error {
	b := &ledger.Batch{Session: w.session.id, BatchID: outbox.NewBatchID(), Incarnation: 1, AckedThrough: w.seq}
	for i := range turns {
		message, err := json.Marshal(turns[i].Message)
		if err != nil {
			return err
		}
		b.Ops = append(b.Ops, ledger.Intent{OpID: ulid.Make().String(), BatchID: b.BatchID, Seq: w.seq + uint64(i) + 1, Session: b.Session,
			Method: session.MethodFinalize, Args: []ledger.Arg{{Name: "message", JSON: message}, {Name: "status", JSON: json.RawMessage(`"aborted"`)}}})
	}
	var outcomes []ledger.Outcome
	err := w.call(ctx, func(ctx context.Context, stream *rpc.Ref) *rpc.Promise {
		return serverconn.CallApply(ctx, stream, b, nil)
	}, func(results capnp.Struct) (err error) {
		outcomes, err = serverconn.DecodeReply(results, b.Ops)
		return err
	})
	if err != nil {
		return err
	}
	w.seq += uint64(len(turns))
	for i := range outcomes {
		switch out := &outcomes[i]; {
		case out.Status == ledger.Applied:
			a.Aborted++
		case out.Reason == fault.TurnEnded:
			a.AlreadyEnded++
		case out.Reason == fault.TooLarge && len(turns) > 1: // too large together, perhaps
			if err := w.abortTurns(ctx, turns[i:i+1], a); err != nil {
				return err
			}
		default:
			a.Refused++
			if w.refusal == nil {
				why := out.Reason.With("the turn of message %s: %s", turns[i].Message, out.Message)
				why.Batch = b.BatchID
				w.refusal = why
			}
		}
	}
	return nil
}

// close lets the server drop the last answer. If that fails, one row stays.
func (w *directStream) close(ctx context.Context) {
	if w.seq > 0 {
		_ = w.call(ctx, func(ctx context.Context, stream *rpc.Ref) *rpc.Promise {
			return serverconn.CallAcknowledge(ctx, stream, w.seq)
		}, func(capnp.Struct) error { return nil })
	}
}

// call makes a call on the stream, which is opened with it: a repeat over another connection is
// recognized by its seqs.
func (w *directStream) call(ctx context.Context, ask func(context.Context, *rpc.Ref) *rpc.Promise, read func(capnp.Struct) error) error {
	var opened *rpc.Promise
	var stream *rpc.Ref
	release := func() {
		if opened != nil {
			stream.Release()
			opened.Release()
		}
	}
	defer release()
	return w.session.call(ctx, capability.Revoke, func(ctx context.Context, live *rpc.Ref) *rpc.Promise {
		release() // the previous attempt's
		opened = serverconn.CallOpenStream(ctx, live, w.outbox, w.secret.Reveal(), 1)
		stream = opened.Cap(0)
		return ask(ctx, stream)
	}, read)
}
