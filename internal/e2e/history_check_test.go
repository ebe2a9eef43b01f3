package e2e

// What holds after a random history, whatever happened in it.

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// wholeLog is a session's log, as its owner is shown it over every wire.
type wholeLog struct {
	kin     *kin
	log     []shownEvent
	purged  map[string]uint64 // key → its last purge
	parents map[string]string // ref → the one that it was made from; of all sessions
}

// check checks everything.
func (h *history) check() {
	h.t.Helper()
	logs := map[string]*wholeLog{}
	parents := map[string]string{}
	for _, k := range h.g.family {
		w := h.wholeLog(k)
		w.parents = parents
		logs[k.id()] = w
		for _, e := range w.log {
			if e.Method == session.MethodShare {
				parents[strings.TrimPrefix(e.Key, "ref/")] = e.Ref
			}
		}
	}
	h.checkOutcomes(logs)
	for _, k := range h.g.family {
		w := logs[k.id()]
		w.checkCuts(h)
		w.checkFork(h, logs)
		for _, in := range h.sights(k) {
			h.checkReads(w, in)
		}
	}
	for _, f := range h.follows {
		h.checkFollower(logs[f.in.session()], f)
	}
	h.checkVerbs()
}

// wholeLog reads a session's log once no lease ends soon any more.
func (h *history) wholeLog(k *kin) *wholeLog {
	h.t.Helper()
	in := sight{door: door{ref: k.owner}}
	eventually(h.t, "leases are over", func() bool {
		s, err := h.parties[owner].state(in, 0)
		if err != nil {
			h.t.Fatal(err)
		}
		return !slices.ContainsFunc(s.Entries, func(e shownEntry) bool {
			return e.Claim != nil && e.Claim.Until < time.Now().Add(10*time.Minute).UnixMilli()
		})
	})
	w := &wholeLog{kin: k, purged: map[string]uint64{}}
	for _, by := range h.names {
		log, err := h.parties[by].events(in)
		if err != nil {
			h.t.Fatalf("%s cannot read the log of %s: %v", by, k.id(), err)
		}
		if w.log == nil {
			w.log = log
		}
		if a, b := canonical(w.log), canonical(log); a != b {
			h.t.Fatalf("the log of %s is not the same for %s and %s:\n%s", k.id(), h.names[0], by, difference(a, b))
		}
	}
	for i, e := range w.log {
		if e.Cursor != uint64(i)+1 || e.Hidden {
			h.t.Fatalf("event %d of %s has cursor %d, hidden %t", i+1, k.id(), e.Cursor, e.Hidden)
		}
		if e.Method == session.MethodPurge {
			w.purged[e.Key] = e.Cursor
		}
	}
	return w
}

// difference is where two texts differ.
func difference(a, b string) string {
	i := 0
	for i < min(len(a), len(b)) && a[i] == b[i] {
		i++
	}
	cut := func(s string) string { return s[max(0, i-300):min(len(s), i+300)] }
	return cut(a) + "\n— and —\n" + cut(b)
}

// checkOutcomes: an op that applied has its event and no other has one.
func (h *history) checkOutcomes(logs map[string]*wholeLog) {
	h.t.Helper()
	events := map[string][]*shownEvent{}
	for _, w := range logs {
		for i := range w.log {
			if e := &w.log[i]; e.Op != "" {
				events[e.Op] = append(events[e.Op], e)
			}
		}
	}
	clear(h.g.applied) // what was meant is not always what was done
	for _, b := range h.sent {
		for i, o := range b.got {
			var result struct{ Unchanged bool }
			_ = json.Unmarshal(o.Result, &result)
			made := events[o.OpID]
			delete(events, o.OpID)
			switch {
			case o.OpID != opID(b.id, i):
				h.t.Errorf("outcome %d of batch %s is of op %s", i, b.id, o.OpID)
			case o.Status == client.Applied && !result.Unchanged:
				if len(made) != 1 || made[0].Cursor != o.Cursor || made[0].Batch != b.id || !isOf(made[0], b.ops[i].Method) {
					h.t.Errorf("%s %s applied at %d, its events are %s", b.by, canonical(b.ops[i]), o.Cursor, canonical(made))
				} else {
					h.g.applied[did(made[0], b.verbs[i])]++
				}
			case len(made) > 0:
				h.t.Errorf("%s %s has the outcome %s, and made %s", b.by, canonical(b.ops[i]), canonical(o), canonical(made))
			}
		}
	}
	for id, made := range events {
		h.t.Errorf("nobody sent op %s: %s", id, canonical(made))
	}
}

// isOf says whether an event is what a method makes.
func isOf(e *shownEvent, method string) bool {
	first := e.Method == session.MethodPut && (method == session.MethodPatch || method == session.MethodAdd) // there was no value
	if isRequest(e.Key) {
		return e.Method == session.MethodPut && slices.Contains([]string{session.MethodAsk, session.MethodClaim, session.MethodRelease, session.MethodAnswer, session.MethodWithdraw}, method)
	}
	return e.Method == method || first
}

// isRequest says whether a key is a request's, or that of its state.
func isRequest(key string) bool { return session.KindOf(key) == "request" }

// did is the verb that an event shows.
func did(e *shownEvent, meant string) string {
	switch {
	case isRequest(e.Key):
		return meant
	case e.Method == session.MethodPut && meant != "schema":
		return "put"
	case e.Method == session.MethodRelease && bytes.Contains(e.Payload, []byte(`"broken":true`)):
		return "break"
	case e.Method == session.MethodRelease:
		return "release"
	case e.Method == session.MethodClaim && bytes.Contains(e.Payload, []byte(`"claim":`)):
		return "renew"
	case meant == "renew":
		return "claim"
	}
	return meant
}

// checkCuts: nothing under a ref that was revoked, or one below it, comes after the revocation.
func (w *wholeLog) checkCuts(h *history) {
	h.t.Helper()
	cut := map[string]uint64{}
	for _, e := range w.log {
		for id := e.Ref; id != ""; id = w.parents[id] {
			if at := cut[id]; at > 0 {
				h.t.Errorf("%s: event %d (%s) is under %s, which ended at %d", w.kin.id(), e.Cursor, e.Method, id, at)
			}
		}
		if e.Method == session.MethodRevoke {
			cut[strings.TrimPrefix(e.Key, "ref/")] = e.Cursor
		}
	}
}

// checkFork: a fork begins with what its source was at its cursor, up to its message.
func (w *wholeLog) checkFork(h *history, logs map[string]*wholeLog) {
	h.t.Helper()
	if w.log[0].Method != session.MethodFork {
		return
	}
	var from struct {
		Source, Message string
		At              uint64
	}
	if err := json.Unmarshal(w.log[0].Payload, &from); err != nil {
		h.t.Fatal(err)
	}
	source := logs[from.Source]
	if source.purged[session.MessageKey(from.Message)] > 0 {
		return // nobody knows any more where it was
	}
	had, err := folded(from.Source, source.log[:from.At])
	if err != nil {
		h.t.Fatal(err)
	}
	has, err := folded(w.kin.id(), w.log[:1])
	if err != nil {
		h.t.Fatal(err)
	}
	last := had.Entry(session.MessageKey(from.Message))
	values := func(f *session.Fold) (all []string) {
		for _, e := range f.Entries() {
			head := f.Entry(session.HeadOf(e.Key))
			if head == nil && session.HeadOf(e.Key) != "" { // a part without its message goes by its own place
				head = e
			}
			gone := slices.ContainsFunc([]string{e.Key, session.HeadOf(e.Key)}, func(key string) bool { return source.purged[key] > 0 || w.purged[key] > 0 })
			if f == had && isRequest(e.Key) {
				continue // what was asked of one session is not asked of another
			}
			if !gone && (last == nil || f != had || head == nil || session.CompareEntries(head, last) <= 0) {
				all = append(all, e.Key+" "+string(compact(e.Payload)))
			}
		}
		return all
	}
	if a, b := canonical(values(had)), canonical(values(has)); a != b {
		h.t.Errorf("%s was forked from %s at %d, up to %q:\n%s", w.kin.id(), from.Source, from.At, from.Message, difference(a, b))
	}
}

// shown is the state at a cursor as a sight shows it, by the log.
func (w *wholeLog) shown(in *sight, at uint64) (*shownState, error) {
	f, err := folded(w.kin.id(), w.log[:at])
	if err != nil {
		return nil, err
	}
	return shownOf(f, in, w.log[at-1].Hash), nil
}

// shownOf is a folded state as a sight shows it.
func shownOf(f *session.Fold, in *sight, hash string) *shownState {
	s := &shownState{Cursor: f.Cursor, Hash: hash}
	var c session.Compaction
	if in.compacted && in.grant.ShowsAllKeys() && in.grant.VisibleFrom <= 1 {
		c = f.Compacted()
	}
	for _, e := range f.Entries() {
		if !in.shows(e.Key) || e.Since < in.grant.VisibleFrom {
			continue
		}
		if c.LeavesOut(f.Entry(session.HeadOf(e.Key))) {
			if session.HeadOf(e.Key) == e.Key {
				s.LeftOut = append(s.LeftOut, strings.TrimPrefix(e.Key, "message/"))
			}
			continue
		}
		entry := shownEntry{Key: e.Key, Cursor: e.Cursor, Schema: e.Schema, Ord: &[2]uint64{e.Ord.At, e.Ord.Index}, Payload: e.Payload}
		if c := e.Claim; c != nil && c.Renewed >= in.grant.VisibleFrom {
			entry.Claim = &shownClaim{c.Cursor, c.Until, session.OutboxOf(c.Outbox), c.Worker, c.Ref, c.Actor}
		}
		s.Entries = append(s.Entries, entry)
	}
	for _, t := range f.Turns() {
		key := session.MessageKey(t.Message)
		if in.shows(key) && t.Begun >= in.grant.VisibleFrom && !c.LeavesOut(f.Entry(key)) {
			s.Turns = append(s.Turns, shownTurn{t.Message, t.Status.String(), t.Begun, t.Ended, session.OutboxOf(t.Outbox), t.Ref})
		}
	}
	return s.tidy()
}

// compareStates gives how a state differs from what it should be. Hashes are compared where the whole session is shown,
// positions where the client shows them.
func (w *wholeLog) compareStates(in *sight, want, got *shownState) error {
	form := func(s, other *shownState) string {
		out := *s
		if !in.grant.ShowsAllKeys() {
			out.Hash = ""
		}
		out.Entries = append([]shownEntry{}, s.Entries...)
		out.Turns = append([]shownTurn{}, s.Turns...)
		out.LeftOut = append([]string{}, s.LeftOut...)
		for i := range out.Entries {
			if slices.ContainsFunc(other.Entries, func(e shownEntry) bool { return e.Ord == nil }) {
				out.Entries[i].Ord = nil
			}
		}
		// What was purged since, the log does not have any more, nor where it was.
		later := func(key string) bool { return w.purged[key] > s.Cursor || w.purged[session.HeadOf(key)] > s.Cursor }
		out.Entries = slices.DeleteFunc(out.Entries, func(e shownEntry) bool { return later(e.Key) })
		out.Turns = slices.DeleteFunc(out.Turns, func(t shownTurn) bool { return later(session.MessageKey(t.Message)) })
		out.LeftOut = slices.DeleteFunc(out.LeftOut, func(id string) bool { return later(session.MessageKey(id)) })
		return canonical(out)
	}
	if a, b := form(want, got), form(got, want); a != b {
		return errors.New("by the log, and as shown:\n" + difference(a, b))
	}
	return nil
}

// checkReads: a fresh read of now and of some earlier cursor is the log's, over every wire.
func (h *history) checkReads(w *wholeLog, in sight) {
	h.t.Helper()
	end := uint64(len(w.log))
	if end < in.grant.VisibleFrom {
		return
	}
	var first []shownEvent
	for n, at := range []uint64{end, max(1, in.grant.VisibleFrom, h.rand.Uint64N(end+1))} {
		want, err := w.shown(&in, at)
		if err != nil {
			h.t.Fatalf("the log of %s: %v", w.kin.id(), err)
		}
		for _, by := range h.names {
			got, err := h.parties[by].state(in, at)
			if ended := h.ended(in); err != nil || ended {
				if !ended || fault.CodeOf(err) != fault.Revoked {
					h.t.Errorf("%s reads %s at %d by %s: %v, ended %t", by, w.kin.id(), at, in.name, err, ended)
				}
				continue
			}
			if err := w.compareStates(&in, want, got); err != nil {
				h.t.Errorf("%s reads %s at %d of %d by %s %s: %v", by, w.kin.id(), at, end, in.name, canonical(in.grant.ReadKeys), err)
			}
			if n > 0 || in.compacted {
				continue
			}
			events, err := h.parties[by].events(in)
			if err != nil {
				h.t.Fatal(err)
			}
			if events = visible(events); first == nil {
				first = events
				if err := w.checkSeen(&in, 0, events, end); err != nil {
					h.t.Errorf("%s reads the log of %s by %s: %v", by, w.kin.id(), in.name, err)
				}
			}
			if a, b := canonical(first), canonical(events); a != b {
				h.t.Errorf("%s and %s read the log of %s by %s:\n%s", h.names[0], by, w.kin.id(), in.name, difference(a, b))
			}
		}
	}
}

// ended says whether the ref of a sight has ended.
func (h *history) ended(in sight) bool { return !h.g.alive(in.ref.ID) }

// visible are events without marks.
func visible(events []shownEvent) []shownEvent {
	return slices.DeleteFunc(slices.Clone(events), func(e shownEvent) bool { return e.Hidden })
}

// shows says whether a key is in sight.
func (s *sight) shows(key string) bool {
	among := func(keys []string) bool {
		return keys == nil || slices.ContainsFunc(keys, func(k string) bool { return key == k || strings.HasSuffix(k, "/") && strings.HasPrefix(key, k) })
	}
	m := s.grant.Message
	return among(s.grant.ReadKeys) && among(s.keys) && (m == "" || key == "message/"+m || strings.HasPrefix(key, "part/"+m+"/"))
}

// embedding are methods whose events have values of more keys than one, or are about all: what is shown of them differs.
var embedding = []string{session.MethodFork, session.MethodFinalize, session.MethodPurge, session.MethodRevert, session.MethodUnrevert, session.MethodSettle, session.MethodCompact}

var marker = regexp.MustCompile(`"at":\s*"((?:todo|note|message|part|session|model|request)[^"]*)"`)

// checkSeen: of the events after a cursor, those that a sight shows are seen once each and in order, and nothing of what it
// does not show.
func (w *wholeLog) checkSeen(in *sight, after uint64, seen []shownEvent, to uint64) error {
	for i, e := range seen {
		if e.Cursor <= after || i > 0 && e.Cursor <= seen[i-1].Cursor {
			return fmt.Errorf("event %d (%s %s) was seen twice, or out of order", e.Cursor, e.Method, e.Key)
		}
	}
	i := 0
	for _, e := range w.log[:to] {
		if e.Cursor <= after || e.Cursor < in.grant.VisibleFrom {
			continue
		}
		var got *shownEvent
		if i < len(seen) && seen[i].Cursor == e.Cursor {
			got = &seen[i]
			i++
		}
		embeds := slices.Contains(embedding, e.Method)
		switch {
		case got == nil && in.shows(e.Key):
			return fmt.Errorf("event %d (%s %s) is not seen", e.Cursor, e.Method, e.Key)
		case got == nil:
			continue
		case !in.shows(e.Key) && !embeds:
			return fmt.Errorf("event %d (%s %s) is seen", e.Cursor, e.Method, e.Key)
		}
		same := e
		if !in.grant.ShowsAllKeys() {
			same.Hash = got.Hash // it is shown others
		}
		purged := e.Payload == nil || bytes.Contains(e.Payload, []byte(`"purged":[`)) // after it was seen, maybe
		if purged || embeds && !in.whole() {
			same.Payload = got.Payload
		}
		if canonical(same) != canonical(*got) {
			return fmt.Errorf("event %d was seen as\n%s\nand is\n%s", e.Cursor, canonical(*got), canonical(e))
		}
		for _, m := range marker.FindAllSubmatch(got.Payload, -1) {
			if key := string(m[1]); !in.shows(key) {
				return fmt.Errorf("event %d (%s %s) shows a value of %s: %s", e.Cursor, e.Method, e.Key, key, got.Payload)
			}
		}
	}
	if i < len(seen) {
		return fmt.Errorf("event %d (%s %s) is seen", seen[i].Cursor, seen[i].Method, seen[i].Key)
	}
	return nil
}

// checkFollower: a live follower has seen what its sight shows, in order and once, until the end or until its ref ended.
func (h *history) checkFollower(w *wholeLog, f *following) {
	h.t.Helper()
	what := fmt.Sprintf("%s follows %s by %s %s from %+v", f.by, w.kin.id(), f.in.name, canonical(f.in.grant), f.from)
	end := uint64(len(w.log))
	got, err := f.finish(end)
	if err != nil {
		h.t.Errorf("%s: %v", what, err)
		return
	}
	to := end
	if got.Ended != fault.None {
		if got.Ended != fault.Revoked || !h.ended(f.in) {
			h.t.Errorf("%s: it ended with %s", what, got.Ended)
		}
		if to = got.at; to == 0 {
			to = f.from.cursor
		}
	} else if h.ended(f.in) {
		h.t.Errorf("%s: it goes on", what)
	}
	since := f.from.cursor
	if got.Base != nil {
		since = got.Base.Cursor
		want, err := w.shown(&f.in, since)
		if err == nil {
			err = w.compareStates(&f.in, want, got.Base)
		}
		if err != nil {
			h.t.Errorf("%s, at first: %v", what, err)
		}
	}
	if err := w.checkSeen(&f.in, since, visible(got.Events), max(to, since)); err != nil {
		h.t.Errorf("%s: %v", what, err)
	}
	if got.State == nil && since == 0 && f.in.folds() { // it could have folded what it was shown
		fold, err := folded(w.kin.id(), got.Events)
		if err != nil {
			h.t.Errorf("%s: %v", what, err)
			return
		}
		got.State = shownOf(fold, &f.in, w.log[end-1].Hash)
	}
	if got.State != nil && got.Ended == fault.None {
		for i := range got.State.Entries {
			if !f.in.whole() {
				got.State.Entries[i].Ord = nil // it counts what it is shown
			}
		}
		want, err := w.shown(&f.in, end)
		if err == nil {
			err = w.compareStates(&f.in, want, got.State)
		}
		if err != nil {
			h.t.Errorf("%s, as it is folded: %v", what, err)
		}
	}
}

// folds says whether what the sight shows of the log is enough to make its state of, without reading it anew.
func (s *sight) folds() bool {
	shows := s.grant.ReadKeys
	if s.keys != nil {
		shows = s.keys
	}
	return s.whole() || s.grant.Message == "" && s.grant.VisibleFrom <= 1 && !capability.TouchesKeys(shows, "message/") && !capability.TouchesKeys(shows, "part/")
}

// left are methods that no history has: they end all refs of a session, or the session.
var left = []string{session.MethodBumpEpoch, session.MethodDelete}

// checkVerbs: every verb has been applied and refused, and there is no other method.
func (h *history) checkVerbs() {
	h.t.Helper()
	sent := map[string]bool{}
	for _, b := range h.sent {
		for _, o := range b.ops {
			sent[o.Method] = true
		}
	}
	for _, m := range opargs.Methods() {
		if sent[m] == slices.Contains(left, m) {
			h.t.Errorf("the history has the method %s: %t", m, sent[m])
		}
	}
	for _, v := range verbs {
		h.t.Logf("%-22s applied %3d times, refused %3d times", v, h.g.applied[v], h.g.refused[v])
		if h.g.applied[v] == 0 || h.g.refused[v] == 0 {
			h.t.Errorf("%s was applied %d times and refused %d times", v, h.g.applied[v], h.g.refused[v])
		}
	}
}
