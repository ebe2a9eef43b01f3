package ledger_test

// A session of a dozen lines, to run the ledger's rules against: ops change
// one register, and their effects are counted by op id.

import (
	"fmt"
	"maps"
	"strconv"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

const (
	sessionID = "ses_01J0000000000000000000000A"
	outboxID  = "obx_01J0000000000000000000000B"
)

// id gives a ULID that a reader can tell apart: id(7).
func id(n uint64) string {
	var u ulid.ULID
	u[15], u[14], u[13], u[0] = byte(n), byte(n>>8), byte(n>>16), 1
	return u.String()
}

// fakeSession knows the methods add (n), show (echoes its arguments), fail
// (with a code), same (changes nothing), and broken (whose result is its argument,
// without its end if there is another).
type fakeSession struct {
	cursor  uint64
	sum     uint64
	effects map[string]int // op id → how often it took effect
	deny    map[string]fault.Code
	calls   []string // what Decide asked, in order
}

func newFake() *fakeSession {
	return &fakeSession{effects: map[string]int{}, deny: map[string]fault.Code{}}
}

func (s *fakeSession) clone() *fakeSession {
	c := *s
	c.effects, c.deny, c.calls = maps.Clone(s.effects), maps.Clone(s.deny), nil
	return &c
}

func (s *fakeSession) Cursor() uint64 { return s.cursor }

func (s *fakeSession) Authorize(op *ledger.Intent) *fault.Error {
	s.calls = append(s.calls, "authorize "+op.Method)
	if c, ok := s.deny[op.Method]; ok {
		return c.With("%s is not for you", op.Method)
	}
	return nil
}

func (s *fakeSession) Apply(op *ledger.Intent) (uint64, []byte, *fault.Error) {
	s.calls = append(s.calls, "apply "+op.Method)
	args := map[string]string{}
	for _, a := range op.Args {
		args[a.Name] = string(a.JSON)
	}
	switch op.Method {
	case "add":
		n, err := strconv.ParseUint(args["n"], 10, 32)
		if err != nil {
			return 0, nil, fault.BadArgument.With("n is not a number")
		}
		s.cursor++
		s.sum += n
		s.effects[op.OpID]++
		return s.cursor, fmt.Appendf(nil, `{"cursor":%d,"sum":%d}`, s.cursor, s.sum), nil
	case "show":
		s.cursor++
		s.effects[op.OpID]++
		return s.cursor, fmt.Appendf(nil, `{"cursor":%d,"got":%s}`, s.cursor, args["v"]), nil
	case "same":
		return s.cursor, fmt.Appendf(nil, `{"cursor":%d,"unchanged":true}`, s.cursor), nil
	case "fail":
		code, _ := fault.ParseCode(args["code"][1 : len(args["code"])-1])
		return 0, nil, code.With("as told").Pos(17)
	case "broken":
		return s.cursor, []byte(args["v"][:len(args["v"])-len(args["cut"])]), nil
	}
	return 0, nil, fault.UnknownMethod.With("there is no method %s", op.Method)
}

type fakeSavepoint struct {
	cursor, sum uint64
	effects     map[string]int
}

func (s *fakeSession) Savepoint() any { return fakeSavepoint{s.cursor, s.sum, maps.Clone(s.effects)} }

func (s *fakeSession) RollbackTo(mark any) {
	m := mark.(fakeSavepoint)
	s.cursor, s.sum, s.effects = m.cursor, m.sum, m.effects
}

// op makes an intent; batch fills in what is the batch's.
func op(opID uint64, method string, args ...ledger.Arg) ledger.Intent {
	return ledger.Intent{OpID: id(opID), Method: method, Args: args}
}

func val(name, json string) ledger.Arg { return ledger.Arg{Name: name, JSON: []byte(json)} }

func ref(name string, opID uint64, path string) ledger.Arg {
	return ledger.Arg{Name: name, Ref: &ledger.Ref{Op: id(opID), Path: path}}
}

func batch(batchID, firstSeq uint64, ops ...ledger.Intent) *ledger.Batch {
	b := &ledger.Batch{Session: sessionID, Outbox: outboxID, Incarnation: 1, BatchID: id(batchID), Ops: ops}
	return seal(b, firstSeq)
}

func atomic(b *ledger.Batch) *ledger.Batch {
	b.Atomic = true
	return seal(b, b.Ops[0].Seq)
}

func seal(b *ledger.Batch, firstSeq uint64) *ledger.Batch {
	for i := range b.Ops {
		b.Ops[i].Seq, b.Ops[i].BatchID, b.Ops[i].Session, b.Ops[i].Atomic = firstSeq+uint64(i), b.BatchID, b.Session, b.Atomic
	}
	return b
}

// fakeServer is one stream on one session, doing what a commit does.
type fakeServer struct {
	*fakeSession
	stream  *ledger.Stream
	records []*ledger.Record // as a store has them: through their text and back
	lim     ledger.Limits
}

func newServer() *fakeServer {
	return &fakeServer{fakeSession: newFake(), lim: ledger.DefaultLimits(),
		stream: &ledger.Stream{Session: sessionID, Outbox: outboxID, Incarnation: 1}}
}

func (s *fakeServer) clone() *fakeServer {
	st := *s.stream
	return &fakeServer{fakeSession: s.fakeSession.clone(), stream: &st, records: append([]*ledger.Record(nil), s.records...), lim: s.lim}
}

// ack is the answer to one batch: one outcome an op, in order, and their
// counts, which add up to the number of ops.
type ack struct {
	Cursor     uint64 // the session's, after the batch
	Applied    uint32 // new, and applied
	Duplicates uint32 // recorded before, whatever their outcome
	Rejected   uint32 // new, recorded, and not applied
	Repeated   bool   // the whole batch was a duplicate: every outcome is
	Outcomes   []ledger.Outcome
}

// newAck counts outcomes. repeated says that they came from Admit, not Decide.
func newAck(cursor uint64, outcomes []ledger.Outcome, repeated bool) ack {
	a := ack{Cursor: cursor, Repeated: repeated, Outcomes: outcomes}
	for i := range outcomes {
		switch {
		case repeated:
			a.Duplicates++
		case outcomes[i].Status == ledger.Applied:
			a.Applied++
		default:
			a.Rejected++
		}
	}
	return a
}

// handle is the corridor from ledger to commit.
func (s *fakeServer) handle(b *ledger.Batch) (ack, *fault.Error) {
	h := ledger.NewHistory(s.records)
	outcomes, err := ledger.Admit(s.stream, b, h.Record)
	if err != nil {
		return ack{}, err
	}
	repeated := outcomes != nil
	if !repeated {
		rec, err := ledger.Decide(s.stream, b, h.Outcome, s.lim, s)
		if err != nil {
			return ack{}, err
		}
		h.Add(rec)
		stored, derr := ledger.UnmarshalRecord(rec.Marshal())
		if derr != nil {
			panic(derr)
		}
		s.records = append(s.records, stored)
		outcomes = rec.Outcomes
	}
	if err := s.acknowledge(h, b.AckedThrough); err != nil {
		return ack{}, err
	}
	return newAck(s.cursor, outcomes, repeated), nil
}

func (s *fakeServer) acknowledge(h *ledger.History, through uint64) *fault.Error {
	raised, err := ledger.AckThrough(s.stream, through, h.Record)
	if err != nil || !raised {
		return err
	}
	var kept []*ledger.Record
	for _, r := range s.records {
		if r.LastSeq() > s.stream.AckedThrough {
			kept = append(kept, r)
		}
	}
	s.records = kept
	h.Prune(s.stream.AckedThrough)
	return nil
}
