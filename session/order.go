package session

// The order of a session's state. Each entry has a place (Ord), fixed when its key is
// first put, whatever is put there later, and given anew after a remove or a purge:
// the event that put it, or, in a session that is ordered by time, when it was
// created. Keys decide between equal places. Ids say nothing of the order: those of
// Mooring's clients are anybody's, and opencode's clock begins anew every 2.2 years.

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/ledger"
)

// Order is what a session's order goes by; the session's first event says so.
type Order uint8

// ByLog is the order of every session whose first event says nothing else. A fork
// has its source's order and goes on by its own log.
const (
	ByLog  Order = iota
	ByTime       // when things were created, as opencode orders its messages
)

// orderTime is create's argument order, for ByTime.
const orderTime = "time"

// String is the order as create's argument says it.
func (o Order) String() string {
	if o == ByTime {
		return orderTime
	}
	return ""
}

// ParseOrder reads what String says; anything else is ByLog.
func ParseOrder(s string) Order {
	if s == orderTime {
		return ByTime
	}
	return ByLog
}

// OrderOf is what the first event of a log says of the session's order.
func OrderOf(first *Event) Order {
	if first.Method != MethodCreate {
		return ByLog
	}
	return ParseOrder(ledger.Unquote(jsonAt(first.Payload, "order")))
}

// Ord is an entry's place in the order of its session. The zero Ord is that of a row
// which nobody has given one yet.
type Ord struct {
	At    uint64 // the cursor of its event; ByTime: when it was created, Unix ms
	Index uint64 // which of its event's values it is; ByTime: the cursor, of what says no time
}

// Compare is negative where o comes before p.
func (o Ord) Compare(p Ord) int {
	return cmp.Or(cmp.Compare(o.At, p.At), cmp.Compare(o.Index, p.Index))
}

// NewOrd is the Ord of a key that is first put, with payload, as value i of event e.
func (o Order) NewOrd(e *Event, i int, key string, payload []byte) Ord {
	if o == ByLog {
		return Ord{At: e.Cursor, Index: uint64(i)}
	}
	// When it was created: by its own word (time.created), else by the clock in its id,
	// else now, and then as the log has it.
	if t := payloadCreated(payload); t > 0 {
		return Ord{At: t}
	}
	if t := idTimestamp(key, e.At); t > 0 {
		return Ord{At: t}
	}
	return Ord{At: uint64(max(e.At, 1)), Index: e.Cursor}
}

// payloadCreated is the time.created of a payload; 0 if it has none.
func payloadCreated(payload []byte) uint64 {
	t, err := strconv.ParseFloat(string(jsonAt(payload, "time", "created")), 64)
	if err != nil || t < 1 || t > 1<<53 {
		return 0
	}
	return uint64(t)
}

// idTimestamp is the time in an id of opencode's, for which its parts have no other: 48
// bits in hexadecimal, the upper 36 of which are a clock in ms that begins anew every
// 2^36. Of all times that it may stand for, the one nearest to now is meant. 0 is for
// another id.
func idTimestamp(key string, now int64) uint64 {
	const digits, span = 12, int64(1) << 36
	_, id, ok := strings.Cut(key[strings.LastIndexByte(key, '/')+1:], "_")
	if !ok || len(id) < digits {
		return 0
	}
	var b [digits / 2]byte
	if _, err := hex.Decode(b[:], []byte(id[:digits])); err != nil {
		return 0
	}
	var n int64
	for _, c := range b {
		n = n<<8 | int64(c)
	}
	off := (n>>12 - now) % span // from now, to either side
	switch {
	case off >= span/2:
		off -= span
	case off < -span/2:
		off += span
	}
	return uint64(max(now+off, 0))
}

// CompareEntries orders a session's entries. Those without a place, which only rows
// of servers of before have, and what such servers send, come first: by the time that
// their payloads say they were created, then by key.
func CompareEntries(a, b *Entry) int {
	if c := a.Ord.Compare(b.Ord); c != 0 {
		return c
	}
	if a.Ord == (Ord{}) {
		if c := cmp.Compare(payloadCreated(a.Payload), payloadCreated(b.Payload)); c != 0 {
			return c
		}
	}
	return strings.Compare(a.Key, b.Key)
}

// SortDocument puts a session's entries, or what stands for them, in the order in which
// people read them: what is about the session, then each message with its parts in
// their order. Parts whose message is not there stand where the first of them does.
// entry gives what is ordered by; the entries it gives need no payload but for the
// sake of those without a place.
func SortDocument[T any](list []T, entry func(T) *Entry) {
	type place struct {
		head  *Entry // the message, or the first of its parts
		known bool   // it is the message
	}
	heads := map[string]place{}
	of := func(e *Entry) (message string, part bool) {
		kind, rest, _ := strings.Cut(e.Key, "/")
		id, _, part := strings.Cut(rest, "/")
		if kind == "message" || kind == "part" && part {
			return id, kind == "part"
		}
		return "", false
	}
	for _, item := range list {
		e := entry(item)
		message, part := of(e)
		h, there := heads[message]
		if message != "" && (!part || !h.known && (!there || CompareEntries(e, h.head) < 0)) {
			heads[message] = place{e, !part}
		}
	}
	slices.SortStableFunc(list, func(x, y T) int {
		a, b := entry(x), entry(y)
		am, apart := of(a)
		bm, bpart := of(b)
		switch {
		case am == "" || bm == "":
			if c := cmp.Compare(min(len(am), 1), min(len(bm), 1)); c != 0 {
				return c
			}
		case am != bm:
			return cmp.Or(CompareEntries(heads[am].head, heads[bm].head), strings.Compare(am, bm))
		case apart != bpart:
			return map[bool]int{false: -1, true: 1}[apart]
		}
		return CompareEntries(a, b)
	})
}

// nextOrd is the Ord of a key's next value and since when that stands: value i of event ev,
// after e, nil if there is none.
func (e *Entry) nextOrd(o Order, ev *Event, i int, in entryPayload, payload []byte) (ord Ord, since uint64) {
	since = in.Since
	if since == 0 { // of a server that did not say: it is what stood before, if anything did
		since = ev.Cursor
		if e != nil {
			since = e.Since
		}
	}
	if e != nil {
		return e.Ord, since
	}
	return o.NewOrd(ev, i, in.Key, payload), since
}

// OrdTracker are the Ords of a log's keys, and since when each one's value stands, as the
// log alone makes them. It folds what a Fold does without keeping values.
type OrdTracker struct {
	order Order
	byKey map[string]*Entry
}

// NewOrdTracker begins before a session's first event.
func NewOrdTracker() *OrdTracker { return &OrdTracker{byKey: map[string]*Entry{}} }

// Of is a key's place and since when its value stands; the zero Ord if it has none.
func (p *OrdTracker) Of(key string) (ord Ord, since uint64) {
	if e := p.byKey[key]; e != nil {
		return e.Ord, e.Since
	}
	return ord, 0
}

// Add takes the next event. What was purged since has no place.
func (p *OrdTracker) Add(e *Event) {
	switch e.Method {
	case MethodCreate:
		p.order = OrderOf(e)
	case MethodPut, MethodBegin:
		if e.Payload == nil {
			delete(p.byKey, e.Key)
			return
		}
		p.put(e, 0, entryPayload{Key: e.Key, Since: e.Cursor}, e.Payload)
	case MethodFinalize, MethodFork:
		for i, in := range indexed(embedded(e)) {
			p.put(e, i, in, []byte(in.JSON))
		}
	case MethodRemove, MethodPurge:
		delete(p.byKey, e.Key)
	}
}

func (p *OrdTracker) put(e *Event, i int, in entryPayload, payload []byte) {
	ord, since := p.byKey[in.Key].nextOrd(p.order, e, i, in, payload)
	p.byKey[in.Key] = &Entry{Ord: ord, Since: since}
}
