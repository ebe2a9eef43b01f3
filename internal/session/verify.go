package session

// Verification of a log: its rows are consecutive, none missing, moved or changed, and only
// payloads removed by a purge or by the session's deletion are missing. It needs only the rows, so
// everyone who can read a whole log can verify it.

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// Finding is a flaw of a log, with the first cursor it concerns.
type Finding struct {
	Cursor uint64
	What   string
}

// Verifier verifies a log that is added piece by piece. It is for one goroutine.
type Verifier struct {
	first    uint64 // the cursor before the log's first event
	chain    *capability.ChainVerifier
	end      *logEnd // nil until End
	found    map[uint64]string
	gaps     [][2]uint64 // first and last cursor of missing ranges
	expected map[uint64]Hash

	redacted       bool // the ref hides values from before its first visible cursor
	redactedEvents int  // number of events that are not shown whole

	altered    map[uint64]*alteredPayload
	lastIntact uint64 // the last event whose payload is as it was written
	deleted    uint64 // cursor of the delete event
}

// logEnd is the expected end of a log.
type logEnd struct {
	cursor uint64
	head   Hash
}

// alteredPayload is a payload that is not as it was written. Purges have the hash of its
// replacement; the last purge counts.
type alteredPayload struct {
	gone      bool
	sum       Hash // of the present payload
	explained bool
}

// NewVerifier starts at the event after cursor, whose hash is prev: the zero Hash and 0 for a whole
// log, a checkpoint's for a trimmed one.
func NewVerifier(prev Hash, cursor uint64) *Verifier {
	return newVerifier(capability.NewChainVerifierFrom(cursor, prev))
}

// NewVerifierAfter starts at the event after cursor without knowing the hash before it: the link of
// the first event is not checked.
func NewVerifierAfter(cursor uint64) *Verifier {
	return newVerifier(capability.NewChainVerifier(cursor))
}

func newVerifier(chain *capability.ChainVerifier) *Verifier {
	return &Verifier{first: chain.Seq(), chain: chain, found: map[uint64]string{}, expected: map[uint64]Hash{}, altered: map[uint64]*alteredPayload{}}
}

// AllowRedacted accepts a log that is read through a ref with a first visible cursor: older values
// that events embed are left out (scope.go), and the events say so.
func (v *Verifier) AllowRedacted() { v.redacted = true }

// RedactedEvents returns how many of the added events were not shown whole: their payloads cannot
// be verified.
func (v *Verifier) RedactedEvents() int { return v.redactedEvents }

// Cursor returns the cursor of the last event added.
func (v *Verifier) Cursor() uint64 { return v.chain.Seq() }

// Head returns the hash of the last event added, or the one before the log's first.
func (v *Verifier) Head() Hash { return v.chain.Head() }

// Add adds the next events. It retains only flawed ones.
func (v *Verifier) Add(events []*Event) {
	for _, e := range events {
		v.add(e)
	}
}

func (v *Verifier) add(e *Event) {
	next := v.chain.Seq() + 1
	v.chain.Add(e.chainRow())
	switch {
	case e.Cursor < next: // the chain reports that it is out of order
		return
	case e.Cursor > next:
		v.gaps = append(v.gaps, [2]uint64{next, e.Cursor - 1})
	}
	if head, known := v.expected[e.Cursor]; known && head != e.Hash {
		v.note(e.Cursor, "is not the one that the session was at")
	}
	v.payload(e)
}

// chainRow returns the event as a row of a chain.
func (e *Event) chainRow() capability.ChainRow {
	row := *e
	row.Payload = nil // the row may be retained, and Sum suffices
	return capability.ChainRow{Seq: e.Cursor, Hash: e.Hash, Sum: func(prev [32]byte, seq uint64) [32]byte {
		as := row
		as.Cursor = seq
		return HashEvent(prev, &as)
	}}
}

// Expect sets the hash that the event at cursor, not added yet, is known to have had.
func (v *Verifier) Expect(cursor uint64, head Hash) { v.expected[cursor] = head }

func (v *Verifier) note(cursor uint64, what string, args ...any) {
	if _, noted := v.found[cursor]; !noted {
		v.found[cursor] = fmt.Sprintf(what, args...)
	}
}

// payload verifies an event's payload against its sum, and processes the notes of a purge.
func (v *Verifier) payload(e *Event) {
	switch {
	case e.Payload == nil:
		v.altered[e.Cursor] = &alteredPayload{gone: true}
	case v.redacted && (e.Method == MethodFinalize || e.Method == MethodPurge || aboutAll(e.Method)) && SumOf(e.Payload) != e.Sum && gjson.GetBytes(e.Payload, "hidden").Int() > 0:
		v.redactedEvents++
	case SumOf(e.Payload) != e.Sum:
		v.altered[e.Cursor] = &alteredPayload{sum: SumOf(e.Payload)}
		return
	default:
		v.lastIntact = e.Cursor
	}
	switch e.Method {
	case MethodDelete:
		v.deleted = e.Cursor
	case MethodPurge:
		var p PurgePayload
		if e.Payload == nil {
			return // either the session was deleted, or Findings reports it missing
		}
		if err := json.Unmarshal(e.Payload, &p); err != nil {
			v.note(e.Cursor, "is a purge that cannot be read")
			return
		}
		for _, n := range p.Events {
			v.explain(e.Cursor, n)
		}
	}
}

// explain processes the note about an event in the purge at cursor by.
func (v *Verifier) explain(by uint64, n PurgedNote) {
	if n.Cursor <= v.first || n.Cursor >= by {
		return // trimmed since
	}
	odd := v.altered[n.Cursor]
	if odd == nil && slices.ContainsFunc(v.gaps, func(g [2]uint64) bool { return g[0] <= n.Cursor && n.Cursor <= g[1] }) {
		return
	}
	if odd == nil {
		v.note(n.Cursor, "has its payload, which event %d purged", by)
		return
	}
	var sum Hash
	if n.Sum == "" {
		odd.explained = odd.gone
		return
	}
	b, err := hex.DecodeString(n.Sum)
	copy(sum[:], b)
	odd.explained = err == nil && !odd.gone && odd.sum == sum
}

// Findings returns all flaws of the added events, by cursor.
func (v *Verifier) Findings() []Finding {
	end := v.end
	if end == nil {
		end = &logEnd{v.Cursor(), v.Head()}
	}
	found := make(map[uint64]string, len(v.found))
	for _, flaw := range v.chain.End(end.cursor, end.head) {
		if f := asFinding(flaw); found[f.Cursor] == "" {
			found[f.Cursor] = f.What
		}
	}
	for cursor, what := range v.found {
		if found[cursor] == "" {
			found[cursor] = what
		}
	}
	for cursor, odd := range v.altered {
		switch {
		case found[cursor] != "" || odd.explained || odd.gone && v.deleted != 0:
		case odd.gone:
			found[cursor] = "has lost its payload, and no purge took it"
		default:
			found[cursor] = "has another payload than was written"
		}
	}
	if v.deleted != 0 && v.lastIntact != 0 && found[v.lastIntact] == "" {
		found[v.lastIntact] = fmt.Sprintf("has its payload, although the session was deleted at %d", v.deleted)
	}
	list := make([]Finding, 0, len(found))
	for cursor, what := range found {
		list = append(list, Finding{cursor, what})
	}
	slices.SortFunc(list, func(a, b Finding) int { return cmp.Compare(a.Cursor, b.Cursor) })
	return list
}

// asFinding converts a flaw of the chain.
func asFinding(f capability.Flaw) Finding {
	what := "was changed"
	switch f.Kind {
	case capability.RowMissing:
		if what = "is missing"; f.Through > f.Seq {
			what = fmt.Sprintf("is missing, and all up to event %d", f.Through)
		}
	case capability.RowMisplaced:
		if what = "is out of order"; f.WrittenAs != 0 {
			what = fmt.Sprintf("is out of order: it belongs at %d", f.WrittenAs)
		}
	case capability.RowAfterEnd:
		return Finding{f.WrittenAs + 1, fmt.Sprintf("is there, although the session has come to event %d only", f.WrittenAs)}
	case capability.EndChanged:
		what = "is not the one that the session ends with"
	}
	return Finding{f.Seq, what}
}

// End sets the expected end of the log: the event at cursor, with the hash head, is the last. It is
// called once, after the last Add.
func (v *Verifier) End(cursor uint64, head Hash) { v.end = &logEnd{cursor, head} }

// maxFindings is the maximum number of findings in one message.
const maxFindings = 20

// Err returns FindingsError of the findings: nil if there are none.
func (v *Verifier) Err() error { return FindingsError(v.Findings()) }

// FindingsError returns nil for no findings, or an Internal fault that lists them, at the first
// one's cursor.
func FindingsError(found []Finding) error {
	if len(found) == 0 {
		return nil
	}
	said := make([]string, 0, maxFindings)
	for _, f := range found[:min(len(found), maxFindings)] {
		said = append(said, fmt.Sprintf("event %d %s", f.Cursor, f.What))
	}
	if len(found) > maxFindings {
		said = append(said, fmt.Sprintf("and %d more", len(found)-maxFindings))
	}
	return fault.Internal.With("the log is not the one that was written: %s", strings.Join(said, "; ")).Pos(found[0].Cursor)
}
