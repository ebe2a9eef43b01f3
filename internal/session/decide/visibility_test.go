package decide_test

// What a limited ref is shown: nothing that was written before its first cursor, and
// nothing of another message, whichever event or entry embeds it.

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
)

// stamped is a log in which every text says at which cursor it was written, and of
// which message.
type stamped struct {
	*writer
	length map[string]int // of a part's text
	forked []string       // messages that the first event brought along
}

// stamp is a text of the next event about a message.
func (s *stamped) stamp(message string) string {
	return fmt.Sprintf("@%d:%s@", s.w.store.Session(s.session).Cursor+1, message)
}

func (s *stamped) put(message, part string) {
	text := s.stamp(message)
	s.length[part] = len(text)
	s.apply(op("put", "key", "part/"+message+"/"+part, "payload", raw(`{"text":%q,"state":{"status":"running"}}`, text)))
}

func (s *stamped) begin(message string) {
	s.apply(op("begin", "message", message, "payload", raw(`{"begun":%q}`, s.stamp(message))))
}

func (s *stamped) grow(message, part string) {
	text := s.stamp(message)
	s.apply(op("appendText", "key", "part/"+message+"/"+part, "offset", s.length[part], "text", text))
	s.length[part] += len(text)
}

// finalize ends a turn. whole are the parts that are given whole.
func (s *stamped) finalize(message string, whole ...string) {
	parts := []string{}
	for _, p := range whole {
		parts = append(parts, fmt.Sprintf(`{"id":%q,"payload":{"text":%q}}`, p, s.stamp(message)))
	}
	s.apply(op("finalize", "message", message, "status", "completed", "usage", raw(`{"of":%q}`, s.stamp(message)),
		"parts", raw("[%s]", strings.Join(parts, ","))))
}

func (s *stamped) purge(key string) { s.apply(op("purge", "key", key)) }

func (w *world) stamped(args ...any) *stamped {
	return &stamped{writer: w.create(args...), length: map[string]int{}}
}

var stamps = regexp.MustCompile(`@(\d+):(\w+)@`)

// oldest is the first cursor that a text was written at, and all its messages.
func (s *stamped) oldest(text string) (cursor uint64, messages []string) {
	for _, m := range stamps.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.ParseUint(m[1], 10, 64)
		if slices.Contains(s.forked, m[2]) {
			n = 1
		}
		if cursor == 0 || n < cursor {
			cursor = n
		}
		messages = append(messages, m[2])
	}
	return cursor, messages
}

// checkVisible holds what every limit shows of the session against what was written when.
func (s *stamped) checkVisible(t *testing.T) {
	t.Helper()
	events := s.w.store.Events(s.session)
	entries, _ := s.w.store.State(s.session)
	s.checkKeysVisible(t, events, entries)
	key := new(session.HashKey)
	for from := range uint64(len(events) + 2) {
		for _, message := range []string{"", "m1", "m2"} {
			g := &capability.Grant{VisibleFrom: from, Message: message}
			hides := func(text string) bool {
				at, messages := s.oldest(text)
				return from > 1 && at != 0 && at < from || message != "" && slices.ContainsFunc(messages, func(m string) bool { return m != message })
			}
			for _, e := range shownTo(g, events[max(from, 1)-1:], key) {
				if !e.Hidden && hides(string(e.Payload)) {
					t.Errorf("from %d, message %q: event %d (%s) shows %s", from, message, e.Cursor, e.Method, e.Payload)
				}
				var p struct {
					Entries []struct{ Payload string }
					Events  []struct{ Cursor uint64 }
					Hidden  int
				}
				if e.Hidden || e.Method != session.MethodFinalize && e.Method != session.MethodPurge {
					continue
				}
				if err := json.Unmarshal(e.Payload, &p); err != nil {
					t.Fatal(err)
				}
				for _, touched := range p.Events {
					if touched.Cursor < from || message != "" {
						t.Errorf("from %d, message %q: the purge at %d tells of event %d", from, message, e.Cursor, touched.Cursor)
					}
				}
				written := events[e.Cursor-1]
				var all struct{ Entries []struct{ Payload string } }
				if err := json.Unmarshal(written.Payload, &all); err != nil {
					t.Fatal(err)
				}
				shown := 0
				for _, in := range all.Entries {
					if !hides(in.Payload) {
						shown++
					}
				}
				sum := written.Sum
				if e.Redacted {
					sum = key.Mask(g, sum)
				}
				if e.Method == session.MethodFinalize && (len(p.Entries) != shown || p.Hidden != len(all.Entries)-shown || e.Sum != sum) {
					t.Errorf("from %d, message %q: the end of a turn at %d shows %d values and says that it hides %d, of %d of which %d are new",
						from, message, e.Cursor, len(p.Entries), p.Hidden, len(all.Entries), shown)
				}
			}
			for _, e := range entries {
				want := session.InScope(g, e.Key) && !hides(string(e.Payload))
				if got := session.ShowsEntry(g, e); got != want {
					t.Errorf("from %d, message %q: %s shown is %v: %s", from, message, e.Key, got, e.Payload)
				}
			}
		}
	}
}

// keyLists are limits to keys, for the messages and parts of stamped logs.
var keyLists = [][]string{{"message/"}, {"part/"}, {"part/m1/"}, {"message/m1"}, {"message/m1", "part/m1/"}, {"part/m1/a", "part/m2/p1"}, {"part/m1/p1", "session"},
	{"message/m2", "part/m1/", "model/"}, {"todo/"}}

// checkKeysVisible checks that a ref which is limited to keys is shown no others, and all that becomes
// of those: the fold of the events that it is shown is the state that it is shown. The same for keys
// that a reader asks for.
func (s *stamped) checkKeysVisible(t *testing.T, events []*session.Event, entries []*session.Entry) {
	t.Helper()
	_, turns := s.w.store.State(s.session)
	for _, keys := range keyLists {
		g, masks := &capability.Grant{ReadKeys: keys}, &session.HashKey{1}
		asked, err := session.SelectKeys(keys)
		if err != nil {
			t.Fatal(err)
		}
		whole := session.NewUnscoped(&session.StateChunk{Entries: entries, Turns: turns})
		for by, log := range map[string]struct {
			events []*session.Event
			state  *session.StateChunk
		}{
			"limited to":  {shownTo(g, events, masks), whole.Shown(g)},
			"asking for":  {asked.Events(events), asked.Chunk(whole.Shown(&capability.Grant{}))},
			"within part": {asked.Events(shownTo(&capability.Grant{ReadKeys: []string{"part/"}}, events, masks)), asked.Chunk(whole.Shown(&capability.Grant{ReadKeys: []string{"part/"}}))},
		} {
			f, last := session.NewFold(s.session), &session.Event{}
			for _, e := range log.events {
				if err := f.Apply(e); err != nil {
					t.Fatalf("%s %q: %v", by, keys, err)
				}
				if e.Hidden && last.Hidden {
					t.Errorf("%s %q: two marks at %d and %d", by, keys, last.Cursor, e.Cursor)
				}
				of := events[e.Cursor-1]
				if masked := by != "asking for"; masked != (e.Hash != of.Hash) {
					t.Errorf("%s %q: the hash of event %d is masked: %v", by, keys, e.Cursor, !masked)
				} else if masked && e.Redacted && e.Sum == of.Sum {
					t.Errorf("%s %q: event %d is shown in part, with the hash of the whole", by, keys, e.Cursor)
				}
				s.checkKeysOf(t, fmt.Sprintf("%s %q", by, keys), keys, e)
				last = e
			}
			got, want := describeEntries(f.Entries()), describeEntries(log.state.Entries)
			if !slices.Equal(got, want) {
				t.Errorf("%s %q: the events fold to\n%q, the state is\n%q", by, keys, got, want)
			}
			var folded, stored []string
			for _, turn := range f.Turns() {
				folded = append(folded, fmt.Sprint(turn.Message, turn.Status, turn.Begun, turn.Ended))
			}
			for _, turn := range log.state.Turns {
				stored = append(stored, fmt.Sprint(turn.Message, turn.Status, turn.Begun, turn.Ended))
			}
			slices.Sort(stored)
			if !slices.Equal(folded, stored) {
				t.Errorf("%s %q: the turns are %q, stored are %q", by, keys, folded, stored)
			}
		}
	}
}

// checkKeysOf checks that an event tells of no other keys.
func (s *stamped) checkKeysOf(t *testing.T, by string, keys []string, e *session.Event) {
	t.Helper()
	var p struct {
		Entries          []struct{ Key string }
		Events           []any
		Source, External string
	}
	if e.Payload == nil || e.Hidden {
		return
	}
	if e.Method == session.MethodRevert || e.Method == session.MethodUnrevert || e.Method == session.MethodCompact {
		mustEqual(t, by+": what is told of a revert or a compaction", e.Key+string(e.Payload), `{"hidden":1}`)
		return
	}
	if err := json.Unmarshal(e.Payload, &p); err != nil {
		t.Fatal(err)
	}
	embeds := e.Method == session.MethodFinalize || e.Method == session.MethodFork
	if !embeds && !capability.CoversKey(keys, e.Key) || len(p.Events) > 0 || p.Source != "" || p.External != "" {
		t.Errorf("%s: event %d (%s) of %s shows %s", by, e.Cursor, e.Method, e.Key, e.Payload)
	}
	for _, in := range p.Entries {
		if !capability.CoversKey(keys, in.Key) {
			t.Errorf("%s: event %d (%s) embeds %s", by, e.Cursor, e.Method, in.Key)
		}
	}
}

// describeEntries returns the keys in their order, with their values.
func describeEntries(entries []*session.Entry) (all []string) {
	entries = slices.SortedFunc(slices.Values(entries), session.CompareEntries)
	for _, e := range entries {
		all = append(all, fmt.Sprintf("%s@%d %s", e.Key, e.Cursor, e.Payload))
	}
	return all
}

// What an event's hash is over cannot be guessed by who is shown a part of it: not with all
// that is shown, and a right guess at the rest.
func TestHiddenPayloadsCannotBeGuessed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var salts []string
	for range 2 {
		salts = append(salts, saltsOf(t, w.create())...)
	}
	slices.Sort(salts)
	if len(slices.Compact(salts)) != 6 {
		t.Errorf("the salts are %q", salts)
	}
}

// saltsOf are those of a session's events that are shown in part.
func saltsOf(t *testing.T, o *writer) []string {
	t.Helper()
	o.apply(op("begin", "message", "m", "payload", raw(`{"pin":1234}`)))
	o.apply(op("put", "key", "part/m/a", "payload", raw(`{"text":"5678","time":{"start":1}}`)))
	o.apply(op("appendText", "key", "part/m/a", "offset", 4, "text", "9"))
	from := o.apply(put("part/m/b"))["cursor"].(float64)
	salted := regexp.MustCompile(`,"salt":"([A-Z2-7]{26})"`)
	safe := func(e *session.Event, sum string) (salt string) {
		t.Helper()
		shown := shownTo(&capability.Grant{VisibleFrom: uint64(from)}, []*session.Event{e}, new(session.HashKey))[0]
		if !shown.Redacted || strings.Contains(string(shown.Payload), "salt") {
			t.Errorf("%s is shown as %s", e.Method, shown.Payload)
		}
		if guess := salted.ReplaceAll(e.Payload, nil); session.SumOf(guess).String() == sum {
			t.Errorf("%s: the sum is of %s", e.Method, guess)
		}
		return salted.FindStringSubmatch(string(e.Payload))[1]
	}
	o.apply(op("finalize", "message", "m", "status", "completed"))
	end := o.last()
	salts := []string{safe(end, end.Sum.String())}
	o.apply(op("purge", "key", "message/m"))
	purge := o.last()
	salts = append(salts, safe(purge, purge.Sum.String()))
	// What is left of the end of the turn has another, and so has no sum that tells of the
	// part; nor has anybody the one that the purged value was hashed with.
	var notes struct{ Events []struct{ Sum string } }
	left := o.w.store.Events(o.session)[end.Cursor-1]
	if err := json.Unmarshal(purge.Payload, &notes); err != nil || !strings.Contains(string(left.Payload), "5678") || strings.Contains(string(left.Payload), "1234") {
		t.Fatalf("the purge leaves %s: %v", left.Payload, err)
	}
	o.clean(t, "the log")
	return append(salts, safe(left, notes.Events[len(notes.Events)-1].Sum))
}

// Every method's event is shown without what is older, or of another message. A method
// that comes to be has its place here.
func TestOlderEventsAreHidden(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	source := w.stamped()
	source.begin("m1")
	source.put("m1", "old")
	source.put("m1", "purged")
	source.put("m2", "other")
	source.finalize("m1")
	f := w.newWriter()
	f.with = []string{source.ref}
	f.apply(op("fork", "source", source.session, "via", source.ref, "ref", f.ref, "hash", sha(f.ref)))
	s := &stamped{writer: f, length: map[string]int{}, forked: []string{"m1", "m2"}}
	s.apply(op("put", "key", "session", "payload", raw(`{"title":%q}`, s.stamp("info"))))
	s.put("m3", "before") // of a turn that has not begun
	s.begin("m3")
	s.put("m3", "grown")
	s.put("m3", "again")
	s.put("m3", "gone")
	s.put("m3", "given")
	s.grow("m3", "grown")
	w.lapse(true, s.session)
	s.apply(op("put", "key", "session_diff", "payload", raw(`{"x":"@%d:info@"}`, w.store.Session(s.session).Cursor+2))) // after the event that resumes it
	s.grow("m3", "grown")
	s.put("m3", "again")
	s.apply(op("remove", "key", "part/m3/gone"))
	s.put("m3", "late")
	s.finalize("m3", "given", "new")
	s.put("m3", "grown") // whole, at last
	s.apply(op("put", "key", "todo/1", "payload", raw(`{"text":%q}`, s.stamp("todo"))))
	s.apply(op("patch", "key", "todo/1", "patch", raw(`{"more":%q}`, s.stamp("todo"))))
	s.apply(op("add", "key", "todo/1", "member", "n", "by", 1))
	s.apply(op("claim", "key", "todo/1", "lease", 1000))
	w.store.Now += 1000
	w.lapse(false, s.session)
	s.apply(op("release", "key", "todo/1", "claim", s.apply(op("claim", "key", "todo/1", "lease", 1000))["claim"]))
	s.purge("part/m1/purged")
	s.purge("part/m3/given")
	s.apply(op("revert", "to", "message/m3"))
	s.apply(op("unrevert"))
	s.apply(compactOp("message/m1", "message/m3"))
	s.apply(op("revoke", "ref", s.share([]string{"read"})))
	s.apply(op("bumpEpoch"))
	s.checkVisible(t)
	source.checkVisible(t)

	seen := map[string]bool{}
	for _, id := range []string{source.session, s.session} {
		for _, e := range w.store.Events(id) {
			seen[e.Method] = true
		}
	}
	for _, method := range append(opargs.Methods(), session.MethodInterrupted, session.MethodResumed, session.MethodLapse) {
		if !seen[method] && !slices.Contains(putBy, method) && method != session.MethodDelete { // which leaves nothing to show
			t.Errorf("no event is one of %s", method)
		}
	}
}

// A fork through a limited ref has what that shows, at the end of the source's log and
// before.
func TestAForkHasWhatItsRefShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	s := w.stamped()
	s.begin("m1")
	s.put("m1", "a")
	s.put("m1", "b")
	s.grow("m1", "a")
	s.finalize("m1", "b")
	s.put("m1", "a")
	end := w.store.Session(s.session).Cursor
	for from := uint64(1); from <= end; from++ {
		via := s.share([]string{"read"}, "from", from)
		for at := uint64(1); at <= w.store.Session(s.session).Cursor; at++ {
			f := w.newWriter()
			f.with = []string{via}
			f.apply(op("fork", "source", s.session, "via", via, "ref", f.ref, "hash", sha(f.ref), "at", at))
			if first, _ := s.oldest(string(f.last().Payload)); first != 0 && first < from {
				t.Errorf("a fork at %d shows from %d what is of %d: %s", at, from, first, f.last().Payload)
			}
		}
	}
}

// The same on logs of random ops.
func TestOlderEventsOfRandomLogsAreHidden(t *testing.T) {
	t.Parallel()
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 3))
		w := newWorld(t)
		s := w.stamped()
		open := map[string]bool{}
		for range 30 {
			m, p := fmt.Sprint("m", 1+rng.IntN(2)), fmt.Sprint("p", rng.IntN(3))
			e, _ := w.store.State(s.session)
			there := slices.ContainsFunc(e, func(e *session.Entry) bool { return e.Key == "part/"+m+"/"+p })
			switch n := rng.IntN(10); {
			case n < 3:
				s.put(m, p)
				s.length[m+p] = s.length[p]
			case n < 7 && open[m] && there:
				s.length[p] = s.length[m+p]
				s.grow(m, p)
				s.length[m+p] = s.length[p]
			case n == 7 && open[m]:
				s.finalize(m, p)
				open[m] = false
				for _, e := range w.folds[s.session].Entries() {
					if parts := strings.Split(e.Key, "/"); len(parts) == 3 {
						s.length[parts[1]+parts[2]] = int(e.TextLen)
					}
				}
			case n == 8 && there:
				s.purge("part/" + m + "/" + p)
			case !open[m]:
				if t := w.folds[s.session].Turns(); !slices.ContainsFunc(t, func(t *session.Turn) bool { return t.Message == m }) {
					s.begin(m)
					open[m] = true
				}
			}
		}
		s.checkVisible(t)
	}
}
