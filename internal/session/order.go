package session

// The order of a session's state. Each entry has an Ord, fixed when its key is first put, whatever
// is put there later, and assigned anew after a remove or a purge: the event that put it or, in a
// session ordered by time, its time of creation. Ties are ordered by key. Ids do not determine the
// order: the ids of Mooring's clients are arbitrary, and opencode's clock restarts every 2.2 years.

import (
	"cmp"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/internal/rawjson"
	"github.com/mooring-rpc/mooring/ledger"
)

// Order is the kind of order of a session, set by the session's first event.
type Order uint8

// ByLog is the order of a session whose first event does not name one. A fork has its source's
// order and continues by its own log.
const (
	ByLog  Order = iota
	ByTime       // by time of creation, as opencode orders its messages
)

// orderTime is the value of create's argument order for ByTime.
const orderTime = "time"

// String returns the order as create's argument names it.
func (o Order) String() string {
	if o == ByTime {
		return orderTime
	}
	return ""
}

// ParseOrder parses the result of String; any other text is ByLog.
func ParseOrder(s string) Order {
	if s == orderTime {
		return ByTime
	}
	return ByLog
}

// OrderOf returns the order that the first event of a log sets.
func OrderOf(first *Event) Order {
	if first.Method != MethodCreate {
		return ByLog
	}
	return ParseOrder(ledger.Unquote(rawjson.At(first.Payload, "order")))
}

// Ord is an entry's position in the order of its session. The zero Ord is that of a row that was
// never assigned one.
type Ord struct {
	At    uint64 // the cursor of its event; ByTime: its time of creation, Unix ms
	Index uint64 // the index of the value in its event; ByTime: the cursor, for a value without a time
}

// Compare returns a negative number if o is before p.
func (o Ord) Compare(p Ord) int {
	return cmp.Or(cmp.Compare(o.At, p.At), cmp.Compare(o.Index, p.Index))
}

// NewOrd returns the Ord of a key that is first put, with payload, as value i of event e.
func (o Order) NewOrd(e *Event, i int, key string, payload []byte) Ord {
	if o == ByLog {
		return Ord{At: e.Cursor, Index: uint64(i)}
	}
	// Time of creation: the payload's time.created, else the clock in its id, else now, and then in
	// the order of the log. What a value of its users' own kinds contains means nothing here.
	if IsOwn(key) || KindOf(key) == RequestKind {
		return Ord{At: uint64(max(e.At, 1)), Index: e.Cursor}
	}
	if t := payloadCreated(payload); t > 0 {
		return Ord{At: t}
	}
	if t := idTimestamp(key, e.At); t > 0 {
		return Ord{At: t}
	}
	return Ord{At: uint64(max(e.At, 1)), Index: e.Cursor}
}

// payloadCreated returns the time.created of a payload, Unix ms; 0 if it has none.
func payloadCreated(payload []byte) uint64 {
	t, err := strconv.ParseFloat(string(rawjson.At(payload, "time", "created")), 64)
	if err != nil || t < 1 || t > 1<<53 {
		return 0
	}
	return uint64(t)
}

// idTimestamp returns the time in an id of opencode, the only time that its parts have: 48 bits in
// hexadecimal, the upper 36 of which are a clock in ms that restarts every 2^36. Of all possible
// times the result is the one nearest to now. It is 0 for other ids.
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
	off := (n>>12 - now) % span // signed distance from now
	switch {
	case off >= span/2:
		off -= span
	case off < -span/2:
		off += span
	}
	return uint64(max(now+off, 0))
}

// CompareEntries orders a session's entries. Entries without an Ord, which only rows and messages
// of earlier servers lack, come first: by the time of creation in their payloads, then by key.
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

// SortDocument sorts a session's entries, or values that represent them, into reading order: the
// session's own entries, then each message followed by its parts in their order. Parts without
// their message are sorted where the first of them is. entry returns the entry to order by; its
// payload is used only if it has no Ord.
func SortDocument[T any](list []T, entry func(T) *Entry) {
	type place struct {
		head  *Entry // the message, or the first of its parts
		known bool   // head is the message
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

// nextOrd returns the Ord and the Since of a key's next value: value i of event ev, replacing e,
// nil if there is none.
func (e *Entry) nextOrd(o Order, ev *Event, i int, in EntryPayload, payload []byte) (ord Ord, since uint64) {
	since = in.Since
	if since == 0 { // from an earlier server: continues the existing value, if any
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

// OrdTracker computes the Ords of a log's keys, and the Since of their values, from the log alone.
// It is a Fold that keeps no values, for one goroutine.
type OrdTracker struct {
	order Order
	byKey map[string]*Entry
}

// NewOrdTracker returns a tracker before a session's first event.
func NewOrdTracker() *OrdTracker { return &OrdTracker{byKey: map[string]*Entry{}} }

// Of returns a key's Ord and the Since of its value; the zero Ord if it has none.
func (p *OrdTracker) Of(key string) (ord Ord, since uint64) {
	if e := p.byKey[key]; e != nil {
		return e.Ord, e.Since
	}
	return ord, 0
}

// Add processes the next event. Values purged since have no Ord.
func (p *OrdTracker) Add(e *Event) {
	switch e.Method {
	case MethodCreate:
		p.order = OrderOf(e)
	case MethodPut, MethodBegin:
		if e.Payload == nil {
			delete(p.byKey, e.Key)
			return
		}
		p.put(e, 0, EntryPayload{Key: e.Key, Since: e.Cursor}, e.Payload)
	case MethodFinalize, MethodFork:
		for i, in := range indexed(Embedded(e)) {
			p.put(e, i, in, []byte(in.JSON))
		}
	case MethodRemove, MethodPurge:
		delete(p.byKey, e.Key)
	}
}

func (p *OrdTracker) put(e *Event, i int, in EntryPayload, payload []byte) {
	ord, since := p.byKey[in.Key].nextOrd(p.order, e, i, in, payload)
	p.byKey[in.Key] = &Entry{Ord: ord, Since: since}
}
