package session

// Shown events: readers with equal sight are shown the same bytes, which are made once for all of them.

import (
	"slices"
	"strconv"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
)

// Sight is what a reader is shown of a session's log: readers with equal sights are shown the same
// of every log. The zero value shows all.
type Sight struct{ text string }

// SightOf returns the sight of a reader that has asked for keys, of those that g shows.
func SightOf(g *capability.Grant, keys *Selection) Sight {
	if ShowsAll(g) && keys == nil {
		return Sight{}
	}
	b := strconv.AppendUint(nil, g.VisibleFrom, 10)
	b = appendList(strconv.AppendQuote(b, g.Message), g.ReadKeys)
	if keys != nil {
		b = appendList(b, keys.asked.ReadKeys)
	}
	return Sight{string(b)}
}

// appendList appends a list that may be nil, so that no two lists give the same.
func appendList(b []byte, list []string) []byte {
	if list == nil {
		return append(b, '*')
	}
	b = append(b, '[')
	for _, text := range list {
		b = strconv.AppendQuote(b, text)
	}
	return append(b, ']')
}

// Shown are consecutive events as readers of one sight are shown them. It is safe for concurrent
// use.
type Shown struct {
	Events []*Event // not to be changed
	Cursor uint64   // of the last one in the log, shown or not,
	Head   Hash     // and its hash

	once    sync.Once
	encoded any
}

// Encoded returns what encode makes of the events, which is called once: all callers pass the same
// function.
func (s *Shown) Encoded(encode func([]*Event) any) any {
	s.once.Do(func() { s.encoded = encode(s.Events) })
	return s.encoded
}

// ShownCache remembers events that were shown, so that the next reader of equal sight shares them.
// The zero value is ready; it is not safe for concurrent use.
type ShownCache struct{ shown map[shownKey]*Shown }

// shownKey identifies events by the first one: those after it in a log never change while it is
// held.
type shownKey struct {
	sight Sight
	first *Event
	n     int
}

// maxShown bounds a cache: readers at the same place ask for the same events one after the other.
const maxShown = 16

// Shown returns the first n events of u as g and keys show them, whose sight is given. key masks
// hashes.
func (c *ShownCache) Shown(u UnscopedEvents, n int, sight Sight, g *capability.Grant, keys *Selection, key *HashKey) *Shown {
	at := shownKey{sight, u.list[0], n}
	if s := c.shown[at]; s != nil {
		return s
	}
	last := u.list[n-1]
	events := slices.Clone(u.list[:n]) // so that the page they are part of can be freed
	s := &Shown{Events: keys.Events(visibleEvents(g, events, key)), Cursor: last.Cursor, Head: last.Hash}
	if len(c.shown) >= maxShown || c.shown == nil {
		c.shown = make(map[shownKey]*Shown, maxShown)
	}
	c.shown[at] = s
	return s
}

// Clear forgets all.
func (c *ShownCache) Clear() { c.shown = nil }
