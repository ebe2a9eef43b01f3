// Which of a session's messages and parts a page has at first, or a piece of it: the first ones
// until it is full, and the last ones.

package web

import (
	"github.com/dustin/go-humanize"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// lastBlocks is how many messages and parts a page shows of a session's end, which is what changes.
const lastBlocks = 20

// nameParts is how many parts of a turn that is left out are looked at for its name.
const nameParts = 4

// namesAtOnce is for how many messages names are read at once, which are a bundle then, if they are
// minBundle at least.
const (
	namesAtOnce = 128
	minBundle   = 8
)

// showing adds messages and parts to a document. Only what is shown is read, and of messages that
// are left out their own values, for the totals and the contents.
type showing struct {
	req        *request
	capability *objects.Capability
	doc        *page.Doc
	sent       func() error // called after each piece that was read and written
}

// show adds messages and parts, in their order. Until the document is full it
// has them, and it has the last of them; what is between is left out.
func (s *showing) show(all []keyAt, last int) error {
	end := max(len(all)-last, 0)
	values := s.read(all[:end])
	at := 0
	for ; at < end && (at == 0 || !s.doc.Full()); at++ {
		if err := s.add(values, all[at].key); err != nil {
			return err
		}
	}
	if err := s.leaveOut(all, at, end); err != nil {
		return err
	}
	values = s.read(all[end:])
	for _, e := range all[end:] {
		if err := s.add(values, e.key); err != nil {
			return err
		}
	}
	return s.sent()
}

// add adds a message or a part, if it is still there.
func (s *showing) add(values *values, key string) error {
	e, turn, err := values.of(key)
	if err != nil || e == nil {
		return err
	}
	if parsed(key).Kind == session.KeyMessage {
		s.doc.Message(e, turn)
	} else {
		s.doc.Part(e)
	}
	return nil
}

// leaveOut leaves out what is from at on and before end. A message whose last parts are shown is shown, too.
func (s *showing) leaveOut(all []keyAt, at, end int) error {
	var messages []keyAt
	for _, e := range all[at:end] {
		if parsed(e.key).Kind == session.KeyMessage {
			messages = append(messages, e)
		}
	}
	values := s.read(messages)
	var left []leftMessage
	for at < end {
		first, id := all[at], parsed(all[at].key).Message
		next := at
		for next < len(all) && parsed(all[next].key).Message == id {
			next++
		}
		begun := at > 0 && parsed(all[at-1].key).Message == id || next > end // some of it is shown
		var message *session.Entry
		if parsed(first.key).Kind == session.KeyMessage {
			var turn *session.Turn
			var err error
			if message, turn, err = values.of(first.key); err != nil {
				return err
			}
			if begun {
				if err := s.nameAndLeaveOut(left); err != nil {
					return err
				}
				left = nil
				if message != nil {
					s.doc.Message(message, turn)
				}
			}
			at++
		}
		parts := all[at:min(next, end)]
		switch {
		case !begun:
			if left = append(left, leftMessage{id, message, first.ord, parts}); len(left) == namesAtOnce {
				if err := s.nameAndLeaveOut(left); err != nil {
					return err
				}
				left = nil
			}
		case len(parts) > 0:
			if err := s.nameAndLeaveOut(left); err != nil {
				return err
			}
			left = nil
			s.doc.LeaveOutParts(id, parts[0].ord, parts[len(parts)-1].ord, len(parts))
		}
		at = min(next, end)
	}
	return s.nameAndLeaveOut(left)
}

// leftMessage is a message that is left out; without its value it is one of which only parts are known.
type leftMessage struct {
	id    string
	value *session.Entry
	ord   session.Ord
	parts []keyAt
}

// nameAndLeaveOut leaves out messages, with the names of those that are turns.
func (s *showing) nameAndLeaveOut(left []leftMessage) error {
	var keys []string
	for _, m := range left {
		if page.Turn(m.value) {
			for _, e := range m.parts[:min(len(m.parts), nameParts)] {
				keys = append(keys, e.key)
			}
		}
	}
	names := map[string][]*session.Entry{}
	for len(keys) > 0 {
		got, next, err := s.capability.Values(s.req.r.Context(), keys, s.req.site.cfg.PageBytes)
		if err != nil {
			return err
		}
		for _, e := range got.Entries {
			id := parsed(e.Key).Message
			names[id] = append(names[id], e)
		}
		keys = keys[next:]
	}
	if len(left) < minBundle {
		for _, m := range left {
			s.doc.LeaveOut(m.id, m.value, m.ord, len(m.parts), names[m.id])
		}
		return nil
	}
	parts := 0
	for _, m := range left {
		parts += len(m.parts)
	}
	s.doc.Bundle(parts)
	defer s.doc.EndBundle()
	for _, m := range left {
		s.doc.LeaveOut(m.id, m.value, m.ord, len(m.parts), names[m.id])
	}
	return nil
}

// inOrder returns the keys of entries, which have no values, in the session's order: what is kept of them while a
// reader takes a page.
func inOrder(entries []*session.Entry) []keyAt {
	session.SortDocument(entries, func(e *session.Entry) *session.Entry { return e })
	all := make([]keyAt, len(entries))
	for i, e := range entries {
		all[i] = keyAt{e.Key, e.Ord}
	}
	return all
}

// keyAt is a key with its position in the session's order.
type keyAt struct {
	key string
	ord session.Ord
}

func parsed(key string) session.Key {
	k, _ := session.ParseKey(key) // a key of the state
	return k
}

// values are the values of keys, read piece by piece when they are asked for, in the keys' order.
type values struct {
	s     *showing
	keys  []string // to be read
	read  map[string]*session.Entry
	turns map[string]*session.Turn
	left  int // of those read, not asked for yet
}

// read returns the values of entries.
func (s *showing) read(entries []keyAt) *values {
	v := &values{s: s, keys: make([]string, len(entries))}
	for i, e := range entries {
		v.keys[i] = e.key
	}
	return v
}

// of returns the value of the next key, and its turn: nil if it is gone, or not shown.
func (v *values) of(key string) (*session.Entry, *session.Turn, error) {
	if v.left == 0 {
		if v.read != nil {
			if err := v.s.sent(); err != nil {
				return nil, nil, err
			}
		}
		got, next, err := v.s.capability.Values(v.s.req.r.Context(), v.keys[:min(len(v.keys), entriesPerRead)], v.s.req.site.cfg.PageBytes)
		if err != nil {
			return nil, nil, err
		}
		v.keys, v.left, v.read, v.turns = v.keys[next:], next, make(map[string]*session.Entry, next), map[string]*session.Turn{}
		for _, e := range got.Entries {
			v.read[e.Key] = e
		}
		for _, t := range got.Turns {
			v.turns[session.MessageKey(t.Message)] = t
		}
	}
	v.left--
	return v.read[key], v.turns[key], nil
}

// outline returns the entries of ranges of keys, each from one key on and below another, without values and unordered.
func (q *request) outline(h *objects.Capability, ranges ...[2]string) (all []*session.Entry, err error) {
	limit := q.site.cfg.PageBlocks
	for _, keys := range ranges {
		err := h.Outline(q.r.Context(), keys[0], keys[1], limit+1, func(some []*session.Entry) error {
			if all = append(all, some...); len(all) > limit {
				return fault.TooLarge.With("a page has at most %s messages and parts, and this session has more: mooring session export REF has all of it, and so has /api/share/ID/data of a public share", humanize.Comma(int64(limit)))
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return all, nil
}
