package decide_test

// What a verifier says of a log that is not what was written.

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
)

// verified is a log with two purges, one of which cut a finalize event, as rows,
// and what its session's row says of its end.
func verified(t *testing.T) ([]*session.Event, *session.Row) {
	w := newWorld(t)
	o := w.create()
	for _, x := range []anOp{
		op("begin", "message", "m", "payload", raw(`{}`)), // 2
		op("put", "key", "part/m/p", "payload", raw(`{"text":"a"}`)),
		op("put", "key", "part/m/q", "payload", raw(`{"text":"b","state":{"status":"running"}}`)),
		op("appendText", "key", "part/m/p", "offset", 1, "text", "c"),
		op("finalize", "message", "m", "status", "completed"), // 6
		op("purge", "key", "part/m/p"),                        // 7
		op("purge", "key", "part/m/q"),                        // 8
		op("put", "key", "message/n", "payload", raw(`{"n":1}`)),
		op("put", "key", "message/o", "payload", raw(`{"n":2}`)), // 10
	} {
		o.apply(x)
	}
	return w.store.Events(o.session), w.store.Session(o.session)
}

// TestVerifierNamesWhatIsWrong: each kind of change by hand, at its cursor, in
// pieces of every size.
func TestVerifierNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	swap := func(i, j int) func([]*session.Event) []*session.Event {
		return func(log []*session.Event) []*session.Event {
			log[i], log[j] = log[j], log[i]
			log[i].Cursor, log[j].Cursor = uint64(i+1), uint64(j+1)
			return log
		}
	}
	for name, c := range map[string]struct {
		change func([]*session.Event) []*session.Event
		want   []string
	}{
		"nothing":         {func(log []*session.Event) []*session.Event { return log }, nil},
		"payload":         {func(log []*session.Event) []*session.Event { log[8].Payload = []byte(`{"n":3}`); return log }, []string{"9 has another payload"}},
		"no payload":      {func(log []*session.Event) []*session.Event { log[8].Payload = nil; return log }, []string{"9 has lost its payload"}},
		"actor":           {func(log []*session.Event) []*session.Event { log[3].Actor = "x"; return log }, []string{"4 was changed"}},
		"hash":            {func(log []*session.Event) []*session.Event { log[3].Hash[0]++; return log }, []string{"4 was changed"}},
		"two rows":        {func(log []*session.Event) []*session.Event { log[1].At++; log[8].Ref = ""; return log }, []string{"2 was changed", "9 was changed"}},
		"one missing":     {func(log []*session.Event) []*session.Event { return slices.Delete(log, 8, 9) }, []string{"9 is missing"}},
		"two missing":     {func(log []*session.Event) []*session.Event { return slices.Delete(log, 2, 4) }, []string{"3 is missing, and all up to event 4"}},
		"first missing":   {func(log []*session.Event) []*session.Event { return log[1:] }, []string{"1 is missing"}},
		"last missing":    {func(log []*session.Event) []*session.Event { return log[:9] }, []string{"10 is missing"}},
		"last missing, 3": {func(log []*session.Event) []*session.Event { return log[:7] }, []string{"4 has lost", "6 has another", "8 is missing, and all up to event 10"}},
		"one too many":    {func(log []*session.Event) []*session.Event { return append(log, &session.Event{Cursor: 11}) }, []string{"11 "}},
		"neighbours":      {swap(3, 4), []string{"4 is out of order: it belongs at 5", "5 is out of order: it belongs at 4"}},
		"far apart":       {swap(1, 8), []string{"2 is out of order: it belongs at 9", "9 is out of order: it belongs at 2"}},
		"purge":           {func(log []*session.Event) []*session.Event { log[6].Payload = []byte(`{}`); return log }, []string{"3 has lost", "5 has lost", "7 has another payload"}},
		"what a purge left": {func(log []*session.Event) []*session.Event {
			log[5].Payload = []byte(`{"status":"completed","entries":[]}`)
			return log
		}, []string{"6 has another payload"}},
		"purge undone": {func(log []*session.Event) []*session.Event {
			log[2].Payload = []byte(`{"text":"a"}`)
			return log
		}, []string{"3 has its payload, which event 7 purged"}},
	} {
		for piece := 1; piece <= 11; piece += 5 {
			log, row := verified(t)
			log = c.change(log)
			v := session.NewVerifier(session.Hash{}, 0)
			for part := range slices.Chunk(log, piece) {
				v.Add(part)
			}
			v.End(row.Cursor, row.Head)
			found := v.Findings()
			ok := len(found) == len(c.want)
			for i := range min(len(found), len(c.want)) {
				ok = ok && strings.HasPrefix(finding(found[i]), c.want[i])
			}
			if !ok {
				t.Errorf("%s, in pieces of %d: %v", name, piece, found)
			}
			if (v.Err() == nil) != (len(c.want) == 0) {
				t.Errorf("%s: %v", name, v.Err())
			}
		}
	}
}

func finding(f session.Finding) string {
	return fmt.Sprint(f.Cursor, " ", f.What)
}

// A log that starts anywhere is checked from there on; what a purge says of
// events before it does not matter.
func TestVerifierFromTheMiddle(t *testing.T) {
	t.Parallel()
	log, row := verified(t)
	for from := range log {
		v := session.NewVerifierAfter(uint64(from))
		v.Add(log[from:])
		v.End(row.Cursor, row.Head)
		if err := v.Err(); err != nil || v.Head() != row.Head || v.Cursor() != row.Cursor {
			t.Errorf("from %d: %v", from, err)
		}
		if from > 0 {
			v = session.NewVerifier(log[from-1].Hash, uint64(from))
			v.Add(log[from:])
			if err := v.Err(); err != nil {
				t.Errorf("from the checkpoint at %d: %v", from, err)
			}
			v = session.NewVerifier(session.Hash{1}, uint64(from))
			v.Add(log[from:])
			if err := v.Err(); err == nil {
				t.Errorf("from a wrong checkpoint at %d it fits", from)
			}
		}
	}
	for what, known := range map[string]func(v *session.Verifier){
		"10 is not the one that the session ends with":              func(v *session.Verifier) { v.End(row.Cursor, session.Hash{}) },
		"9 is there, although the session has come to event 8 only": func(v *session.Verifier) { v.End(8, log[7].Hash) },
		"11 is missing, and all up to event 12":                     func(v *session.Verifier) { v.End(12, session.Hash{}) },
		"5 is not the one that the session was at":                  func(v *session.Verifier) { v.Expect(4, log[3].Hash); v.Expect(5, log[3].Hash) },
	} {
		v := session.NewVerifier(session.Hash{}, 0)
		if !strings.HasPrefix(what, "5") {
			v.Add(log)
		}
		known(v)
		if strings.HasPrefix(what, "5") {
			v.Add(log)
		}
		if found := v.Findings(); len(found) != 1 || finding(found[0]) != what {
			t.Errorf("%v, want %s", found, what)
		}
	}
	// What comes again, or behind what came later, is none of the log.
	v := session.NewVerifier(session.Hash{}, 0)
	v.Add(log)
	again := *log[3]
	again.Payload = []byte("x")
	v.Add([]*session.Event{&again})
	if found := v.Findings(); len(found) != 1 || finding(found[0]) != "4 is out of order" || v.Cursor() != row.Cursor || v.Head() != row.Head {
		t.Errorf("one again: %v", found)
	}
}

// A deleted session's log verifies without its payloads, and not with one.
func TestVerifierOfDeleted(t *testing.T) {
	t.Parallel()
	o := story(t)
	put := len(o.w.store.Events(o.session)) - 1
	payload := o.w.store.Events(o.session)[put].Payload
	o.apply(op("delete"))
	log, row := o.w.store.Events(o.session), o.w.store.Session(o.session)
	v := session.NewVerifier(session.Hash{}, 0)
	v.Add(log)
	v.End(row.Cursor, row.Head)
	if err := v.Err(); err != nil {
		t.Fatal(err)
	}
	log[put].Payload = payload
	v = session.NewVerifier(session.Hash{}, 0)
	v.Add(log)
	if found := v.Findings(); len(found) != 1 || found[0].Cursor != uint64(put+1) {
		t.Errorf("with a payload: %v", found)
	}
}
