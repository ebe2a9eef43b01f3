package session_test

// The chains that the JavaScript client is held to as well: testdata/chains.json has the hashes that this package and capability
// make of rows and states, and what is found in changed logs.
// Run with MOORING_UPDATE=1 to write it anew.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

const sharedChains = "../../testdata/chains.json"

// hexHash is a hash in JSON.
type hexHash session.Hash

func (h hexHash) MarshalText() ([]byte, error) { return []byte(session.Hash(h).String()), nil }

type sharedEvent struct {
	Cursor  uint64  `json:"cursor"`
	Method  string  `json:"method"`
	Key     string  `json:"key"`
	Schema  uint32  `json:"schema"`
	Payload string  `json:"payload"` // "" for none
	Sum     hexHash `json:"sum"`
	Ref     string  `json:"ref"`
	Actor   string  `json:"actor"`
	Outbox  string  `json:"outbox"`
	Op      string  `json:"op"`
	Batch   string  `json:"batch"`
	At      int64   `json:"at"`
	Hash    hexHash `json:"hash"`
}

type sharedLog struct {
	Name     string        `json:"name"`
	After    uint64        `json:"after"` // the cursor before the first one
	Redacted bool          `json:"redacted"`
	Cursor   uint64        `json:"cursor"` // the log's end
	Head     hexHash       `json:"head"`
	Found    []string      `json:"found"`
	Log      []sharedEvent `json:"log"`
}

type sharedAudit struct {
	Seq     uint64  `json:"seq"`
	At      int64   `json:"at"`
	Act     string  `json:"act"`
	Ref     string  `json:"ref"`
	Actor   string  `json:"actor"`
	Subject string  `json:"subject"`
	Code    uint16  `json:"code"`
	Op      string  `json:"op"`
	Cursor  uint64  `json:"cursor"`
	Count   uint32  `json:"count"`
	Peer    string  `json:"peer"`
	Prev    hexHash `json:"prev"`
	Hash    hexHash `json:"hash"`
}

type sharedEntry struct {
	Key     string         `json:"key"`
	Cursor  uint64         `json:"cursor"`
	Schema  uint32         `json:"schema"`
	Payload string         `json:"payload"`
	Claim   *session.Claim `json:"claim"`
}

type sharedTurn struct {
	Message string `json:"message"`
	Status  string `json:"status"`
	Begun   uint64 `json:"begun"`
	Ended   uint64 `json:"ended"`
}

type sharedState struct {
	Cursor  uint64        `json:"cursor"`
	Epoch   uint64        `json:"epoch"`
	Entries []sharedEntry `json:"entries"`
	Turns   []sharedTurn  `json:"turns"`
	Hash    hexHash       `json:"hash"`
}

// sharedChain is a log that hand has written: two purges, one of which has cut a finalize event.
func sharedChain() []*session.Event {
	left := `{"status":"completed","entries":[]}`
	log := []*session.Event{
		{Method: "create", Key: "session", Payload: []byte(`{"ref":"r"}`)},
		{Method: "begin", Key: "message/m", Payload: []byte(`{}`)},
		{Method: "put", Key: "part/m/p", Payload: []byte(`{"text":"ä\u2028€"}`)},
		{Method: "appendText", Key: "part/m/p", Payload: []byte(`{"offset":1,"text":"c"}`)},
		{Method: "finalize", Key: "message/m", Payload: []byte(`{"status":"completed","entries":[{"key":"part/m/p"}]}`)},
		{Method: "purge", Key: "part/m/p", Payload: []byte(`{"key":"part/m/p","events":[{"cursor":3},{"cursor":4},{"cursor":5,"sum":"` + session.SumOf([]byte(left)).String() + `"}]}`)},
		{Method: "put", Key: "todo/1", Payload: []byte(`[1]`)},
		{Method: "put", Key: "todo/2", Payload: bytes.Repeat([]byte(`7`), 600)},
	}
	var prev session.Hash
	for i, e := range log {
		e.Session, e.Cursor, e.Schema, e.Sum = "ses_x", uint64(i+1), 1, session.SumOf(e.Payload)
		e.Ref, e.Actor, e.Outbox, e.Op, e.Batch, e.At = "ses_x.o1", "ann ü", "obx_1", fmt.Sprint("op", i), "b", 1<<41+int64(i)
		e.Hash = session.HashEvent(prev, e)
		prev = e.Hash
	}
	log[2].Payload, log[3].Payload, log[4].Payload = nil, nil, []byte(left)
	return log
}

func sharedLogs() []sharedLog {
	type change func(log []*session.Event) []*session.Event
	at := func(i int, f func(e *session.Event)) change {
		return func(log []*session.Event) []*session.Event { f(log[i]); return log }
	}
	swap := func(i, j int) change {
		return func(log []*session.Event) []*session.Event {
			log[i], log[j] = log[j], log[i]
			log[i].Cursor, log[j].Cursor = uint64(i+1), uint64(j+1)
			return log
		}
	}
	var out []sharedLog
	add := func(name string, after uint64, redacted bool, cursor uint64, c change) {
		log := sharedChain()
		head := log[cursor-1].Hash
		log = c(log)
		v := session.NewVerifierAfter(after)
		if redacted {
			v.AllowRedacted()
		}
		v.Add(log)
		v.End(cursor, head)
		l := sharedLog{Name: name, After: after, Redacted: redacted, Cursor: cursor, Head: hexHash(head), Found: []string{}}
		for _, e := range log {
			l.Log = append(l.Log, sharedEvent{e.Cursor, e.Method, e.Key, e.Schema, string(e.Payload), hexHash(e.Sum), e.Ref, e.Actor, e.Outbox, e.Op, e.Batch, e.At, hexHash(e.Hash)})
		}
		for _, f := range v.Findings() {
			l.Found = append(l.Found, fmt.Sprint(f.Cursor, " ", f.What))
		}
		out = append(out, l)
	}
	same := func(log []*session.Event) []*session.Event { return log }
	add("as it was written", 0, false, 8, same)
	add("from the middle", 4, false, 8, func(log []*session.Event) []*session.Event { return log[4:] })
	add("another payload", 0, false, 8, at(6, func(e *session.Event) { e.Payload = []byte(`[2]`) }))
	add("no payload", 0, false, 8, at(6, func(e *session.Event) { e.Payload = nil }))
	add("another payload and its sum", 0, false, 8, at(6, func(e *session.Event) { e.Payload = []byte(`[2]`); e.Sum = session.SumOf(e.Payload) }))
	add("another actor", 0, false, 8, at(3, func(e *session.Event) { e.Actor = "x" }))
	add("another hash", 0, false, 8, at(3, func(e *session.Event) { e.Hash[0]++ }))
	add("another time at the end", 0, false, 8, at(7, func(e *session.Event) { e.At++ }))
	add("another hash at the end", 0, false, 8, at(7, func(e *session.Event) { e.Hash[0]++ }))
	add("one is missing", 0, false, 8, func(log []*session.Event) []*session.Event { return slices.Delete(log, 6, 7) })
	add("two are missing", 0, false, 8, func(log []*session.Event) []*session.Event { return slices.Delete(log, 2, 4) })
	add("the first is missing", 0, false, 8, func(log []*session.Event) []*session.Event { return log[1:] })
	add("the last is missing", 0, false, 8, func(log []*session.Event) []*session.Event { return log[:7] })
	add("there are more", 0, false, 7, same)
	add("one again", 0, false, 8, func(log []*session.Event) []*session.Event { return append(log, log[3]) })
	add("neighbours are swapped", 0, false, 8, swap(6, 7))
	add("two are swapped", 0, false, 8, swap(1, 6))
	add("another purge", 0, false, 8, at(5, func(e *session.Event) { e.Payload = []byte(`{}`) }))
	add("a purge that cannot be read", 0, false, 8, at(5, func(e *session.Event) { e.Payload = []byte(`[]`); e.Sum = session.SumOf(e.Payload) }))
	add("what a purge has left", 0, false, 8, at(4, func(e *session.Event) { e.Payload = []byte(`{}`) }))
	add("a purge is undone", 0, false, 8, at(2, func(e *session.Event) { e.Payload = []byte(`{"text":"ä\u2028€"}`) }))
	add("redacted", 4, true, 8, func(log []*session.Event) []*session.Event {
		log[4].Payload, log[5].Payload = []byte(`{"status":"completed","hidden":1}`), []byte(`{"key":"part/m/p","events":[{"cursor":5}],"hidden":2}`)
		return log[4:]
	})
	add("a payload that a deletion has left", 0, false, 8, at(7, func(e *session.Event) { e.Method = "delete" }))
	return out
}

// TestSharedChains checks that testdata/chains.json has what this package makes of it.
func TestSharedChains(t *testing.T) {
	t.Parallel()
	var lines []string
	for _, l := range sharedLogs() {
		lines = append(lines, line(t, "log", l))
	}
	for i, r := range []capability.AuditRow{
		{Seq: 1, At: 1 << 41, Act: capability.AuditShare, Ref: "ses_x.o1", Actor: "ann", Subject: "ses_x.o2", Op: "op", Cursor: 3, Peer: "127.0.0.1:9"},
		{Seq: 2, At: 1<<41 + 1, Act: capability.AuditDenial, Ref: "ses_x.o2", Subject: "events", Reason: fault.MissingRight, Count: 7},
		{Seq: 1 << 40, Act: capability.AuditPurge, Actor: "ü\U0001f600", Cursor: 1 << 52},
	} {
		r.Target = "ses_x"
		prev := session.Hash{byte(i)}
		lines = append(lines, line(t, "audit", sharedAudit{r.Seq, r.At, r.Act.String(), r.Ref, r.Actor, r.Subject, uint16(r.Reason), r.Op, r.Cursor, r.Count, r.Peer,
			hexHash(prev), hexHash(capability.HashAuditRow(prev, &r))}))
	}
	for _, s := range []struct {
		cursor, epoch uint64
		entries       []*session.Entry
		turns         []*session.Turn
	}{
		{1, 1, nil, nil},
		{9, 3, []*session.Entry{
			{Key: "todo/2", Cursor: 7, Schema: 2, Payload: []byte(`"ü"`), Claim: &session.Claim{Cursor: 8, Until: 1 << 41, Outbox: "obx_1~ABCDEFGHIJKLMNOPQRSTUVWXYZ", Worker: "w"}},
			{Key: "message/m", Cursor: 2, Schema: 1, Payload: []byte(`{}`)},
		}, []*session.Turn{
			{Message: "m", Status: session.Streaming, Begun: 2}, {Message: "n", Status: session.Interrupted, Begun: 3}, {Message: "o", Status: session.Aborted, Begun: 4, Ended: 6},
		}},
	} {
		shared := sharedState{Cursor: s.cursor, Epoch: s.epoch, Entries: []sharedEntry{}, Turns: []sharedTurn{}, Hash: hexHash(session.StateHash(s.cursor, s.epoch, session.Live, s.entries, s.turns))}
		for _, e := range s.entries {
			shared.Entries = append(shared.Entries, sharedEntry{e.Key, e.Cursor, e.Schema, string(e.Payload), e.Claim})
		}
		for _, turn := range s.turns {
			shared.Turns = append(shared.Turns, sharedTurn{turn.Message, turn.Status.String(), turn.Begun, turn.Ended})
		}
		lines = append(lines, line(t, "state", shared))
	}
	want := "[\n" + strings.Join(lines, ",\n") + "\n]\n"
	if os.Getenv("MOORING_UPDATE") != "" {
		if err := os.WriteFile(sharedChains, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(sharedChains); err != nil || string(got) != want {
		t.Errorf("%s does not have what this package makes of it (%v): run this test with MOORING_UPDATE=1, and then the JavaScript client's", sharedChains, err)
	}
}

// line returns one case as JSON.
func line(t *testing.T, kind string, of any) string {
	text, err := json.Marshal(map[string]any{kind: of})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
