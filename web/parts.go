// The parts of a paint, read beside the messages: one way through the keys of all
// parts serves all messages.

package web

import (
	"strings"

	"github.com/mooring-rpc/mooring/session"
)

// partReader goes through part/MESSAGE/PART while the messages go by. The order of
// parts is that of their messages, but where an id begins with another one and
// goes on with a character below the slash (a-b and a): such messages' parts are
// read by themselves.
type partReader struct {
	p     *painting
	ahead []*session.Entry // read, not yet written
	next  string           // where to read on after; "" once all is read
	begun bool
	last  string // key of the last part that went by
}

// peek is the next part; nil after the last.
func (r *partReader) peek() (*session.Entry, error) {
	for len(r.ahead) == 0 && (!r.begun || r.next != "") {
		if !r.begun {
			r.begun, r.next = true, "part/"
		} else if err := r.p.send(); err != nil { // what was made of the piece before
			return nil, err
		}
		piece, next, err := r.p.read(r.next, "part0")
		if err != nil {
			return nil, err
		}
		r.ahead, r.next = piece.Entries, next
	}
	if len(r.ahead) == 0 {
		return nil, nil
	}
	return r.ahead[0], nil
}

func (r *partReader) pass() {
	r.last, r.ahead = r.ahead[0].Key, r.ahead[1:]
}

// before writes the parts that stand before a message's and belong to none.
func (r *partReader) before(message string) error {
	for {
		part, err := r.peek()
		if err != nil || part == nil || part.Key >= partsOf(message) {
			return err
		}
		if owner, _, _ := strings.Cut(part.Key[len("part/"):], "/"); owner < message {
			r.p.doc.Part(part)
		} // else its message comes later, and reads it then
		r.pass()
	}
}

// of writes a message's parts. before was called for it.
func (r *partReader) of(message string) error {
	from := partsOf(message)
	if r.last > from {
		return r.p.walk(from, from[:len(from)-1]+"0", func(piece *session.Range) error {
			r.write(piece.Entries)
			return nil
		})
	}
	for {
		part, err := r.peek()
		if err != nil || part == nil || !strings.HasPrefix(part.Key, from) {
			return err
		}
		r.p.doc.Part(part)
		r.pass()
	}
}

// rest writes the parts behind the last message's.
func (r *partReader) rest() error {
	for {
		part, err := r.peek()
		if err != nil || part == nil {
			return err
		}
		r.p.doc.Part(part)
		r.pass()
	}
}

func (r *partReader) write(parts []*session.Entry) {
	for _, part := range parts {
		r.p.doc.Part(part)
	}
}

// partsOf begins the keys of a message's parts.
func partsOf(message string) string { return session.PartKey(message, "") }
