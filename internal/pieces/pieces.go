// Package pieces says of what a text is made: of pieces of an older text, its base, and of new ones
// between them, in order (a piece table, as text editors have). A large value of which small parts
// change again and again is stored as its base, once, and its pieces.
//
// Nothing here is safe for concurrent use with changes of what it was given.
package pieces

import (
	"encoding/binary"
	"errors"
)

// Piece is a part of a text: bytes From to below To of the base or, if Text is not nil, Text.
type Piece struct {
	From, To int
	Text     []byte
}

func (p Piece) len() int {
	if p.Text != nil {
		return len(p.Text)
	}
	return p.To - p.From
}

// slice returns the bytes of a piece from from to below to.
func (p Piece) slice(from, to int) Piece {
	if p.Text != nil {
		return Piece{Text: p.Text[from:to:to]}
	}
	return Piece{From: p.From + from, To: p.From + to}
}

// List is the pieces of a text. nil is a text that has nothing of a base, and says nothing of it.
type List []Piece

// Whole is the list of a text of n bytes that is its own base.
func Whole(n int) List { return List{{To: n}} }

// Keep returns the list with bytes from to below to of the base at its end. The list given must not
// be used any more.
func (l List) Keep(from, to int) List { return l.add(Piece{From: from, To: to}) }

// New returns the list with new text at its end, which it keeps. The list given must not be used any
// more.
func (l List) New(text []byte) List { return l.add(Piece{Text: text}) }

func (l List) add(p Piece) List {
	if p.len() == 0 {
		return l
	}
	if n := len(l); n > 0 {
		last := &l[n-1]
		switch {
		case p.Text != nil && last.Text != nil:
			last.Text = append(last.Text[:len(last.Text):len(last.Text)], p.Text...)
			return l
		case p.Text == nil && last.Text == nil && last.To == p.From:
			last.To = p.To
			return l
		}
	}
	return append(l, p)
}

// On returns the pieces, on the base of older, of the text that l makes of the text of older. It
// shares memory with both. l keeps bytes in order, each once at most, as every list does that was
// made of one text alone.
func (l List) On(older List) List {
	out := List{}
	i, start := 0, 0 // older[i] begins at byte start of its text
	for _, p := range l {
		if p.Text != nil {
			out = out.add(p)
			continue
		}
		for from := p.From; from < p.To; {
			for start+older[i].len() <= from {
				start += older[i].len()
				i++
			}
			to := min(p.To, start+older[i].len())
			out = out.add(older[i].slice(from-start, to-start))
			from = to
		}
	}
	return out
}

// errBad is the error of bytes that Marshal did not make, or not for that base.
var errBad = errors.New("the pieces of a value do not fit its base")

// Of returns the text: a copy. Errors: pieces that base does not have.
func (l List) Of(base []byte) ([]byte, error) {
	n := 0
	for _, p := range l {
		if p.Text == nil && (p.From < 0 || p.From > p.To || p.To > len(base)) {
			return nil, errBad
		}
		n += p.len()
	}
	text := make([]byte, 0, n)
	for _, p := range l {
		if p.Text != nil {
			text = append(text, p.Text...)
		} else {
			text = append(text, base[p.From:p.To]...)
		}
	}
	return text, nil
}

// Marshal returns the list as bytes: of each piece its length times two, and 1 more if it is new;
// then its text, or where it begins in the base. Numbers are varints (package encoding/binary).
func (l List) Marshal() []byte {
	b := []byte{}
	for _, p := range l {
		if p.Text != nil {
			b = binary.AppendUvarint(b, uint64(len(p.Text))<<1|1)
			b = append(b, p.Text...)
			continue
		}
		b = binary.AppendUvarint(b, uint64(p.len())<<1)
		b = binary.AppendUvarint(b, uint64(p.From))
	}
	return b
}

// maxLen bounds numbers, so that sums of them do not overflow.
const maxLen = 1 << 31

// Unmarshal returns the list that Marshal wrote, in the memory of b.
func Unmarshal(b []byte) (List, error) {
	l := List{}
	number := func() (n int, ok bool) {
		u, size := binary.Uvarint(b)
		if size <= 0 || u >= maxLen {
			return 0, false
		}
		b = b[size:]
		return int(u), true
	}
	for len(b) > 0 {
		n, ok := number()
		if !ok {
			return nil, errBad
		}
		if size := n >> 1; n&1 == 1 {
			if size > len(b) {
				return nil, errBad
			}
			l = append(l, Piece{Text: b[:size:size]})
			b = b[size:]
			continue
		}
		from, ok := number()
		if !ok || from > maxLen-1-n>>1 {
			return nil, errBad
		}
		l = append(l, Piece{From: from, To: from + n>>1})
	}
	return l, nil
}
