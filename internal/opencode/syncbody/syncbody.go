// Package syncbody parses the body of one of opencode's syncs as a stream: {"secret": …, "data": [item, …]}. An item is held until
// its piece is committed, and nothing else is held, so a body may be far larger than memory.
// opencode sends the secret first. Otherwise the data before it is buffered whole, and bounded by
// MaxBuffered. Every buffer is charged to the request's memory before it is allocated.
package syncbody

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/membudget"
)

// MaxBuffered bounds one item, and data that precedes its secret, in bytes.
const MaxBuffered = 32 << 20

// BufferBytes is the size of the buffer that a body is to be read through, in bytes.
const BufferBytes = 32 << 10

// Memory is charged for buffers. A Reader has one.
type Memory interface {
	Grow(n int) error // charges n bytes before they are held, or refuses them
	Shrink(n int)     // releases n bytes
}

// Charged is the Memory of a request whose context is Ctx: an account, which is closed with the request.
type Charged struct {
	Ctx     context.Context
	Account *membudget.Account
}

// Grow charges n bytes before they are held, and waits for room. The error is Overloaded if there
// is none in time, TooLarge if there never can be.
func (m *Charged) Grow(n int) error {
	if n <= 0 {
		return nil
	}
	err := m.Account.Grow(m.Ctx, int64(n))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, membudget.ErrTooLarge):
		return fault.TooLarge.With("this is too much to hold at once: send less, and the secret first")
	case m.Ctx.Err() != nil:
		return fault.ContextError(context.Cause(m.Ctx), nil)
	}
	return fault.Overloaded.With("too many requests at once: try again later")
}

// Shrink releases n bytes.
func (m *Charged) Shrink(n int) { m.Account.Shrink(int64(n)) }

// Reader parses a body, and has its items committed piece by piece as they arrive. An error of a callback ends the parse and is returned.
type Reader struct {
	In         *bufio.Reader
	Memory     Memory
	OnSecret   func(string) error                // called once, before any item
	Add        func(json.RawMessage) (full bool) // takes an item, valid JSON, into the piece that is being collected
	Flush      func() error                      // commits that piece, when it is full and in the end
	OnOversize func(bytes int64, limit int)      // an item larger than limit was skipped

	seenSecret string // the secret, once read
	count      int    // items read or skipped
	charged    int    // bytes of the piece that is being collected
}

// Read parses the whole body, and returns how many items it has. Errors are Malformed, TooLarge and those of the callbacks.
func (b *Reader) Read() (items int, err error) {
	if err := b.read(); err != nil {
		return b.count, err
	}
	return b.count, b.Flush()
}

func (b *Reader) read() error {
	var data []byte // data that preceded the secret
	dataSeen, secretSeen := false, false
	err := b.object(func(name string) error {
		switch {
		case name == "secret":
			text, err := b.shortValue()
			var secret string
			if err != nil || json.Unmarshal(text, &secret) != nil {
				return OrMalformed(err, "the secret is no text")
			}
			if secretSeen && secret != b.seenSecret {
				return fault.Malformed.With("the body has two secrets")
			}
			if secretSeen {
				return nil
			}
			secretSeen, b.seenSecret = true, secret
			return b.OnSecret(secret)
		case name == "data" && dataSeen:
			return fault.Malformed.With("the body has data twice")
		case name == "data" && secretSeen:
			dataSeen = true
			return b.items()
		case name == "data":
			dataSeen = true
			text, n, err := b.value(MaxBuffered)
			if err == nil && n > MaxBuffered {
				err = fault.TooLarge.With("at most %d bytes may come before the secret: send the secret first", MaxBuffered)
			}
			data = text
			return err
		}
		_, _, err := b.value(0)
		return err
	})
	if err == nil {
		_, err = b.nextByte()
		switch {
		case err == nil:
			err = fault.Malformed.With("there is something after the body's end")
		case errors.Is(err, io.EOF):
			err = nil
		}
	}
	if err == nil && !secretSeen {
		err = b.OnSecret("")
	}
	switch {
	case err != nil:
		return err
	case data != nil:
		b.In = bufio.NewReader(bytes.NewReader(data))
		return b.items()
	case !dataSeen:
		return noDataFault()
	}
	return nil
}

func noDataFault() error {
	return fault.Malformed.With("the body has no data: an array of {type, data}")
}

// object parses an object; member parses the value of each of its members.
func (b *Reader) object(member func(name string) error) error {
	return b.sequence('{', '}', func() error {
		text, err := b.shortValue()
		var name string
		if err != nil || json.Unmarshal(text, &name) != nil {
			return OrMalformed(err, "a name in the body is no text")
		}
		if c, err := b.nextByte(); err != nil || c != ':' {
			return OrMalformed(err, "a name in the body has no value")
		}
		return member(name)
	})
}

// items parses the array of items.
func (b *Reader) items() error {
	if c, err := b.nextByte(); err != nil || c != '[' {
		if err == nil {
			err = noDataFault()
		}
		return err
	}
	_ = b.In.UnreadByte() // just read
	return b.sequence('[', ']', func() error {
		text, n, err := b.value(MaxBuffered)
		if err != nil {
			return err
		}
		b.count++
		switch {
		case n > MaxBuffered:
			b.OnOversize(n, MaxBuffered)
			return nil
		case !utf8.Valid(text):
			return fault.Malformed.With("the body is not UTF-8")
		case !json.Valid(text):
			return fault.Malformed.With("the body is not the JSON that this path expects")
		}
		return b.item(text)
	})
}

// item adds an item, and commits the piece if it is full.
func (b *Reader) item(text json.RawMessage) error {
	if err := b.Memory.Grow(len(text)); err != nil { // parsing holds a second copy
		return err
	}
	b.charged += cap(text) + len(text)
	if !b.Add(text) {
		return nil
	}
	err := b.Flush()
	b.Memory.Shrink(b.charged)
	b.charged = 0
	return err
}

// sequence parses the comma-separated content between open and end.
func (b *Reader) sequence(open, end byte, each func() error) error {
	c, err := b.nextByte()
	if err != nil || c != open {
		return OrMalformed(err, "the body is not the JSON that this path expects")
	}
	for first := true; ; first = false {
		c, err := b.nextByte()
		switch {
		case err != nil:
			return OrMalformed(err, "")
		case c == end && first:
			return nil
		case first:
			_ = b.In.UnreadByte() // just read
		case c == end:
			return nil
		case c != ',':
			return fault.Malformed.With("the body is not the JSON that this path expects")
		}
		if err := each(); err != nil {
			return OrMalformed(err, "")
		}
	}
}

// nextByte returns the next byte that is not white space.
func (b *Reader) nextByte() (byte, error) {
	for {
		c, err := b.In.ReadByte()
		if err != nil || c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, err
		}
	}
}

// maxShortValue bounds names and secrets, in bytes.
const maxShortValue = 1024

// shortValue reads a value of at most maxShortValue bytes.
func (b *Reader) shortValue() ([]byte, error) {
	text, n, err := b.value(maxShortValue)
	b.Memory.Shrink(cap(text))
	if err == nil && (n > maxShortValue || !utf8.Valid(text)) {
		err = fault.Malformed.With("a name or secret in the body is too long, or is not UTF-8")
	}
	return text, err
}

// value reads a value's text, checking only where it ends, and returns its length n. text is nil
// if n exceeds most.
func (b *Reader) value(limit int) (text []byte, n int64, err error) {
	c, err := b.nextByte()
	if err != nil {
		return nil, 0, err
	}
	if c == ',' || c == ':' {
		return nil, 0, fault.Malformed.With("the body is not the JSON that this path expects")
	}
	depth, quoted, escaped := 0, false, false
	for {
		if n++; n > int64(limit) {
			b.Memory.Shrink(cap(text))
			text = nil
		} else {
			if len(text) == cap(text) {
				if text, err = b.growBuf(text, limit); err != nil {
					return nil, 0, err
				}
			}
			text = append(text, c)
		}
		switch {
		case escaped:
			escaped = false
		case quoted:
			escaped, quoted = c == '\\', c != '"'
		case c == '"':
			quoted = true
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
		}
		if depth < 0 {
			return nil, n, fault.Malformed.With("the body is not the JSON that this path expects")
		}
		if depth == 0 && !quoted && !escaped && (c == '"' || c == '}' || c == ']') {
			return text, n, nil
		}
		if c, err = b.In.ReadByte(); err != nil {
			return nil, n, err
		}
		// A number or a word ends before a byte that cannot be part of it.
		if depth == 0 && !quoted && (c == ',' || c == '}' || c == ']' || c == ':' || c == ' ' || c == '\t' || c == '\r' || c == '\n') {
			return text, n, b.In.UnreadByte()
		}
	}
}

// growBuf returns text with twice the capacity, at most limit bytes.
func (b *Reader) growBuf(text []byte, limit int) ([]byte, error) {
	size := min(max(2*cap(text), 64), limit)
	if err := b.Memory.Grow(size); err != nil {
		return nil, err
	}
	wider := append(make([]byte, 0, size), text...)
	b.Memory.Shrink(cap(text))
	return wider, nil
}

// OrMalformed returns the error of a body that could not be read: err, or if it is nil a Malformed fault about what.
func OrMalformed(err error, label string) error {
	var refused *fault.Error
	var long *http.MaxBytesError
	switch {
	case err == nil:
		return fault.Malformed.With("%s", label)
	case errors.As(err, &refused):
		return err
	case errors.As(err, &long):
		return fault.TooLarge.With("a body has at most %d bytes", long.Limit)
	}
	return fault.Malformed.Because(err, "the body did not come whole")
}
