package session

// The rows that a group of submissions needs, as far as their arguments show before anything is
// read. The view reads further rows when an op needs them, but takes no more locks: sessions and
// spaces are locked here or not at all.

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/ledger"
)

// readSetBuilder collects a ReadSet without duplicates.
type readSetBuilder struct {
	spaces, sessions    map[string]struct{}
	others              map[string]struct{}
	streams             map[StreamKey]struct{}
	records             recordRanges
	grants              map[string]struct{}
	entryMeta           map[string][]string // with duplicates
	turnsOf             map[string]map[string]struct{}
	external            map[ExternalID]struct{}
	turns, countedTurns map[string]struct{}
	streamingTurns      map[string]struct{}
	validUntil          int64
	ordered, requests   map[string]struct{}
	revokes             bool // some op revokes: the lineages of refs are needed
}

func newReadSetBuilder() *readSetBuilder {
	return &readSetBuilder{
		spaces: map[string]struct{}{}, sessions: map[string]struct{}{}, others: map[string]struct{}{}, streams: map[StreamKey]struct{}{},
		records: recordRanges{}, grants: map[string]struct{}{},
		entryMeta: map[string][]string{}, turnsOf: map[string]map[string]struct{}{},
		external: map[ExternalID]struct{}{}, turns: map[string]struct{}{}, countedTurns: map[string]struct{}{}, streamingTurns: map[string]struct{}{}, ordered: map[string]struct{}{}, requests: map[string]struct{}{},
	}
}

// initialReadSet returns the group's first Load, with all locks.
func initialReadSet(subs []Submission) *ReadSet {
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
	key := StreamKey{b.Session, b.Outbox}
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
	return op.Method == MethodCreate || op.Method == MethodFork
}

// recordRanges are the ranges of records to read, by stream.
type recordRanges map[StreamKey][]RecordRange

// add adds seqs from from to to. Ranges are merged while the result is no longer than a batch may
// be: everything between distant ranges must not be read too, or two acknowledgements could read
// 300,000 records.
func (m recordRanges) add(key StreamKey, from, to uint64) {
	for i := range m[key] {
		r := &m[key][i]
		if first, last := min(r.From, from), max(r.To, to); last-first < ledger.MaxFrameOps {
			r.From, r.To = first, last
			return
		}
	}
	m[key] = append(m[key], RecordRange{Stream: key, From: from, To: to})
}

// list returns all ranges, in order.
func (m recordRanges) list() (all []RecordRange) {
	for _, of := range m {
		all = append(all, of...)
	}
	slices.SortFunc(all, func(a, b RecordRange) int {
		return cmp.Or(compareStreams(a.Stream, b.Stream), cmp.Compare(a.From, b.From))
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
	session := sub.Batch.Session
	switch op.Method {
	case MethodAsk, MethodAnswer, MethodWithdraw, MethodClaim, MethodRelease:
		if id := argText(op, "request"); validID(id, false) {
			w.requests[session] = struct{}{}
			w.entryMeta[session] = append(w.entryMeta[session], RequestKey(id), RequestStateKey(id))
		}
	}
	switch op.Method {
	case MethodPut, MethodRemove, MethodPatch, MethodAdd, MethodClaim, MethodRelease, MethodPurge:
		text := argText(op, "key")
		if k, err := ParseKey(text); err == nil {
			w.entryMeta[session] = append(w.entryMeta[session], text)
			if k.Kind == KeyOwn && op.Method != MethodRemove && op.Method != MethodPurge {
				w.entryMeta[session] = append(w.entryMeta[session], schemaKey(text))
			}
			if op.Method == MethodRemove && k.Kind == KeyMessage {
				add(w.turnsOf, session, k.Message)
			}
		}
	case MethodAppendText:
		text := argText(op, "key")
		if k, err := ParseKey(text); err == nil {
			w.entryMeta[session] = append(w.entryMeta[session], text)
			add(w.turnsOf, session, k.Message)
		}
	case MethodBegin, MethodFinalize:
		if op.Method == MethodBegin {
			w.countedTurns[session] = struct{}{}
		}
		if m := argText(op, "message"); validID(m, false) {
			w.entryMeta[session] = append(w.entryMeta[session], MessageKey(m))
			add(w.turnsOf, session, m)
		}
	case MethodRevert:
		w.ordered[session] = struct{}{}
		w.turns[session] = struct{}{}
		if k, err := ParseKey(argText(op, "to")); err == nil {
			w.entryMeta[session] = append(w.entryMeta[session], k.String())
		}
	case MethodCompact:
		w.ordered[session] = struct{}{}
		for _, name := range []string{"upto", "summary"} {
			if k, err := ParseKey(argText(op, name)); err == nil {
				w.entryMeta[session] = append(w.entryMeta[session], k.String())
			}
		}
		if k, err := ParseKey(argText(op, "summary")); err == nil && k.Kind == KeyMessage {
			add(w.turnsOf, session, k.Message)
		}
	case MethodShare:
		w.addRef(argText(op, "ref"))
	case MethodRevoke:
		w.addRef(argText(op, "ref"))
		w.revokes = true
	case MethodCreate, MethodFork:
		w.addRef(argText(op, "ref"))
		if x := argText(op, "external"); x != "" && !strings.ContainsFunc(x, unprintable) && !sub.sharesExternalID() && !hasArgument(op, "shared_external") {
			if space := capability.Target(sub.Space); space != "" {
				w.external[ExternalID{Space: space, SpaceRef: sub.Space, ID: x}] = struct{}{}
			}
		}
		other := "source"
		if op.Method == MethodCreate {
			other = "parent"
		}
		w.addRef(argText(op, "via"))
		// Only a session whose live object was passed is locked.
		if source := argText(op, other); slices.ContainsFunc(sub.PassedRefs, func(id string) bool { return capability.Target(id) == source }) && source != "" {
			w.sessions[source] = struct{}{}
			if hasArgument(op, "message") {
				w.ordered[source] = struct{}{}
			}
		}
	}
}

// maxPeekBytes bounds the arguments that are examined before an op is decoded.
const maxPeekBytes = 4096

func (w *readSetBuilder) build() *ReadSet {
	out := &ReadSet{
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
	for session, keys := range w.entryMeta {
		slices.Sort(keys)
		w.entryMeta[session] = slices.Compact(keys)
	}
	if w.revokes {
		out.Lineages = sorted(w.grants)
	} else {
		out.Grants = sorted(w.grants)
	}
	for k := range w.streams {
		out.Streams = append(out.Streams, k)
	}
	slices.SortFunc(out.Streams, compareStreams)
	out.Records = w.records.list()
	return out
}

// recordReadSet returns the second Load, nil if there is nothing to read: the records that answer
// repeated batches, and the records of referenced ops.
func recordReadSet(v *view, subs []Submission) *ReadSet {
	ranges := recordRanges{}
	ops := map[StreamKey]map[string]struct{}{}
	for i := range subs {
		b := &subs[i].Batch
		if len(b.Ops) == 0 || len(b.Ops) > ledger.MaxFrameOps || subs[i].Direct != nil || subs[i].Ack {
			continue
		}
		key := StreamKey{b.Session, b.Outbox}
		st := v.streams[key]
		if st == nil {
			continue
		}
		// A batch's seqs are consecutive, or it is refused without reading any record.
		if first := b.Ops[0].Seq; first > 0 && first <= st.row.LastSeq {
			ranges.add(key, first, min(first+uint64(len(b.Ops))-1, st.row.LastSeq))
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
			ranges[key] = []RecordRange{{Stream: key}}
		}
		ranges[key][0].Ops = sorted(set)
	}
	if len(ranges) == 0 {
		return nil
	}
	return &ReadSet{Records: ranges.list()}
}

// argText returns a string argument's value, "" if there is none; the intent may be malformed. The
// result is valid UTF-8, which gjson does not ensure.
func argText(op *ledger.Intent, name string) string {
	for i := range op.Args {
		if a := &op.Args[i]; a.Name == name && a.Ref == nil && len(a.JSON) <= maxPeekBytes && utf8.Valid(a.JSON) && ledger.IsJSON(a.JSON) {
			s, _ := stringOf(a.JSON)
			return s
		}
	}
	return ""
}

func compareStreams(a, b StreamKey) int {
	return cmp.Or(strings.Compare(a.Session, b.Session), strings.Compare(a.Outbox, b.Outbox))
}

func compareExternals(a, b ExternalID) int {
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
