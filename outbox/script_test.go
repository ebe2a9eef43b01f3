package outbox

// What drives a machine by a transcript.

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// script drives a machine. Sessions are letters; batch A3 of session A has seq 3
// (and more with +N). Words:
//
//	found A | sequenced A1 [hold N] [via R] | looked A [head] [newer] [more] [owed B1 C1]
//	loaded A A1 [via R] | recovered A A1 [only R] (by its row)
//	loaded A A1 A2 [newer] [more] [owed B1 C1] | recovered A A1 A2 [drop A2] | opened A [last N]
//	ok A1 | refused A1 | err A CODE [at N] | fail A CODE (opening) | broken A
//	stale A CODE, late A CODE (err and fail, of the opening before)
//	sequenced A1 pending again (its row says so) | sequenced A1 astray on (the way cannot be looked up)
//	routed A [astray] | lost A1 (its way) | through A1 R (is its way now)
//	given back A [known] (after refuse; known: outcomes are stored)
//	stored A1 | unstorable A1 | finished B1 | drop A1 | heads dropped | raised | settled A | wake | at DURATION
type script struct {
	m     *machine
	now   time.Time
	begin time.Time
	pos   map[string]*entry
}

func (s *script) entry(name string, args ...string) *entry {
	if e := s.pos[name]; e != nil {
		return e
	}
	session := name[:1]
	first, _ := strconv.ParseUint(name[1:], 10, 64)
	e := &entry{num: int64(len(s.pos) + 1), id: name, session: session, firstSeq: first, seqCount: 1, bytes: 10, markedInFlight: true,
		route: route{ref: "r" + session, host: "h"}, body: &body{ops: []opRow{{id: name, method: "put"}}}}
	for i := 0; i+1 < len(args); i++ {
		switch args[i] {
		case "hold":
			e.pinSeq, _ = strconv.ParseUint(args[i+1], 10, 64)
		case "via":
			e.route.ref = args[i+1]
		case "only":
			e.via = args[i+1]
		case "space":
			e.route.space, e.body.ops[0].method = args[i+1], methodCreate
		case "astray":
			e.route, e.routeErr, e.retryRoute = route{}, fault.Unavailable.With("on request"), true
		case "pending":
			e.markedInFlight = false
		case "bytes":
			e.bytes, _ = strconv.Atoi(args[i+1])
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
	if st := m.streams[session]; st != nil {
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
		_, names, _ := strings.Cut(line, " owed ")
		return strings.Fields(names)
	}
	has := func(word string) bool { return strings.Contains(" "+line+" ", " "+word+" ") }
	batches := func() (es []*entry) {
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
		m.backlogFound(w[1:], now)
	case "sequenced":
		m.sequenced(s.entry(w[1], w[2:]...), now)
	case "looked", "loaded":
		var head *entry
		if has("head") || has("newer") {
			head = s.entry(session+"0", w[2:]...)
			delete(s.pos, session+"0")
		}
		if has("newer") {
			head.damaged, head.routeErr = true, fault.Incompatible.With("on request")
		}
		m.loaded(session, batches(), head, has("more") || head != nil, blockedOn(), route{}, now)
	case "recovered":
		var drops map[int64]*fault.Error
		es := batches()
		if d := after("drop"); d != "" {
			es = append(es, s.entry(d))
			drops = map[int64]*fault.Error{s.entry(d).num: nil}
		}
		m.recovered(session, es, route{}, drops, now)
	case "opened":
		m.streamOpened(session, conn, num("last"), nil, now)
	case "fail":
		m.streamOpened(session, conn, 0, code(w[2]), now)
	case "ok", "refused", "nonsense":
		status := map[string]ledger.Status{"ok": ledger.Applied, "refused": ledger.Rejected}[w[0]]
		id := w[1]
		if w[0] == "nonsense" {
			id = "?"
		}
		m.replied(session, conn, Reply{Outcomes: []ledger.Outcome{{OpID: id, Status: status}}}, now)
	case "late":
		m.streamOpened(session, conn-1, 0, code(w[2]), now)
	case "err":
		m.replied(session, conn, Reply{Err: code(w[2])}, now)
	case "stale":
		m.replied(session, conn-1, Reply{Err: code(w[2])}, now)
	case "broken":
		m.linkBroken(session, conn, now)
	case "stored":
		m.outcomesStored(session, s.entry(w[1]).lastSeq(), now)
	case "unstorable":
		m.storeFailed(session, fault.Internal.With("on request"), now)
	case "finished":
		m.finished(w[1], now)
	case "drop":
		m.dropRequested(session, s.entry(w[1]).num, now)
	case "heads":
		m.unsequencedDropped(now)
	case "raised":
		m.incarnationRaised(now)
	case "settled":
		var es []*entry
		for _, name := range w[2:] {
			e := *s.entry(name)
			e.body = &body{ops: []opRow{{id: name, method: "put", void: true}}}
			s.pos[name] = &e
			es = append(es, &e)
		}
		m.dropsResolved(session, conn, es, now)
	case "given":
		var known *fault.Error
		if session = w[2]; has("known") {
			known = fault.Revoked.With("on request")
		} else {
			maps.DeleteFunc(s.pos, func(name string, _ *entry) bool { return name[:1] == session })
		}
		m.streamRefused(session, known)
		if known == nil {
			m.loaded(session, nil, nil, has("more"), nil, route{}, now)
		}
	case "wake":
		m.wake(now)
	case "routed":
		for _, e := range m.streams[session].queue {
			if !has("astray") {
				e.route, e.routeErr, e.retryRoute = route{ref: "r" + session, host: "h"}, nil, false
			}
		}
		m.routed(session, now)
	case "through":
		s.entry(w[1]).route.ref = w[2]
	case "lost":
		e := s.entry(w[1])
		e.route, e.routeErr = route{}, fault.UnknownRef.With("on request")
	case "resume":
		m.resume(session, now)
	case "at":
		d, err := time.ParseDuration(w[1])
		if err != nil {
			return err.Error()
		}
		s.now = s.begin.Add(d)
		m.tick(s.now)
	default:
		return "unknown word " + w[0]
	}
	return s.drain()
}

// drain tells what the machine asked for.
func (s *script) drain() string {
	var lines []string
	for _, a := range s.m.actions {
		var l string
		switch a.kind {
		case actPeek:
			l = "look " + a.session
		case actLoad:
			l = fmt.Sprintf("load %s %d", a.session, a.batches)
		case actFindRoute:
			l = "find"
			for _, e := range a.entries {
				l += " " + e.id
			}
		case actOpen:
			l = fmt.Sprintf("open %s %s", a.session, a.route.ref)
			if a.route.space != "" {
				l += " in " + a.route.space
			}
			if a.awaitLastSeq {
				l += " settle"
			}
		case actClose:
			l = "close " + a.session
		case actSend:
			l = fmt.Sprintf("send %s acked %d", a.entry.id, a.through)
			if a.entry.body.ops[0].void {
				l += " void"
			}
		case actAck:
			l = fmt.Sprintf("ack %s %d", a.session, a.through)
		case actFinish:
			l = "finish " + a.entry.id
		case actRecordAttempt:
			l = "note"
			for _, e := range a.entries {
				l += fmt.Sprintf(" %s/%d", e.id, e.attempts)
			}
			if !a.at.IsZero() {
				l += fmt.Sprintf(" retry %s", a.at.Sub(s.begin))
			}
		case actMarkInFlight:
			l = "mark " + a.entry.id
		case actSetStopped:
			l = "stop " + a.session
			if a.err != nil {
				l += " " + a.err.Code.String()
			} else {
				l += " no more"
			}
		case actRaiseIncarnation:
			l = "raise"
		case actResolveDrops:
			l = fmt.Sprintf("settle %s last %d:", a.session, a.through)
			for _, e := range a.entries {
				l += " " + e.id
			}
		case actEndRefused:
			l = fmt.Sprintf("refuse %s %s %s", a.session, a.route.ref, a.err.Code)
		case actFenced:
			l = "fenced"
		}
		lines = append(lines, l)
	}
	s.m.actions = nil
	return strings.Join(lines, "; ")
}

func newScript(win Window) *script {
	cfg := Config{Window: win}.withDefaults(time.Second)
	begin := time.Unix(1_000_000, 0)
	return &script{begin: begin, now: begin, pos: make(map[string]*entry),
		m: newMachine(cfg.Window, func() backoff.BackOff { return &doubling{} })}
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
	if wrong := s.m.brokenInvariant(); wrong != "" {
		t.Fatal(wrong)
	}
}

// brokenInvariant says what does not hold that holds at all times.
func (m *machine) brokenInvariant() string {
	places := 0
	for id, st := range m.streams {
		if st.phase != phaseClosed {
			places++
		}
		for _, batch := range st.blockedOn {
			if !m.blockedSessions[batch][id] {
				return fmt.Sprintf("%s waits for %s, which nobody knows", id, batch)
			}
		}
		bytes, holds := 0, 0
		for i, e := range st.queue {
			bytes += e.bytes
			if e.pinSeq > 0 {
				holds++
			}
			if i > 0 && e.firstSeq <= st.queue[i-1].lastSeq() {
				return fmt.Sprintf("%s: seq %d follows %d", id, e.firstSeq, st.queue[i-1].lastSeq())
			}
		}
		if bytes != st.queuedBytes || holds != st.pins || st.inFlight > len(st.queue) || st.phase == phaseClosed && st.inFlight > 0 || st.ackedThrough > st.storedThrough {
			return fmt.Sprintf("%s: %+v", id, *st)
		}
	}
	for batch, sessions := range m.blockedSessions {
		for id := range sessions {
			if st := m.streams[id]; st == nil || !slices.Contains(st.blockedOn, batch) {
				return fmt.Sprintf("%s does not wait for %s", id, batch)
			}
		}
	}
	if places != m.openStreams {
		return fmt.Sprintf("%d places are taken, %d counted", places, m.openStreams)
	}
	return ""
}
