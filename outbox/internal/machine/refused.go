package machine

// Streams that a server does not create. Under a ref that can change nothing a server creates a
// few streams, and records denied ops in them; beyond that it refuses openStream with the error
// that it would have recorded. The ops finish here with that error, their seqs are allocated
// again, and the ops that wait for them go on as if the server had recorded it.
//
// An existing stream is never refused so, and none is removed that would be refused then: so
// nothing of this one has been applied. Nor will batches in flight be, if they go under the
// same ref, since its defect is permanent. For batches that may have been sent under another
// ref nothing is certain: then the stream stops instead.

import (
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
	"slices"
)

// authority is the pair of ref ids under which a stream is opened.
type authority struct{ ref, space string }

func (r Route) authority() authority { return authority{r.Ref, r.Space} }

// noteSent records that the batch is sent under g.
func (e *Entry) noteSent(g authority) {
	e.authorityUnknown = e.authorityUnknown || e.sentAuthority != (authority{}) && e.sentAuthority != g
	e.sentAuthority = g
}

// sentOnlyUnder reports whether the batch was sent under no authority other than g.
func (e *Entry) sentOnlyUnder(g authority) bool {
	if e.Via != "" && (e.Via == g.ref || e.Via == g.space && intent.CreatesSession(e.Body.Ops[0].Method)) {
		return true // it goes through no other ref, whichever process sends
	}
	return !e.authorityUnknown && (e.sentAuthority == (authority{}) || e.sentAuthority == g)
}

// isRefused reports whether an answer means that the server does not create the stream, and
// that nothing of it was or will be applied.
func (s *Stream) isRefused(why *fault.Error) bool {
	if !GrantsNothing(why.Code) || s.answered || s.StoredThrough > 0 || s.unstored > 0 {
		return false
	}
	return !slices.ContainsFunc(s.Queue, func(e *Entry) bool { return !e.sentOnlyUnder(s.OpenRoute.authority()) })
}

// StreamRefused reports that ActEndRefused was done; loaded follows. Or, if known is not nil,
// that outcomes of the session are stored here which the server has lost: then known is why the
// stream stops.
func (m *Machine) StreamRefused(session string, known *fault.Error) {
	s := m.Streams[session]
	if s == nil || s.refusal == nil {
		return
	}
	s.refusal = nil
	if known != nil {
		s.Loading = false
		s.Stopped = known
		m.emit(Action{Kind: ActSetStopped, Session: session, Err: known})
		return
	}
	m.unblock(s)
	s.Queue, s.queuedBytes, s.pins, s.Unsequenced, s.Drops, s.dropsOnArrival = nil, 0, 0, nil, nil, nil
	// Batches in flight under this ref must not reach a stream that another ref may create.
	if s.needsNewIncarnation = true; !m.raisingIncarnation {
		m.raisingIncarnation = true
		m.emit(Action{Kind: ActRaiseIncarnation})
	}
}

// Refusal is the answer that refused an opening.
type Refusal struct {
	Route Route // the route of the opening
	Err   *fault.Error
}

// GrantsNothing reports whether a server answers with c to a ref that can change nothing, so
// that it creates no stream.
func GrantsNothing(c fault.Code) bool {
	switch c {
	case fault.Revoked, fault.StaleEpoch, fault.Expired, fault.MissingRight, fault.SessionDeleted:
		return true
	}
	return false
}
