package e2e

// The model: what a session is, said a second time, one op after the other in
// memory, from the contract and without the code under test. It takes from the
// server's log only what it cannot know: the times of events, and the places of
// those that the server writes by itself.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// world is all sessions and what became of every op.
type world struct {
	sessions map[string]*modelSession
	done     map[string]*modelOutcome
	reasons  map[string]fault.Code      // as the server gave them, where the model leaves a choice
	logs     map[string][]session.Event // as the server shows them
	alive    bool                       // some op of the batch in hand was allowed

	externals map[string]bool                     // ids of other systems that sessions have
	claimed   []string                            // those that the batch at hand has taken
	past      map[string]map[uint64]*modelSession // every session at every cursor; nil unless they are to be kept

	complaints []string // about events that do not hold what they should

	watched map[uint64]bool // cursors of one session whose state is to be kept …
	of      string          // … and that session's id
	seen    map[uint64]*modelSession
}

func newWorld() *world {
	return &world{sessions: map[string]*modelSession{}, done: map[string]*modelOutcome{},
		reasons: map[string]fault.Code{}, logs: map[string][]session.Event{}, externals: map[string]bool{}}
}

// keepPast has the world keep what was, for forks of it.
func (w *world) keepPast() *world {
	w.past = map[string]map[uint64]*modelSession{}
	return w
}

// claim takes an id of another system's for a session.
func (w *world) claim(external string) {
	w.externals[external] = true
	w.claimed = append(w.claimed, external)
}

// watch keeps a session's state at these cursors, in seen.
func (w *world) watch(session string, cursors []uint64) {
	w.of, w.watched, w.seen = session, map[uint64]bool{}, map[uint64]*modelSession{}
	for _, c := range cursors {
		w.watched[c] = true
	}
}

// look keeps a session's state if it is at a watched cursor.
func (w *world) look(s *modelSession) {
	if w.past != nil {
		if w.past[s.id] == nil {
			w.past[s.id] = map[uint64]*modelSession{}
		}
		w.past[s.id][s.cursor] = s.clone()
	}
	if s.id == w.of && w.watched[s.cursor] {
		w.seen[s.cursor] = s.clone()
	}
}

// modelOutcome is what must become of an op.
type modelOutcome struct {
	op     string
	status client.OutcomeStatus
	reason fault.Code
	or     []fault.Code // reasons that would do as well: which is found first is free
	cause  string
	at     uint64         // Conflict: the cursor; WrongOffset: the length
	result map[string]any // of an applied op
}

type modelSession struct {
	id      string
	exists  bool
	cursor  uint64
	epoch   uint64
	entries map[string]*modelEntry
	turns   map[string]*modelTurn
	grants  map[string]*modelGrant
}

type modelEntry struct {
	raw    string // as it was put; "" once it is another value
	value  map[string]any
	schema string
	tail   []byte // text of deltas, not in value
	grown  bool
	cursor uint64
}

type modelTurn struct {
	status       string
	stream       string
	begun, ended uint64
	final        string // finalize's arguments
}

type modelGrant struct {
	owner  bool
	parent string
	epoch  uint64
	actor  string
	rights map[string]bool
	cut    uint64 // revoked there; 0 alive
}

func (w *world) session(id string) *modelSession {
	s := w.sessions[id]
	if s == nil {
		s = &modelSession{id: id, entries: map[string]*modelEntry{}, turns: map[string]*modelTurn{}, grants: map[string]*modelGrant{}}
		w.sessions[id] = s
	}
	return s
}

func (s *modelSession) clone() *modelSession {
	c := *s
	c.entries, c.turns, c.grants = maps.Clone(s.entries), maps.Clone(s.turns), maps.Clone(s.grants)
	for k, e := range c.entries {
		e := *e
		e.value, e.tail = maps.Clone(e.value), bytes.Clone(e.tail)
		c.entries[k] = &e
	}
	for k, t := range c.turns {
		t := *t
		c.turns[k] = &t
	}
	for k, g := range c.grants {
		g := *g
		c.grants[k] = &g
	}
	return &c
}

// growing are the parts that text can be appended to.
func (s *modelSession) growing() (keys []string) {
	for key := range s.entries {
		if message, _, ok := strings.Cut(strings.TrimPrefix(key, "part/"), "/"); ok && strings.HasPrefix(key, "part/") {
			if t := s.turns[message]; t != nil && t.ended == 0 {
				keys = append(keys, key)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// refusal is why an op does not apply.
type refusal struct {
	code fault.Code
	at   uint64
	or   []fault.Code // more reasons, any of which may be told
}

func refuse(code fault.Code) *refusal { return &refusal{code: code} }

// run does a batch as a whole and gives what must become of its ops.
func (w *world) run(b *planBatch, stream string) []modelOutcome {
	s := w.session(b.target())
	before := s
	if b.Atomic {
		before = s.clone()
	}
	w.claimed = nil
	base := s.cursor
	w.alive = false
	outs := make([]modelOutcome, len(b.Ops))
	for i := range b.Ops {
		outs[i] = w.decide(s, b, i, stream, base)
		w.look(s)
		w.done[outs[i].op] = &outs[i]
		if b.Atomic && outs[i].status != client.Applied {
			*s = *before
			for _, external := range w.claimed {
				delete(w.externals, external)
			}
			if w.alive {
				w.resume(s, stream)
			}
			cause := outs[i]
			for j := range b.Ops {
				outs[j] = modelOutcome{op: opID(b.ID, j), status: client.BatchAborted, reason: cause.reason, cause: cause.op}
				w.done[outs[j].op] = &outs[j]
			}
			break
		}
	}
	return outs
}

// decide is one op of a batch: the first row of the ledger's table that fits.
func (w *world) decide(s *modelSession, b *planBatch, place int, stream string, base uint64) modelOutcome {
	o := &b.Ops[place]
	out := modelOutcome{op: opID(b.ID, place), status: client.Rejected}
	for _, id := range o.needs() {
		if d := w.done[id]; d != nil && d.status != client.Applied {
			out.status, out.cause, out.reason = client.Skipped, d.op, d.reason
			return out
		}
	}
	args, missing := map[string]json.RawMessage{}, false
	for _, a := range o.Args {
		if a.Ref == nil {
			args[a.Name] = a.JSON
			continue
		}
		v, ok := w.resolve(a.Ref)
		missing = missing || !ok
		args[a.Name] = v
	}
	if r := s.authorize(parseRef(b.Session).ID, o.Method, args); r != nil {
		out.status, out.reason, out.at = client.Denied, r.code, r.at
		return out
	}
	w.alive = true
	w.resume(s, stream)
	if o.Expected != nil {
		expected := o.Expected.JSON
		if o.Expected.Ref != nil {
			v, ok := w.resolve(o.Expected.Ref)
			missing = missing || !ok
			expected = v
		}
		if n, err := strconv.ParseUint(string(expected), 10, 64); err == nil && n != base {
			out.status, out.reason, out.at = client.Conflict, fault.Conflict, base
			return out
		}
	}
	if missing {
		out.reason = fault.BadReference
		return out
	}
	c := call{w: w, s: s, op: out.op, stream: stream, grant: parseRef(b.Session).ID, method: o.Method, args: args}
	result, r := c.apply()
	if r != nil {
		out.reason, out.at, out.or = r.code, r.at, r.or
		if r.code.Authority() {
			out.status = client.Denied
		}
		return out
	}
	out.status, out.reason, out.result = client.Applied, fault.None, result
	return out
}

// needs are the ops that an op depends on or refers to.
func (o *planOp) needs() []string {
	ids := slices.Clone(o.DependsOn)
	for _, a := range append(slices.Clone(o.Args), deref(o.Expected)) {
		if a.Ref != nil {
			ids = append(ids, a.Ref.Op)
		}
	}
	return ids
}

func deref(a *planArg) planArg {
	if a == nil {
		return planArg{}
	}
	return *a
}

// resolve gives the JSON text that a reference stands for.
func (w *world) resolve(r *planRef) (json.RawMessage, bool) {
	d := w.done[r.Op]
	if d == nil {
		return nil, false
	}
	var at any = d.result
	if r.Path != "" {
		for step := range strings.SplitSeq(r.Path, ".") {
			m, ok := at.(map[string]any)
			if !ok {
				return nil, false
			}
			if at, ok = m[step]; !ok {
				return nil, false
			}
		}
	}
	return json.RawMessage(canonical(at)), true
}

// authorize is the check of the ref a batch comes by.
func (s *modelSession) authorize(grant, method string, args map[string]json.RawMessage) *refusal {
	if !s.exists {
		return nil // under the space's ref, which the tests never revoke
	}
	g := s.grants[grant]
	need := map[string]string{"share": "share", "revoke": "revoke", "bumpEpoch": "revoke", "delete": ""}
	right, special := need[method]
	if !special {
		right = "append"
	}
	switch {
	case method == "create" || method == "fork":
		return nil
	case g == nil:
		return refuse(fault.UnknownRef)
	case g.cut != 0:
		return &refusal{code: fault.Revoked, at: g.cut}
	case !g.owner && g.epoch != s.epoch:
		return &refusal{code: fault.StaleEpoch, at: s.epoch}
	case method == "finalize" && string(args["status"]) == `"aborted"` && g.rights["revoke"]:
		return nil
	case right != "" && !g.rights[right]:
		return refuse(fault.MissingRight)
	}
	return nil
}

// event makes room for an op's event.
func (c *call) event() uint64 {
	c.s.cursor++
	return c.s.cursor
}

// resume does what the server wrote of a stream that is back: a resumed event for
// each of its interrupted turns, before the event of its op.
func (w *world) resume(s *modelSession, stream string) {
	for log := w.logs[s.id]; s.cursor < uint64(len(log)) && s.resumes(&log[s.cursor], stream); {
		if s.byItself(&log[s.cursor]) != nil {
			return // and the test fails where the event is wanted
		}
		w.look(s)
	}
}

// resumes says whether e tells of a turn of stream that it goes on.
func (s *modelSession) resumes(e *session.Event, stream string) bool {
	t := s.turns[strings.TrimPrefix(e.Key, "message/")]
	return e.Method == session.MethodResumed && t != nil && t.stream == stream
}

// now is the time of the event to come, as the server's clock had it.
func (c *call) now() int64 {
	if log := c.w.logs[c.s.id]; c.s.cursor < uint64(len(log)) {
		return log[c.s.cursor].At
	}
	return 0
}

// byItself does an event that the server wrote on its own.
func (s *modelSession) byItself(e *session.Event) error {
	id, ok := strings.CutPrefix(e.Key, "message/")
	t := s.turns[id]
	if !ok || t == nil {
		return fmt.Errorf("cursor %d: %s of %s, which has no turn", e.Cursor, e.Method, e.Key)
	}
	from, to := "streaming", "interrupted"
	if e.Method == session.MethodResumed {
		from, to = to, from
	}
	if t.status != from {
		return fmt.Errorf("cursor %d: %s of a turn that is %s", e.Cursor, e.Method, t.status)
	}
	t.status = to
	s.cursor++
	return nil
}

// canonical is a value's JSON text with sorted keys.
func canonical(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(text)
}

// parseValue reads JSON text; numbers stay as they are written.
func parseValue(text []byte) any {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		panic(fmt.Sprintf("not JSON: %v: %.200s", err, text))
	}
	return v
}

func number(n uint64) json.Number { return json.Number(strconv.FormatUint(n, 10)) }

// folded is an entry's value with its deltas in it.
func (e *modelEntry) folded() map[string]any {
	if !e.grown {
		return e.value
	}
	v := maps.Clone(e.value)
	text, _ := v["text"].(string)
	v["text"] = text + string(e.tail)
	return v
}

// length is the text's length in bytes.
func (e *modelEntry) length() uint64 {
	text, _ := e.value["text"].(string)
	return uint64(len(text) + len(e.tail))
}
