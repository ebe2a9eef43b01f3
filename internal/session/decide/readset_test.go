package decide

// What a group asks the store for before anything is decided: every lock that it
// takes, and the rows that its ops are seen to need.

import (
	"reflect"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
)

func TestFirstWant(t *testing.T) {
	t.Parallel()
	const ses, other, spc = "ses_01J00000000000000000000001", "ses_01J00000000000000000000002", "spc_01J00000000000000000000003"
	const own, via, clerk, ref = ses + ".s01J00000000000000000000004", other + ".s01J00000000000000000000005", spc + ".s01J00000000000000000000006", ses + ".s01J00000000000000000000007"
	blanks := strings.Repeat(" ", opargs.MaxPeekBytes)
	op := func(method string, args ...any) ledger.Intent {
		return ledger.Intent{Method: method, Args: ledgertest.Args(args...)}
	}
	raw := func(name, text string) ledger.Intent {
		return ledger.Intent{Method: session.MethodPut, Args: []ledger.Arg{{Name: name, JSON: []byte(text)}}}
	}
	streams := []session.StreamKey{{Session: ses, Outbox: "obx"}}
	acked := []session.RecordRange{{Stream: streams[0], From: 7, To: 7}}
	heads := func(keys ...string) map[string][]string { return map[string][]string{ses: keys} }
	// stream is what any batch wants, with more.
	stream := func(change func(w *session.ReadSet)) session.ReadSet {
		w := session.ReadSet{Sessions: []string{ses}, Streams: streams, Records: acked, Turns: []string{ses}, Grants: []string{own}}
		change(&w)
		return w
	}
	none := func(*session.ReadSet) {}
	for name, c := range map[string]struct {
		sub  Submission
		ops  []ledger.Intent
		want session.ReadSet
	}{
		"void": {Submission{}, []ledger.Intent{op("void")}, stream(none)},
		"put": {Submission{}, []ledger.Intent{op("put", "key", "part/m/p"), op("put", "key", "message/a"), op("put", "key", "part/m/p")},
			stream(func(w *session.ReadSet) { w.EntryMeta = heads("message/a", "part/m/p") })},
		"put, key too long to be looked at": {Submission{}, []ledger.Intent{raw("key", blanks+`"session"`), raw("key", blanks[9:]+`"session"`)}, stream(func(w *session.ReadSet) { w.EntryMeta = heads("session") })},
		"put, no key":                       {Submission{}, []ledger.Intent{raw("key", "\"\xff\""), raw("key", `"session" x`), op("put", "key", "ref/x"), op("put", "key", ledger.Ref{Op: "x"})}, stream(none)},
		"remove": {Submission{}, []ledger.Intent{op("remove", "key", "message/a"), op("remove", "key", "part/m/p")},
			stream(func(w *session.ReadSet) { w.EntryMeta, w.TurnsOf = heads("message/a", "part/m/p"), heads("a") })},
		"purge":      {Submission{}, []ledger.Intent{op("purge", "key", "message/a")}, stream(func(w *session.ReadSet) { w.EntryMeta = heads("message/a") })},
		"appendText": {Submission{}, []ledger.Intent{op("appendText", "key", "part/m/p")}, stream(func(w *session.ReadSet) { w.EntryMeta, w.TurnsOf = heads("part/m/p"), heads("m") })},
		"begin": {Submission{}, []ledger.Intent{op("begin", "message", "m"), op("begin", "message", "a b")}, stream(func(w *session.ReadSet) {
			w.TurnsOf, w.EntryMeta, w.CountedTurns = heads("m"), heads("message/m"), w.Turns
		})},
		"finalize": {Submission{}, []ledger.Intent{op("finalize", "message", "m")}, stream(func(w *session.ReadSet) { w.TurnsOf, w.EntryMeta = heads("m"), heads("message/m") })},
		"share":    {Submission{}, []ledger.Intent{op("share", "ref", ref)}, stream(func(w *session.ReadSet) { w.Grants = []string{own, ref} })},
		"revoke":   {Submission{}, []ledger.Intent{op("revoke", "ref", ref)}, stream(func(w *session.ReadSet) { w.Grants, w.Lineages = nil, []string{own, ref} })},
		"create": {Submission{Space: clerk}, []ledger.Intent{op("create", "ref", own, "external", "x"), op("put", "key", "session")},
			stream(func(w *session.ReadSet) {
				w.Spaces, w.Grants, w.External, w.EntryMeta = []string{spc}, []string{own, clerk}, []session.ExternalID{{Space: spc, SpaceRef: clerk, ID: "x"}}, heads("session")
			})},
		"create, a namesake": {Submission{Space: clerk, Direct: &Direct{Ops: true, SharedExternalID: true}}, []ledger.Intent{op("create", "ref", own, "external", "x")},
			session.ReadSet{Sessions: []string{ses}, Spaces: []string{spc}, Grants: []string{own, clerk}}},
		"create, external no text": {Submission{Space: clerk}, []ledger.Intent{op("create", "ref", own, "external", "\x00")},
			stream(func(w *session.ReadSet) { w.Spaces, w.Grants = []string{spc}, []string{own, clerk} })},
		"create, no space": {Submission{}, []ledger.Intent{op("create", "ref", own, "external", "x")}, stream(none)},
		"after a create":   {Submission{Space: clerk}, []ledger.Intent{op("put", "key", "session")}, stream(func(w *session.ReadSet) { w.EntryMeta = heads("session") })},
		"fork": {Submission{Space: clerk, PassedRefs: []string{via}}, []ledger.Intent{op("fork", "ref", own, "source", other, "via", via)},
			stream(func(w *session.ReadSet) {
				w.Spaces, w.Sessions, w.Grants = []string{spc}, []string{ses, other}, []string{own, via, clerk}
			})},
		"fork of what did not come along": {Submission{Space: clerk}, []ledger.Intent{op("fork", "ref", own, "source", other, "via", via)},
			stream(func(w *session.ReadSet) { w.Spaces, w.Grants = []string{spc}, []string{own, via, clerk} })},
		"what comes along": {Submission{PassedRefs: []string{via, "x"}}, []ledger.Intent{op("void")}, stream(func(w *session.ReadSet) { w.Grants = []string{own, via} })},
		"acknowledge":      {Submission{Ack: true}, nil, session.ReadSet{Sessions: []string{ses}, Streams: streams, Records: acked}},
		"direct revoke":    {Submission{Direct: &Direct{Ref: ref}}, nil, session.ReadSet{Sessions: []string{ses}, Lineages: []string{own, ref}}},
		"direct bump":      {Submission{Direct: &Direct{Epoch: true}}, nil, session.ReadSet{Sessions: []string{ses}, Grants: []string{own}}},
		"direct share":     {Submission{Direct: &Direct{Share: &capability.MintRequest{ID: ref}}}, nil, session.ReadSet{Sessions: []string{ses}, Grants: []string{own, ref}}},
		"direct rotation":  {Submission{Direct: &Direct{Rotate: &Rotation{ID: ref}}}, nil, session.ReadSet{Sessions: []string{ses}, Lineages: []string{own, ref}}},
		"direct ops":       {Submission{Direct: &Direct{Ops: true}}, []ledger.Intent{op("remove", "key", "message/a")}, session.ReadSet{Sessions: []string{ses}, Grants: []string{own}, EntryMeta: heads("message/a"), TurnsOf: heads("a")}},
	} {
		c.sub.Ref = own
		c.sub.Batch = ledger.Batch{Session: ses, Outbox: "obx", AckedThrough: 7, Ops: c.ops}
		got := *initialReadSet([]Submission{c.sub, c.sub}) // what is wanted twice is asked for once
		for _, m := range []*map[string][]string{&got.EntryMeta, &got.TurnsOf} {
			if len(*m) == 0 {
				*m = nil
			}
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, c.want)
		}
	}
	two := initialReadSet([]Submission{{Batch: ledger.Batch{Session: other, Outbox: "a"}}, {Batch: ledger.Batch{Session: ses, Outbox: "b"}}, {Batch: ledger.Batch{Session: ses, Outbox: "a"}}})
	if want := []session.StreamKey{{Session: ses, Outbox: "a"}, {Session: ses, Outbox: "b"}, {Session: other, Outbox: "a"}}; !reflect.DeepEqual(two.Streams, want) || !reflect.DeepEqual(two.Sessions, []string{ses, other}) {
		t.Errorf("in no order: %+v", two)
	}
}

// However far apart the seqs are that a group names, what lies between them is not
// read: a stream may have 300,000 records.
func TestRecordsAreReadNearWhatIsNamed(t *testing.T) {
	t.Parallel()
	const last = 300_000
	key := session.StreamKey{Session: "ses", Outbox: "obx"}
	batch := func(acked uint64, seqs ...uint64) Submission {
		b := ledger.Batch{Session: key.Session, Outbox: key.Outbox, AckedThrough: acked}
		for _, seq := range seqs {
			b.Ops = append(b.Ops, ledger.Intent{Seq: seq})
		}
		return Submission{Batch: b}
	}
	v := view.New(t.Context(), nil, 0)
	v.Streams[key] = &view.Stream{Row: ledger.Stream{LastSeq: last}}
	for name, subs := range map[string][]Submission{
		"seqs that are not consecutive": {batch(0, 1, last)},
		"seqs that go back":             {batch(0, last, 1)},
		"a batch that is far too long":  {batch(0, make([]uint64, ledger.MaxFrameOps+1)...)},
		"repeats far apart":             {batch(0, 1), batch(0, last), batch(0, 2), batch(0, last/2)},
		"acknowledgements far apart":    {batch(1, last+1), batch(last, last+2), batch(2, last+3)},
	} {
		wants := []*session.ReadSet{initialReadSet(subs)}
		if w := recordReadSet(v, subs); w != nil {
			wants = append(wants, w)
		}
		named, ranges := map[uint64]bool{}, 0
		for _, w := range wants {
			for i, r := range w.Records {
				if ranges++; r.To-r.From > 10 || i > 0 && r.From <= w.Records[i-1].To {
					t.Errorf("%s: %+v", name, w.Records)
				}
				for seq := r.From; seq <= r.To; seq++ {
					named[seq] = true
				}
			}
		}
		for _, sub := range subs {
			if acked := sub.Batch.AckedThrough; acked > 0 && !named[acked] {
				t.Errorf("%s: %d is not read", name, acked)
			}
			if n := len(sub.Batch.Ops); n == 1 && sub.Batch.Ops[0].Seq <= last && !named[sub.Batch.Ops[0].Seq] {
				t.Errorf("%s: %d is not read", name, sub.Batch.Ops[0].Seq)
			}
		}
		if ranges > 3 {
			t.Errorf("%s: %d ranges", name, ranges)
		}
	}
	// What stands side by side is read at once.
	if w := recordReadSet(v, []Submission{batch(0, 5, 6), batch(0, 9), batch(0, 7)}); len(w.Records) != 1 || w.Records[0].From != 5 || w.Records[0].To != 9 {
		t.Errorf("side by side: %+v", w.Records)
	}
}
