package decide

// The rows that a group of submissions needs, as far as their arguments show before anything is
// read. The view reads further rows when an op needs them, but takes no more locks: sessions and
// spaces are locked here or not at all.

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/internal/session/view"
	"github.com/mooring-rpc/mooring/ledger"
)

// readSetBuilder collects a ReadSet without duplicates.
type readSetBuilder struct {
	spaces, sessions    map[string]struct{}
	others              map[string]struct{}
	streams             map[session.StreamKey]struct{}
	records             recordRanges
	grants              map[string]struct{}
	entryMeta           map[string][]string // with duplicates
	turnsOf             map[string]map[string]struct{}
	external            map[session.ExternalID]struct{}
	turns, countedTurns map[string]struct{}
	streamingTurns      map[string]struct{}
	validUntil          int64
	ordered, requests   map[string]struct{}
	revokes             bool // some op revokes: the lineages of refs are needed
}

func newReadSetBuilder() *readSetBuilder {
	return &readSetBuilder{
		spaces: map[string]struct{}{}, sessions: map[string]struct{}{}, others: map[string]struct{}{}, streams: map[session.StreamKey]struct{}{},
		records: recordRanges{}, grants: map[string]struct{}{},
		entryMeta: map[string][]string{}, turnsOf: map[string]map[string]struct{}{},
		external: map[session.ExternalID]struct{}{}, turns: map[string]struct{}{}, countedTurns: map[string]struct{}{}, streamingTurns: map[string]struct{}{}, ordered: map[string]struct{}{}, requests: map[string]struct{}{},
	}
}

// initialReadSet returns the group's first Load, with all locks.
func initialReadSet(subs []Submission) *session.ReadSet {
	w := newReadSetBuilder()
	for i := range subs {
		w.addSubmission(&subs[i])
	}
	return w.build()
}

func add(m map[string]map[string]struct{}, outer, inner string) {
	if m[outer] == nil {
		m[outer] = map[string]struct{}{}
	}
	m[outer][inner] = struct{}{}
}

func (w *readSetBuilder) addSubmission(sub *Submission) {
	b := &sub.Batch
	w.sessions[b.Session] = struct{}{}
	if sub.Reach {
		w.others[capability.Target(sub.Ref)] = struct{}{}
	}
	for _, narrow := range []*capability.Grant{sub.Attenuated, sub.Outer} {
		if narrow != nil && narrow.Expires > 0 && (w.validUntil == 0 || narrow.Expires < w.validUntil) {
			w.validUntil = narrow.Expires
		}
	}
	if sub.Direct != nil && sub.Direct.Ops {
		w.addRef(sub.Ref)
		w.addOps(sub)
		return
	}
	if sub.Direct != nil && sub.Direct.Older != nil {
		w.addOlder(sub)
		return
	}
	if sub.Direct != nil {
		w.addRef(sub.Ref)
		w.addRef(sub.Direct.Ref)
		if r := sub.Direct.Rotate; r != nil {
			w.addRef(r.ID)
			w.addRef(r.Old)
		}
		if m := sub.Direct.Share; m != nil {
			w.addRef(m.ID)
			return
		}
		w.revokes = w.revokes || !sub.Direct.Epoch
		return
	}
	key := session.StreamKey{Session: b.Session, Outbox: b.Outbox}
	w.streams[key] = struct{}{}
	if b.AckedThrough > 0 { // its op's id and digest are stored in the stream's row
		w.records.add(key, b.AckedThrough, b.AckedThrough)
	}
	if sub.Ack {
		return
	}
	w.addRef(sub.Ref)
	w.turns[b.Session] = struct{}{}
	w.addOps(sub)
}

// addOlder adds what a removal in an old session reads. Its ref need not have opened the session: so the
// space is locked, which whoever ends the ref waits for.
func (w *readSetBuilder) addOlder(sub *Submission) {
	w.spaces[capability.Target(sub.Ref)] = struct{}{}
	w.addRef(sub.Ref)
	w.streamingTurns[sub.Batch.Session] = struct{}{}
	if key := sub.Direct.Older.Key; key != "" {
		w.entryMeta[sub.Batch.Session] = append(w.entryMeta[sub.Batch.Session], key)
	}
}

// addOps adds the rows that a batch's ops read.
func (w *readSetBuilder) addOps(sub *Submission) {
	b := &sub.Batch
	for _, id := range sub.PassedRefs {
		w.addRef(id)
	}
	// Only ops that create a session use the space's ref; for a later op after a refused create,
	// its row is read then.
	if space := capability.Target(sub.Space); space != "" && slices.ContainsFunc(b.Ops, createsSession) {
		w.spaces[space] = struct{}{}
		w.addRef(sub.Space)
	}
	for i := range b.Ops {
		w.addOp(sub, &b.Ops[i])
	}
}

// createsSession reports whether op creates a session.
func createsSession(op ledger.Intent) bool {
	return op.Method == session.MethodCreate || op.Method == session.MethodFork
}

// recordRanges are the ranges of records to read, by stream.
type recordRanges map[session.StreamKey][]session.RecordRange

// add adds seqs from from to to. Ranges are merged while the result is no longer than a batch may
// be: everything between distant ranges must not be read too, or two acknowledgements could read
// 300,000 records.
func (m recordRanges) add(key session.StreamKey, from, to uint64) {
	for i := range m[key] {
		r := &m[key][i]
		if first, last := min(r.From, from), max(r.To, to); last-first < ledger.MaxFrameOps {
			r.From, r.To = first, last
			return
		}
	}
	m[key] = append(m[key], session.RecordRange{Stream: key, From: from, To: to})
}

// list returns all ranges, in order.
func (m recordRanges) list() (all []session.RecordRange) {
	for _, of := range m {
		all = append(all, of...)
	}
	slices.SortFunc(all, func(a, b session.RecordRange) int {
		return cmp.Or(view.CompareStreams(a.Stream, b.Stream), cmp.Compare(a.From, b.From))
	})
	return all
}

func (w *readSetBuilder) addRef(id string) {
	if capability.Target(id) != "" {
		w.grants[id] = struct{}{}
	}
}

// addOp adds the rows of one op: of the frequent methods, and all locks.
func (w *readSetBuilder) addOp(sub *Submission, op *ledger.Intent) {
	ses := sub.Batch.Session
	switch op.Method {
	case session.MethodAsk, session.MethodAnswer, session.MethodWithdraw, session.MethodClaim, session.MethodRelease:
		if id := opargs.Text(op, "request"); session.ValidID(id, false) {
			w.requests[ses] = struct{}{}
			w.entryMeta[ses] = append(w.entryMeta[ses], session.RequestKey(id), session.RequestStateKey(id))
		}
	}
	switch op.Method {
	case session.MethodPut, session.MethodRemove, session.MethodPatch, session.MethodAdd, session.MethodClaim, session.MethodRelease, session.MethodPurge:
		text := opargs.Text(op, "key")
		if k, err := session.ParseKey(text); err == nil {
			w.entryMeta[ses] = append(w.entryMeta[ses], text)
			if k.Kind == session.KeyOwn && op.Method != session.MethodRemove && op.Method != session.MethodPurge {
				w.entryMeta[ses] = append(w.entryMeta[ses], session.SchemaKey(text))
			}
			if op.Method == session.MethodRemove && k.Kind == session.KeyMessage {
				add(w.turnsOf, ses, k.Message)
			}
		}
	case session.MethodAppendText:
		text := opargs.Text(op, "key")
		if k, err := session.ParseKey(text); err == nil {
			w.entryMeta[ses] = append(w.entryMeta[ses], text)
			add(w.turnsOf, ses, k.Message)
		}
	case session.MethodBegin, session.MethodFinalize:
		if op.Method == session.MethodBegin {
			w.countedTurns[ses] = struct{}{}
		}
		if m := opargs.Text(op, "message"); session.ValidID(m, false) {
			w.entryMeta[ses] = append(w.entryMeta[ses], session.MessageKey(m))
			add(w.turnsOf, ses, m)
		}
	case session.MethodRevert:
		w.ordered[ses] = struct{}{}
		w.turns[ses] = struct{}{}
		if k, err := session.ParseKey(opargs.Text(op, "to")); err == nil {
			w.entryMeta[ses] = append(w.entryMeta[ses], k.String())
		}
	case session.MethodCompact:
		w.ordered[ses] = struct{}{}
		for _, name := range []string{"upto", "summary"} {
			if k, err := session.ParseKey(opargs.Text(op, name)); err == nil {
				w.entryMeta[ses] = append(w.entryMeta[ses], k.String())
			}
		}
		if k, err := session.ParseKey(opargs.Text(op, "summary")); err == nil && k.Kind == session.KeyMessage {
			add(w.turnsOf, ses, k.Message)
		}
	case session.MethodShare:
		w.addRef(opargs.Text(op, "ref"))
	case session.MethodRevoke:
		w.addRef(opargs.Text(op, "ref"))
		w.revokes = true
	case session.MethodCreate, session.MethodFork:
		w.addRef(opargs.Text(op, "ref"))
		if x := opargs.Text(op, "external"); x != "" && !strings.ContainsFunc(x, opargs.Unprintable) && !sub.sharesExternalID() && !opargs.HasArgument(op, "shared_external") {
			if space := capability.Target(sub.Space); space != "" {
				w.external[session.ExternalID{Space: space, SpaceRef: sub.Space, ID: x}] = struct{}{}
			}
		}
		other := "source"
		if op.Method == session.MethodCreate {
			other = "parent"
		}
		w.addRef(opargs.Text(op, "via"))
		// Only a session whose live object was passed is locked.
		if source := opargs.Text(op, other); slices.ContainsFunc(sub.PassedRefs, func(id string) bool { return capability.Target(id) == source }) && source != "" {
			w.sessions[source] = struct{}{}
			if opargs.HasArgument(op, "message") {
				w.ordered[source] = struct{}{}
			}
		}
	}
}

func (w *readSetBuilder) build() *session.ReadSet {
	out := &session.ReadSet{
		Spaces:       sorted(w.spaces),
		Sessions:     sorted(w.sessions),
		Others:       sorted(w.others),
		EntryMeta:    w.entryMeta,
		TurnsOf:      sortedMap(w.turnsOf),
		External:     slices.SortedFunc(maps.Keys(w.external), compareExternals),
		Turns:        sorted(w.turns),
		CountedTurns: sorted(w.countedTurns),
		Ordered:      sorted(w.ordered),
		ValidUntil:   w.validUntil,

		StreamingTurns: sorted(w.streamingTurns),
		Requests:       sorted(w.requests),
	}
	for ses, keys := range w.entryMeta {
		slices.Sort(keys)
		w.entryMeta[ses] = slices.Compact(keys)
	}
	if w.revokes {
		out.Lineages = sorted(w.grants)
	} else {
		out.Grants = sorted(w.grants)
	}
	for k := range w.streams {
		out.Streams = append(out.Streams, k)
	}
	slices.SortFunc(out.Streams, view.CompareStreams)
	out.Records = w.records.list()
	return out
}

// recordReadSet returns the second Load, nil if there is nothing to read: the records that answer
// repeated batches, and the records of referenced ops.
func recordReadSet(v *view.View, subs []Submission) *session.ReadSet {
	ranges := recordRanges{}
	ops := map[session.StreamKey]map[string]struct{}{}
	for i := range subs {
		b := &subs[i].Batch
		if len(b.Ops) == 0 || len(b.Ops) > ledger.MaxFrameOps || subs[i].Direct != nil || subs[i].Ack {
			continue
		}
		key := session.StreamKey{Session: b.Session, Outbox: b.Outbox}
		st := v.Streams[key]
		if st == nil {
			continue
		}
		// A batch's seqs are consecutive, or it is refused without reading any record.
		if first := b.Ops[0].Seq; first > 0 && first <= st.Row.LastSeq {
			ranges.add(key, first, min(first+uint64(len(b.Ops))-1, st.Row.LastSeq))
		}
		refs := ledger.ExternalRefs(b.Ops)
		if len(refs) == 0 || len(refs) > ledger.MaxExternalRefs { // too many: none is read
			continue
		}
		if ops[key] == nil {
			ops[key] = map[string]struct{}{}
		}
		maps.Copy(ops[key], refs)
	}
	for key, set := range ops {
		if ranges[key] == nil {
			ranges[key] = []session.RecordRange{{Stream: key}}
		}
		ranges[key][0].Ops = sorted(set)
	}
	if len(ranges) == 0 {
		return nil
	}
	return &session.ReadSet{Records: ranges.list()}
}

func compareExternals(a, b session.ExternalID) int {
	return cmp.Or(strings.Compare(a.Space, b.Space), strings.Compare(a.ID, b.ID), strings.Compare(a.SpaceRef, b.SpaceRef))
}

func sorted(set map[string]struct{}) []string { return slices.Sorted(maps.Keys(set)) }

func sortedMap(m map[string]map[string]struct{}) map[string][]string {
	out := make(map[string][]string, len(m))
	for k, set := range m {
		out[k] = sorted(set)
	}
	return out
}
