package session

// Reads of single keys, and of a prefix's keys a page at a time. A page costs in proportion to
// itself, however many keys the session has.
//
// What a ref does not show is not read for it (CoveredRanges) or left out (ShowsEntry), before the
// page is measured: neither what fits, More nor a position depends on keys that are not shown. A page
// looks at a bounded number of entries that are not shown. Where it ends at one of them, its Next is
// sealed: the ref learns that there is more to look at, not at which key.

import (
	"bytes"
	"cmp"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"math"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/search"
)

// Limits of reads of keys.
const (
	MaxGetKeys      = 64   // keys that are read by name at once
	DefaultListKeys = 100  // entries of a page whose query names no limit
	MaxListKeys     = 1000 // entries of any page
)

// KeyOrder is the order of a page of keys.
type KeyOrder uint8

// By the bytes of the key, or in the session's order (CompareEntries).
const (
	ByKey KeyOrder = iota
	ByPut
)

var keyOrders = [...]string{ByKey: "key", ByPut: "put"}

// String returns the order's name, also on the wire.
func (o KeyOrder) String() string { return keyOrders[o] }

// ParseKeyOrder parses an order's name; "" is key.
func ParseKeyOrder(name string) (KeyOrder, *fault.Error) {
	for o, known := range keyOrders {
		if name == known || name == "" {
			return KeyOrder(o), nil
		}
	}
	return 0, fault.BadArgument.With("the order of keys is key or put")
}

// KeyQuery is a request for a page of the keys that begin with a prefix and are longer.
type KeyQuery struct {
	Prefix string // ends with "/"; "" is all keys
	After  string // the previous page's KeyPage.Next; "": from the start
	Order  KeyOrder
	Limit  int  // entries; 0: DefaultListKeys
	Values bool // read the values, too

	Compacted bool // of the compacted view, if the session is compacted

	// In the process alone: the keys from From on and below Below in place of Prefix, by key, and
	// about how many bytes of values a page has; 0 is as many as an answer.
	From, Below string
	MaxBytes    int
}

// Check refuses an invalid query.
func (q *KeyQuery) Check() *fault.Error {
	if q.Prefix != "" {
		switch {
		case !strings.HasSuffix(q.Prefix, "/"):
			return fault.BadArgument.With("the prefix %q does not end with /: add one to list the keys below it, or read the one key with get", fault.Clip(q.Prefix))
		case !beginsKeys(q.Prefix):
			return fault.BadArgument.With("the prefix %q is not the beginning of a key: use KIND/ or KIND/ID/, as in todo/ or part/msg_1/", fault.Clip(q.Prefix))
		}
	}
	if q.Limit < 0 || q.Limit > MaxListKeys {
		return fault.BadArgument.With("limit is 1 to %d entries", MaxListKeys)
	}
	if q.After == "" || strings.HasPrefix(q.After, sealedMark) {
		return nil // what is sealed is opened by the database's key
	}
	_, refused := parseKeyPosition(q.Order, q.After)
	return refused
}

// MaxEntries is the limit of the query's page.
func (q *KeyQuery) MaxEntries() int { return cmp.Or(q.Limit, DefaultListKeys) }

// CheckKeys refuses keys that cannot be read at once.
func CheckKeys(keys []string) *fault.Error {
	if len(keys) == 0 || len(keys) > MaxGetKeys {
		return fault.BadArgument.With("name 1 to %d keys to read at once", MaxGetKeys)
	}
	seen := make(map[string]bool, len(keys))
	for _, key := range keys {
		if _, refused := ParseKey(key); refused != nil {
			return refused
		}
		if seen[key] {
			return fault.BadArgument.With("the key %s is named twice", key)
		}
		seen[key] = true
	}
	return nil
}

// KeyPage is a part of a session's state by key, in one snapshot.
type KeyPage struct {
	Access
	Entries []*EntryInfo
	More    bool   // there are other entries
	Next    string // the After of the next page, if there is More
}

// EntryInfo is an entry and who changed it last.
type EntryInfo struct {
	*Entry        // Payload is nil if the page has no values
	Bytes  uint64 // of the value; about so many of a part that was appended to and has no Payload
	Change Change
}

// Change is the last change of an entry's value, by a put, text that was appended, or the like.
type Change struct {
	Cursor uint64
	Ref    string // the ref it was written under; "" where the log no longer has the event
	Actor  string
	At     int64 // database clock, Unix ms

	EventKey string // the event's key, which is another one for values that an event embeds
	Method   string // the event's; "" where the log no longer has it
}

// Changed returns the cursor of the last change of the entry's value.
func (e *Entry) Changed() uint64 { return max(e.Cursor, e.LastAppend) }

func (p *KeyPage) access() *Access { return &p.Access }

// limitedTo leaves out who changed an entry, too, by an event that the ref does not show.
func (p *KeyPage) limitedTo(g *capability.Grant) *KeyPage {
	if ShowsAll(g) {
		return p
	}
	shown := &KeyPage{Access: p.Access.limitedTo(g), More: p.More, Next: p.Next}
	for _, e := range p.Entries {
		if !ShowsEntry(g, e.Entry) {
			continue
		}
		if !showsEvent(g, &Event{Key: e.Change.EventKey, Method: e.Change.Method}) {
			e = &EntryInfo{Entry: e.Entry, Bytes: e.Bytes, Change: Change{Cursor: e.Change.Cursor}}
		}
		if of := e.Entry.showTo(g); of != e.Entry {
			e = &EntryInfo{Entry: of, Bytes: e.Bytes, Change: e.Change}
		}
		shown.Entries = append(shown.Entries, e)
	}
	return shown
}

// KeyPosition is a place in a list of keys: after the entry with this Ord, which ByKey does not
// use, and this key. The zero value is the beginning.
type KeyPosition struct {
	Ord Ord
	Key string
}

// Compare returns a negative number if p is before q.
func (p KeyPosition) Compare(o KeyOrder, q KeyPosition) int {
	if o == ByPut {
		if c := p.Ord.Compare(q.Ord); c != 0 {
			return c
		}
	}
	return strings.Compare(p.Key, q.Key)
}

// PositionOf returns the place of an entry.
func PositionOf(e *Entry) KeyPosition { return KeyPosition{e.Ord, e.Key} }

// NextAfter returns the text of the place of an entry, the last that a page looked at: a ref that
// does not show the entry gets it sealed.
func NextAfter(g *capability.Grant, key *HashKey, o KeyOrder, e *Entry) string {
	text := e.Key
	if o == ByPut {
		text = strconv.FormatUint(e.Ord.At, 10) + "." + strconv.FormatUint(e.Ord.Index, 10) + "." + e.Key
	}
	if ShowsEntry(g, e) {
		return text
	}
	return key.sealPosition(e.Session, o, text)
}

// Position returns where the query's page of a session begins.
func (q *KeyQuery) Position(session string, key *HashKey) (KeyPosition, *fault.Error) {
	if q.After == "" {
		return KeyPosition{}, nil
	}
	text := q.After
	if sealed, is := strings.CutPrefix(q.After, sealedMark); is {
		if text, is = key.openPosition(session, q.Order, sealed); !is {
			return KeyPosition{}, errKeyPosition
		}
	}
	return parseKeyPosition(q.Order, text)
}

var errKeyPosition = fault.BadArgument.With("a list of keys continues after the previous page's next, of the same session and in the same order")

func parseKeyPosition(o KeyOrder, text string) (p KeyPosition, refused *fault.Error) {
	p.Key = text
	if o == ByPut {
		at, rest, _ := strings.Cut(text, ".")
		index, key, _ := strings.Cut(rest, ".")
		var err, err2 error
		p.Ord.At, err = strconv.ParseUint(at, 10, 63)
		p.Ord.Index, err2 = strconv.ParseUint(index, 10, 63)
		if p.Key = key; err != nil || err2 != nil {
			return p, errKeyPosition
		}
	}
	if _, bad := ParseKey(p.Key); bad != nil {
		return p, errKeyPosition
	}
	return p, nil
}

// sealedMark begins the text of a sealed position: no key and no number has it.
const sealedMark = "~"

// sealedBytes is the length of every sealed position's text before it is sealed, so that it does not
// show how long a key is: two numbers and the longest key fit.
const sealedBytes = 576

// positionCipher returns the cipher that seals positions, with a key of its own.
func (k *HashKey) positionCipher() cipher.AEAD {
	mac := hmac.New(sha256.New, k[:])
	mac.Write([]byte("mooring key position v1"))
	block, err := aes.NewCipher(mac.Sum(nil))
	if err != nil {
		panic(err) // the key has 32 bytes
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		panic(err)
	}
	return aead
}

func sealedFor(session string, o KeyOrder) []byte { return []byte(o.String() + " " + session) }

func (k *HashKey) sealPosition(session string, o KeyOrder, text string) string {
	aead := k.positionCipher()
	plain := make([]byte, max(sealedBytes, len(text)))
	copy(plain, text)
	nonce := make([]byte, aead.NonceSize())
	rand.Read(nonce) // never fails
	return sealedMark + base64.RawURLEncoding.EncodeToString(aead.Seal(nonce, nonce, plain, sealedFor(session, o)))
}

func (k *HashKey) openPosition(session string, o KeyOrder, sealed string) (text string, ok bool) {
	aead := k.positionCipher()
	b, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(b) < aead.NonceSize() {
		return "", false
	}
	plain, err := aead.Open(nil, b[:aead.NonceSize()], b[aead.NonceSize():], sealedFor(session, o))
	return string(bytes.TrimRight(plain, "\x00")), err == nil
}

// Limits of a page of a search.
const (
	DefaultFound = 20 // entries of a page whose query names no limit
	MaxFound     = 100
)

// SearchQuery is a request for the entries that have some words, from the last in the session's order.
type SearchQuery struct {
	Text  string // search.Parse
	After string // the previous page's SearchPage.Next; "": from the start
	Limit int    // entries; 0: DefaultFound
}

// Parse returns what is searched for, or refuses an invalid query.
func (q *SearchQuery) Parse() (*search.Query, *fault.Error) {
	words, refused := search.Parse(q.Text)
	if refused != nil {
		return nil, refused
	}
	if q.Limit < 0 || q.Limit > MaxFound {
		return nil, fault.BadArgument.With("limit is 1 to %d entries", MaxFound)
	}
	if q.After != "" && !strings.HasPrefix(q.After, sealedMark) { // what is sealed is opened by the database's key
		if _, refused := parseKeyPosition(ByPut, q.After); refused != nil {
			return nil, errSearchPosition
		}
	}
	return words, nil
}

var errSearchPosition = fault.BadArgument.With("a search continues after the previous page's next, of the same session")

// MaxFound is the limit of the query's page.
func (q *SearchQuery) MaxFound() int { return cmp.Or(q.Limit, DefaultFound) }

// Position returns the place before which, in the session's order, the query's page of a session has its
// entries.
func (q *SearchQuery) Position(session string, key *HashKey) (KeyPosition, *fault.Error) {
	if q.After == "" {
		return KeyPosition{Ord: Ord{At: math.MaxInt64, Index: math.MaxInt64}, Key: PrefixEnd("")}, nil
	}
	list := KeyQuery{After: q.After, Order: ByPut}
	p, refused := list.Position(session, key)
	if refused != nil {
		refused = errSearchPosition
	}
	return p, refused
}

// SearchPage is a part of what a search finds, in one snapshot.
type SearchPage struct {
	Access
	Found []*Found
	Next  string // the After of the next page; "": there is none. That may be empty: a page compares a limited number of bytes

	// Indexing is set if the session's index is not up to date yet, as when a large session is searched
	// first: there may be other entries, and the next search goes on with it.
	Indexing bool
}

// Found is an entry, without its value, and where the query matches it.
type Found struct {
	*EntryInfo
	*search.Match
}

func (p *SearchPage) access() *Access { return &p.Access }

func (p *SearchPage) limitedTo(g *capability.Grant) *SearchPage {
	if ShowsAll(g) {
		return p
	}
	infos := make([]*EntryInfo, len(p.Found))
	matches := make(map[string]*search.Match, len(p.Found))
	for i, f := range p.Found {
		infos[i], matches[f.Key] = f.EntryInfo, f.Match
	}
	shown := (&KeyPage{Access: p.Access, Entries: infos}).limitedTo(g)
	page := &SearchPage{Access: shown.Access, Next: p.Next, Indexing: p.Indexing}
	for _, e := range shown.Entries {
		page.Found = append(page.Found, &Found{e, matches[e.Key]})
	}
	return page
}

// ChangedKeys returns the keys whose values an event may change: one, and those that begin with below;
// "" for none. The first event of a session is not meant.
func ChangedKeys(method, key string) (one, below string) {
	switch method {
	case MethodPut, MethodRemove, MethodPatch, MethodAdd, MethodBegin, MethodAppendText, MethodPurge:
		return key, ""
	case MethodFinalize:
		return key, PartPrefix(strings.TrimPrefix(key, MessageKey("")))
	}
	return "", ""
}
