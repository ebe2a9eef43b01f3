package machine

// What drives a machine by a transcript.

import (
	"cmp"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox/internal/intent"
)

// script drives a machine. Sessions are letters; batch A3 of session A has seq 3
// (and more with +N). Words:
//
//	found A | waiting A (committed just now) | sequenced A1 [hold N] [via R] | looked A [head] [newer] [more] [blocked B1 C1]
//	loaded A A1 [via R] | recovered A A1 [only R] (by its row)
//	loaded A A1 A2 [newer] [more] [blocked B1 C1] | recovered A A1 A2 [drop A2] | opened A [last N]
//	ok A1 | refused A1 | err A CODE [at N] | fail A CODE (opening) | broken A
//	stale A CODE, late A CODE (err and fail, of the opening before)
//	sequenced A1 pending again (its row says so) | sequenced A1 routeless on (the way cannot be looked up)
//	routed A [routeless] | lost A1 (its way) | through A1 R (is its way now)
//	given back A [known] (after refuse; known: outcomes are stored)
//	stored A1 | unstorable A1 | finished B1 | drop A1 | heads dropped | raised | settled A | wake | at DURATION
type script struct {
	m     *Machine
	now   time.Time
	begin time.Time
	pos   map[string]*Entry
}

func (s *script) entry(name string, args ...string) *Entry {
	if e := s.pos[name]; e != nil {
		return e
	}
	session := name[:1]
	first, _ := strconv.ParseUint(name[1:], 10, 64)
	e := &Entry{Num: int64(len(s.pos) + 1), ID: name, Session: session, FirstSeq: first, SeqCount: 1, Bytes: 10, MarkedInFlight: true,
		Route: Route{Ref: "r" + session, Host: "h"}, Body: &intent.Batch{Ops: []intent.Op{{ID: name, Method: "put"}}}}
	for i := 0; i+1 < len(args); i++ {
		switch args[i] {
		case "hold":
			e.PinSeq, _ = strconv.ParseUint(args[i+1], 10, 64)
		case "via":
			e.Route.Ref = args[i+1]
		case "only":
			e.Via = args[i+1]
		case "space":
			e.Route.Space, e.Body.Ops[0].Method = args[i+1], intent.MethodCreate
		case "routeless":
			e.Route, e.RouteErr, e.RetryRoute = Route{}, fault.Unavailable.With("on request"), true
		case "pending":
			e.MarkedInFlight = false
		case "bytes":
			e.Bytes, _ = strconv.Atoi(args[i+1])
		}
	}
	s.pos[name] = e
	return e
}

func (s *script) line(line string) string {
	w := strings.Fields(line)
	m, now := s.m, s.now
	session := ""
	if len(w) > 1 {
		session = w[1][:1]
	}
	conn := 0
	if st := m.Streams[session]; st != nil {
		conn = st.connID
	}
	num := func(word string) (n uint64) {
		for i := range w[:len(w)-1] {
			if w[i] == word {
				n, _ = strconv.ParseUint(w[i+1], 10, 64)
			}
		}
		return n
	}
	after := func(word string) string {
		for i := range w[:len(w)-1] {
			if w[i] == word {
				return w[i+1]
			}
		}
		return ""
	}
	blockedOn := func() []string {
		_, names, _ := strings.Cut(line, " blocked ")
		return strings.Fields(names)
	}
	has := func(word string) bool { return strings.Contains(" "+line+" ", " "+word+" ") }
	batches := func() (es []*Entry) {
		for i, name := range w[2:] {
			if len(name) > 1 && name[1] >= '0' && name[1] <= '9' && name[:1] == session && after("drop") != name {
				es = append(es, s.entry(name, w[3+i:]...))
			}
		}
		return es
	}
	code := func(name string) error {
		c, ok := fault.ParseCode(name)
		if !ok {
			return fmt.Errorf("%s", name)
		}
		return c.With("on request").Pos(num("at"))
	}
	switch w[0] {
	case "found":
		m.BacklogFound(w[1:], now)
	case "sequenced":
		m.Sequenced(s.entry(w[1], w[2:]...), now)
	case "waiting":
		head := s.entry(session+"0", w[2:]...)
		delete(s.pos, session+"0")
		m.Waiting(head, now)
	case "looked", "loaded":
		var head *Entry
		if has("head") || has("newer") {
			head = s.entry(session+"0", w[2:]...)
			delete(s.pos, session+"0")
		}
		if has("newer") {
			head.Damaged, head.RouteErr = true, fault.Incompatible.With("on request")
		}
		m.Loaded(session, batches(), head, has("more") || head != nil, blockedOn(), Route{}, now)
	case "recovered":
		var drops map[int64]*fault.Error
		es := batches()
		if d := after("drop"); d != "" {
			es = append(es, s.entry(d))
			drops = map[int64]*fault.Error{s.entry(d).Num: nil}
		}
		m.Recovered(session, es, Route{}, drops, now)
	case "opened":
		m.StreamOpened(session, conn, num("last"), nil, now)
	case "fail":
		m.StreamOpened(session, conn, 0, code(w[2]), now)
	case "ok", "refused", "nonsense":
		status := map[string]ledger.Status{"ok": ledger.Applied, "refused": ledger.Rejected}[w[0]]
		id := w[1]
		if w[0] == "nonsense" {
			id = "?"
		}
		m.Replied(session, conn, []ledger.Outcome{{OpID: id, Status: status}}, nil, now)
	case "late":
		m.StreamOpened(session, conn-1, 0, code(w[2]), now)
	case "err":
		m.Replied(session, conn, nil, code(w[2]), now)
	case "stale":
		m.Replied(session, conn-1, nil, code(w[2]), now)
	case "broken":
		m.LinkBroken(session, conn, now)
	case "stored":
		m.OutcomesStored(session, s.entry(w[1]).LastSeq(), now)
	case "unstorable":
		m.StoreFailed(session, fault.Internal.With("on request"), now)
	case "finished":
		m.Finished(w[1], now)
	case "drop":
		m.DropRequested(session, s.entry(w[1]).Num, now)
	case "heads":
		m.UnsequencedDropped(now)
	case "raised":
		m.IncarnationRaised(now)
	case "settled":
		var es []*Entry
		for _, name := range w[2:] {
			e := *s.entry(name)
			e.Body = &intent.Batch{Ops: []intent.Op{{ID: name, Method: "put", Void: true}}}
			s.pos[name] = &e
			es = append(es, &e)
		}
		m.DropsResolved(session, conn, es, now)
	case "given":
		var known *fault.Error
		if session = w[2]; has("known") {
			known = fault.Revoked.With("on request")
		} else {
			maps.DeleteFunc(s.pos, func(name string, _ *Entry) bool { return name[:1] == session })
		}
		m.StreamRefused(session, known)
		if known == nil {
			m.Loaded(session, nil, nil, has("more"), nil, Route{}, now)
		}
	case "wake":
		m.Wake(now)
	case "routed":
		for _, e := range m.Streams[session].Queue {
			if !has("routeless") {
				e.Route, e.RouteErr, e.RetryRoute = Route{Ref: "r" + session, Host: "h"}, nil, false
			}
		}
		m.Routed(session, now)
	case "through":
		s.entry(w[1]).Route.Ref = w[2]
	case "lost":
		e := s.entry(w[1])
		e.Route, e.RouteErr = Route{}, fault.UnknownRef.With("on request")
	case "resume":
		m.Resume(session, now)
	case "at":
		d, err := time.ParseDuration(w[1])
		if err != nil {
			return err.Error()
		}
		s.now = s.begin.Add(d)
		m.Tick(s.now)
	default:
		return "unknown word " + w[0]
	}
	return s.drain()
}

// drain tells what the machine asked for.
func (s *script) drain() string {
	var lines []string
	for _, a := range s.m.Actions {
		var l string
		switch a.Kind {
		case ActPeek:
			l = "look " + a.Session
		case ActLoad:
			l = fmt.Sprintf("load %s %d", a.Session, a.Batches)
		case ActFindRoute:
			l = "find"
			for _, e := range a.Entries {
				l += " " + e.ID
			}
		case ActOpen:
			l = fmt.Sprintf("open %s %s", a.Session, a.Route.Ref)
			if a.Route.Space != "" {
				l += " in " + a.Route.Space
			}
			if a.AwaitLastSeq {
				l += " settle"
			}
		case ActClose:
			l = "close " + a.Session
		case ActSend:
			l = fmt.Sprintf("send %s acked %d", a.Entry.ID, a.Through)
			if a.Entry.Body.Ops[0].Void {
				l += " void"
			}
		case ActAck:
			l = fmt.Sprintf("ack %s %d", a.Session, a.Through)
		case ActFinish:
			l = "finish " + a.Entry.ID
		case ActRecordAttempt:
			l = "note"
			for _, e := range a.Entries {
				l += fmt.Sprintf(" %s/%d", e.ID, e.Attempts)
			}
			if !a.At.IsZero() {
				l += fmt.Sprintf(" retry %s", a.At.Sub(s.begin))
			}
		case ActMarkInFlight:
			l = "mark " + a.Entry.ID
		case ActSetStopped:
			l = "stop " + a.Session
			if a.Err != nil {
				l += " " + a.Err.Code.String()
			} else {
				l += " no more"
			}
		case ActRaiseIncarnation:
			l = "raise"
		case ActResolveDrops:
			l = fmt.Sprintf("settle %s last %d:", a.Session, a.Through)
			for _, e := range a.Entries {
				l += " " + e.ID
			}
		case ActEndRefused:
			l = fmt.Sprintf("refuse %s %s %s", a.Session, a.Route.Ref, a.Err.Code)
		case ActFenced:
			l = "fenced"
		}
		lines = append(lines, l)
	}
	s.m.Actions = nil
	return strings.Join(lines, "; ")
}

func newScript(win Window) *script {
	win = Window{cmp.Or(win.Batches, 64), cmp.Or(win.Bytes, 4<<20), cmp.Or(win.Streams, 128)}
	begin := time.Unix(1_000_000, 0)
	return &script{begin: begin, now: begin, pos: make(map[string]*Entry),
		m: New(win, func() backoff.BackOff { return &doubling{} })}
}

// doubling waits 1s, 2s, 4s … without chance.
type doubling struct{ n time.Duration }

func (d *doubling) Reset() { d.n = 0 }
func (d *doubling) NextBackOff() time.Duration {
	d.n = max(2*d.n, time.Second)
	return d.n
}

// checkInvariants checks what holds at all times.
func (s *script) checkInvariants(t *testing.T) {
	t.Helper()
	if wrong := s.m.BrokenInvariant(); wrong != "" {
		t.Fatal(wrong)
	}
}
