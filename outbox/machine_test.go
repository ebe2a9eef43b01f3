package outbox

// The machine, by transcripts: what happened, and under it what it asks for.

import (
	"fmt"
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
//	found A | sequenced A1 [hold N] [via R] | looked A [head] [more] [owed B1]
//	loaded A A1 A2 [more] | recovered A A1 A2 [drop A2] | opened A [last N]
//	ok A1 | refused A1 | err A CODE [at N] | fail A CODE (opening) | broken A
//	stored A1 | finished B1 | drop A1 | raised | settled A | wake | at DURATION
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
	e := &entry{num: int64(len(s.pos) + 1), id: name, session: session, first: first, n: 1, bytes: 10, marked: true,
		route: route{ref: "r" + session, host: "h"}, body: &body{ops: []opRow{{id: name, method: "put"}}}}
	for i := 0; i+1 < len(args); i++ {
		switch args[i] {
		case "hold":
			e.hold, _ = strconv.ParseUint(args[i+1], 10, 64)
		case "via":
			e.route.ref = args[i+1]
		case "space":
			e.route.space = args[i+1]
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
		conn = st.conn
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
	has := func(word string) bool { return strings.Contains(" "+line+" ", " "+word+" ") }
	batches := func() (es []*entry) {
		for _, name := range w[2:] {
			if len(name) > 1 && name[1] >= '0' && name[1] <= '9' && name[:1] == session && after("drop") != name {
				es = append(es, s.entry(name))
			}
		}
		return es
	}
	code := func(name string) error {
		c, ok := fault.Named(name)
		if !ok {
			return fmt.Errorf("%s", name)
		}
		return c.With("told to").Pos(num("at"))
	}
	switch w[0] {
	case "found":
		m.found(w[1:], now)
	case "sequenced":
		m.sequenced(s.entry(w[1], w[2:]...), now)
	case "looked":
		var head *entry
		if has("head") {
			head = s.entry(session+"0", w[2:]...)
			delete(s.pos, session+"0")
		}
		m.looked(session, nil, head, has("more") || head != nil, after("owed"), route{}, now)
	case "loaded":
		m.looked(session, batches(), nil, has("more"), after("owed"), route{}, now)
	case "recovered":
		var drops map[int64]*fault.Error
		es := batches()
		if d := after("drop"); d != "" {
			es = append(es, s.entry(d))
			drops = map[int64]*fault.Error{s.entry(d).num: nil}
		}
		m.recovered(session, es, route{}, drops, now)
	case "opened":
		m.openedStream(session, conn, num("last"), nil, now)
	case "fail":
		m.openedStream(session, conn, 0, code(w[2]), now)
	case "ok", "refused", "nonsense":
		status := map[string]ledger.Status{"ok": ledger.Applied, "refused": ledger.Rejected}[w[0]]
		id := w[1]
		if w[0] == "nonsense" {
			id = "?"
		}
		m.replied(session, conn, Reply{Outcomes: []ledger.Outcome{{OpID: id, Status: status}}}, now)
	case "err":
		m.replied(session, conn, Reply{Err: code(w[2])}, now)
	case "stale":
		m.replied(session, conn-1, Reply{Err: code(w[2])}, now)
	case "broken":
		m.broken(session, conn, now)
	case "stored":
		m.storedThrough(session, s.entry(w[1]).last(), now)
	case "finished":
		m.finished(w[1], now)
	case "drop":
		m.dropAsked(session, s.entry(w[1]).num, now)
	case "raised":
		m.raised(now)
	case "settled":
		var es []*entry
		for _, name := range w[2:] {
			e := *s.entry(name)
			e.body = &body{ops: []opRow{{id: name, method: "put", void: true}}}
			s.pos[name] = &e
			es = append(es, &e)
		}
		m.settled(session, conn, es, now)
	case "wake":
		m.wake(now)
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
	for _, a := range s.m.out {
		var l string
		switch a.kind {
		case actLook:
			l = "look " + a.session
		case actLoad:
			l = fmt.Sprintf("load %s %d", a.session, a.batches)
		case actOpen:
			l = fmt.Sprintf("open %s %s", a.session, a.route.ref)
			if a.route.space != "" {
				l += " in " + a.route.space
			}
			if a.settle {
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
		case actNote:
			l = "note"
			for _, e := range a.entries {
				l += fmt.Sprintf(" %s/%d", e.id, e.attempts)
			}
			if !a.at.IsZero() {
				l += fmt.Sprintf(" retry %s", a.at.Sub(s.begin))
			}
		case actMark:
			l = "mark " + a.entry.id
		case actStop:
			l = "stop " + a.session
			if a.err != nil {
				l += " " + a.err.Code.String()
			} else {
				l += " no more"
			}
		case actRaise:
			l = "raise"
		case actSettle:
			l = fmt.Sprintf("settle %s last %d:", a.session, a.through)
			for _, e := range a.entries {
				l += " " + e.id
			}
		case actFenced:
			l = "fenced"
		}
		lines = append(lines, l)
	}
	s.m.out = nil
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

func TestMachine(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		win  Window
		text string
	}{
		"from nothing to idle": {Window{}, `
			found A → look A
			looked A head → open A rA
			opened A → load A 256
			loaded A A1 A2 → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1
			stored A1 →
			ok A2 → finish A2
			stored A2 →
			at 1s → ack A 2
			at 5m → close A
			found A → look A
			looked A →`},
		"nothing there after all": {Window{}, `
			found A → look A
			found A →
			looked A → look A
			looked A →`},
		"committed straight to an open stream": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			sequenced A2 → send A2 acked 0
			ok A1 → finish A1
			stored A1 →
			sequenced A3 → send A3 acked 1`},
		"a window of batches": {Window{Batches: 2}, `
			recovered A A1 A2 A3 A4 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1; send A3 acked 0
			stored A1 →
			ok A2 → finish A2; send A4 acked 1`},
		"a window of bytes, and one batch always": {Window{Bytes: 15}, `
			recovered A A1 A2 → open A rA
			opened A → send A1 acked 0
			ok A1 → finish A1; send A2 acked 0`},
		"nothing is acknowledged that is still referred to": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			sequenced A2 hold 1 → send A2 acked 0
			ok A1 → finish A1
			stored A1 →
			sequenced A3 → send A3 acked 0
			ok A2 → finish A2
			sequenced A4 → send A4 acked 1
			stored A2 →
			sequenced A5 → send A5 acked 2`},
		"the link breaks: again at once, then with pauses": {Window{}, `
			recovered A A1 A2 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1
			broken A → close A; note A2/1 retry 0s; open A rA
			stored A1 →
			fail A disconnected → close A; note A2/2 retry 1s
			at 999ms →
			at 1s → open A rA
			fail A something else → close A; note A2/3 retry 3s
			at 3s → open A rA
			opened A → send A2 acked 1
			broken A → close A; note A2/4 retry 7s
			wake → open A rA
			opened A → send A2 acked 1
			ok A2 → finish A2`},
		"one stream tries for all on its host": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			fail A disconnected → close A; note A1/1 retry 1s
			fail B disconnected → close B; note B1/1 retry 1s
			at 1s → open A rA
			fail A unavailable → close A; note A1/2 retry 3s
			at 3s → open B rB
			opened B → open A rA; send B1 acked 0`},
		"an answer that is not about the link frees the host": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			fail A disconnected → close A; note A1/1 retry 1s
			fail B disconnected → close B; note B1/1 retry 1s
			at 1s → open A rA
			fail A not_yet_known → close A; note A1/2 retry 2s; open B rB`},
		"overloaded: all in flight goes again, in order": {Window{}, `
			recovered A A1 A2 A3 → open A rA
			opened A → send A1 acked 0; send A2 acked 0; send A3 acked 0
			ok A1 → finish A1
			err A overloaded → close A; note A2/1 A3/1 retry 1s
			stale A gap →
			at 1s → open A rA
			opened A → send A2 acked 0; send A3 acked 0`},
		"a gap is filled at once, and again with pauses": {Window{}, `
			recovered A A4 A5 → open A rA
			opened A → send A4 acked 3; send A5 acked 3
			err A gap at 4 → close A; note A4/1 A5/1 retry 0s; open A rA
			opened A → send A4 acked 3; send A5 acked 3
			err A gap at 4 → close A; note A4/2 A5/2 retry 1s
			at 1s → open A rA`},
		"a gap before what is stored: the server lost something": {Window{}, `
			recovered A A4 → open A rA
			opened A → send A4 acked 3
			err A gap at 3 → close A; stop A server_behind; note A4/1`},
		"server behind, diverged, unknown: this stream stops, others go on": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			recovered C C1 → open C rC
			opened A → send A1 acked 0
			opened B → send B1 acked 0
			err A server_behind → close A; stop A server_behind; note A1/1
			err B outbox_diverged → close B; stop B outbox_diverged; note B1/1
			fail C unknown_ref → close C; stop C unknown_ref; note C1/1
			wake →
			recovered D D1 → open D rD
			resume A → stop A no more; open A rA`},
		"fenced: nothing more": {Window{}, `
			recovered A A1 → open A rA
			recovered B B1 → open B rB
			opened A → send A1 acked 0
			err A fenced → fenced
			opened B →
			found C →
			wake →`},
		"an answer that does not fit is not believed": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			nonsense A1 → close A; note A1/1 retry 1s`},
		"waiting for another stream": {Window{}, `
			found B → look B
			looked B more owed A1 →
			found B →
			finished A1 → look B
			looked B head → open B rB
			opened B → load B 256
			loaded B B1 more owed A2 → send B1 acked 0
			ok B1 → finish B1
			stored B1 →
			finished A2 → load B 256`},
		"who waits for another stream is looked at now and then": {Window{}, `
			found B → look B
			looked B more owed A1 →
			at 2s →
			found B → look B`},
		"through another ref: after what is in flight": {Window{}, `
			recovered A A1 → open A rA
			opened A → send A1 acked 0
			sequenced A2 via other →
			sequenced A3 →
			ok A1 → finish A1; close A; open A other
			opened A → send A2 acked 0
			ok A2 → finish A2; close A; open A rA`},
		"a session being made goes through its space": {Window{}, `
			sequenced A1 space S → open A rA in S
			opened A → send A1 acked 0
			sequenced A2 → send A2 acked 0
			broken A → close A; note A1/1 A2/1 retry 1s
			at 1s → open A rA in S
			opened A → send A1 acked 0; send A2 acked 0
			ok A1 → finish A1
			broken A → close A; note A2/2 retry 1s; open A rA`},
		"a session that was not made stays reachable": {Window{}, `
			sequenced A1 space S → open A rA in S
			opened A → send A1 acked 0
			refused A1 → finish A1
			stored A1 →
			broken A → close A
			sequenced A2 → open A rA in S`},
		"a drop fences what is on its way and asks": {Window{}, `
			recovered A A1 A2 A3 → open A rA
			opened A → send A1 acked 0; send A2 acked 0; send A3 acked 0
			drop A2 → close A; raise
			found B → look B
			raised → open A rA settle
			opened A last 1 → settle A last 1: A2
			sequenced A4 →
			settled A A2 → send A1 acked 0; send A2 acked 0 void; send A3 acked 0; send A4 acked 0`},
		"a drop found by a takeover needs no higher incarnation": {Window{}, `
			recovered A A1 drop A2 → open A rA settle
			opened A last 2 → settle A last 2: A2
			settled A → send A1 acked 0; send A2 acked 0`},
		"the link breaks while a drop is decided: nothing is sent before": {Window{}, `
			recovered A drop A1 → open A rA settle
			opened A last 0 → settle A last 0: A1
			broken A → close A; note A1/1 retry 1s
			at 1s →
			settled A A1 → open A rA
			opened A → send A1 acked 0 void`},
		"a batch that cannot be taken becomes voids": {Window{}, `
			recovered A A1 A2 → open A rA
			opened A → send A1 acked 0; send A2 acked 0
			err A too_large → close A; note A1/1 A2/1 retry 0s; raise
			raised → open A rA settle
			opened A last 0 → settle A last 0: A1
			settled A A1 → send A1 acked 0 void; send A2 acked 0
			err A too_large → close A; stop A too_large; note A1/2 A2/2`},
		"few places: who has nothing to do makes room": {Window{Streams: 1}, `
			recovered A A1 → open A rA
			recovered B B1 →
			opened A → send A1 acked 0
			ok A1 → finish A1; close A; open B rB
			stored A1 →
			opened B → send B1 acked 0
			sequenced A2 →
			ok B1 → finish B1; close B; open A rA`},
		"a place that is freed by a failure goes to the next": {Window{Streams: 1}, `
			recovered A A1 → open A rA
			recovered B B1 →
			fail A overloaded → close A; note A1/1 retry 1s; open B rB
			opened B → send B1 acked 0
			at 1s →
			ok B1 → finish B1; close B; open A rA`},
		"fetching more before the queue runs dry": {Window{Batches: 1}, `
			found A → look A
			looked A head → open A rA
			opened A → load A 4
			loaded A A1 A2 A3 A4 more → send A1 acked 0
			ok A1 → finish A1; send A2 acked 0
			stored A1 →
			ok A2 → finish A2; send A3 acked 1; load A 2`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScript(c.win)
			for i, line := range strings.Split(strings.TrimSpace(c.text), "\n") {
				what, want, ok := strings.Cut(line, "→")
				if !ok {
					t.Fatalf("line %d has no arrow", i+1)
				}
				got := s.line(strings.TrimSpace(what))
				if got != strings.TrimSpace(want) {
					t.Fatalf("line %d: %s\n got %s\nwant %s", i+1, strings.TrimSpace(what), got, strings.TrimSpace(want))
				}
				s.sound(t)
			}
		})
	}
}

// sound checks what holds at all times.
func (s *script) sound(t *testing.T) {
	t.Helper()
	places := 0
	for id, st := range s.m.streams {
		if st.phase != closed {
			places++
		}
		bytes, holds := 0, 0
		for i, e := range st.queue {
			bytes += e.bytes
			if e.hold > 0 {
				holds++
			}
			if i > 0 && e.first != st.queue[i-1].last()+1 {
				t.Fatalf("%s: seq %d follows %d", id, e.first, st.queue[i-1].last())
			}
		}
		if bytes != st.queued || holds != st.holds || st.sent > len(st.queue) || st.phase == closed && st.sent > 0 || st.told > st.stored {
			t.Fatalf("%s: %+v", id, *st)
		}
	}
	if places != s.m.places {
		t.Fatalf("%d places are taken, %d counted", places, s.m.places)
	}
}

func TestJudge(t *testing.T) {
	t.Parallel()
	for code, want := range map[fault.Code]verdict{
		fault.Fenced: leaseLost, fault.Gap: rewind, fault.ServerBehind: giveUp, fault.OutboxDiverged: giveUp,
		fault.Overloaded: tryStream, fault.NotYetKnown: tryStream, fault.Internal: tryStream, fault.DiskFull: tryStream,
		fault.Unavailable: tryLink, fault.Disconnected: tryLink, fault.Draining: tryLink, fault.Canceled: tryLink,
		fault.UnknownRef: giveUp, fault.WrongOutbox: giveUp, fault.Plaintext: giveUp, fault.Incompatible: giveUp, fault.Revoked: giveUp,
		fault.TooLarge: unsendable, fault.Malformed: unsendable,
	} {
		if got, f := judge(fmt.Errorf("call: %w", code.With("x"))); got != want || f.Code != code {
			t.Errorf("%s: %d, want %d", code, got, want)
		}
	}
	if got, f := judge(fmt.Errorf("read tcp: reset")); got != tryLink || f.Code != fault.Disconnected || f.Message == "" {
		t.Errorf("unknown: %d %v", got, f)
	}
}
