// The body of a sync, read as it comes: {"secret": …, "data": [item, …]}. An item is
// held until the piece that it is in is committed, and nothing else is, so a body may
// be far larger than what is held of it. opencode's secret stands first. Where it does
// not, the data before it is held whole, and so is smaller. All that is held is charged
// before.

package share

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
)

// maxBuffered bounds what is held as one: an item, and data that comes before its secret.
const maxBuffered = 32 << 20

// bodyReader reads a body. Its callbacks' errors end the reading and are given back.
type bodyReader struct {
	in         *bufio.Reader
	charge     *requestMemory              // is charged for values
	onSecret   func(string) error          // once, before any item
	onItem     func(json.RawMessage) error // of valid JSON, the callee's to keep, and its capacity to give back
	onOversize func(bytes int64, most int) // an item that is larger than most was passed over
	seenSecret string                      // the secret, once it was read
}

// read reads all of a body.
func (b *bodyReader) read() error {
	var data []byte // that came before the secret
	dataSeen, secretSeen := false, false
	err := b.object(func(name string) error {
		switch {
		case name == "secret":
			text, err := b.shortValue()
			var secret string
			if err != nil || json.Unmarshal(text, &secret) != nil {
				return orMalformed(err, "the secret is no text")
			}
			if secretSeen && secret != b.seenSecret {
				return fault.Malformed.With("the body has two secrets")
			}
			if secretSeen {
				return nil
			}
			secretSeen, b.seenSecret = true, secret
			return b.onSecret(secret)
		case name == "data" && dataSeen:
			return fault.Malformed.With("the body has data twice")
		case name == "data" && secretSeen:
			dataSeen = true
			return b.items()
		case name == "data":
			dataSeen = true
			text, n, err := b.value(maxBuffered)
			if err == nil && n > maxBuffered {
				err = fault.TooLarge.With("what comes before the secret has at most %d bytes: send the secret first", maxBuffered)
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
			err = fault.Malformed.With("something stands behind the body's end")
		case errors.Is(err, io.EOF):
			err = nil
		}
	}
	if err == nil && !secretSeen {
		err = b.onSecret("")
	}
	switch {
	case err != nil:
		return err
	case data != nil:
		b.in = bufio.NewReader(bytes.NewReader(data))
		return b.items()
	case !dataSeen:
		return noDataFault()
	}
	return nil
}

func noDataFault() error {
	return fault.Malformed.With("the body has no data: an array of {type, data}")
}

// object reads an object; member reads the value of each of its members.
func (b *bodyReader) object(member func(name string) error) error {
	return b.sequence('{', '}', func() error {
		text, err := b.shortValue()
		var name string
		if err != nil || json.Unmarshal(text, &name) != nil {
			return orMalformed(err, "a name in the body is no text")
		}
		if c, err := b.nextByte(); err != nil || c != ':' {
			return orMalformed(err, "a name in the body has no value")
		}
		return member(name)
	})
}

// items reads the array of items.
func (b *bodyReader) items() error {
	if c, err := b.nextByte(); err != nil || c != '[' {
		if err == nil {
			err = noDataFault()
		}
		return err
	}
	_ = b.in.UnreadByte() // just read
	return b.sequence('[', ']', func() error {
		text, n, err := b.value(maxBuffered)
		switch {
		case err != nil:
			return err
		case n > maxBuffered:
			b.onOversize(n, maxBuffered)
			return nil
		case !utf8.Valid(text):
			return fault.Malformed.With("the body is not UTF-8")
		case !json.Valid(text):
			return fault.Malformed.With("the body is not the JSON that this path takes")
		}
		return b.onItem(text)
	})
}

// sequence reads what stands between open and end, with commas between.
func (b *bodyReader) sequence(open, end byte, each func() error) error {
	c, err := b.nextByte()
	if err != nil || c != open {
		return orMalformed(err, "the body is not the JSON that this path takes")
	}
	for first := true; ; first = false {
		c, err := b.nextByte()
		switch {
		case err != nil:
			return orMalformed(err, "")
		case c == end && first:
			return nil
		case first:
			_ = b.in.UnreadByte() // just read
		case c == end:
			return nil
		case c != ',':
			return fault.Malformed.With("the body is not the JSON that this path takes")
		}
		if err := each(); err != nil {
			return orMalformed(err, "")
		}
	}
}

// nextByte is the next byte that is no blank.
func (b *bodyReader) nextByte() (byte, error) {
	for {
		c, err := b.in.ReadByte()
		if err != nil || c != ' ' && c != '\t' && c != '\r' && c != '\n' {
			return c, err
		}
	}
}

// maxShortValue bounds names and secrets.
const maxShortValue = 1024

// shortValue reads a value that has to be small.
func (b *bodyReader) shortValue() ([]byte, error) {
	text, n, err := b.value(maxShortValue)
	b.charge.shrink(cap(text))
	if err == nil && (n > maxShortValue || !utf8.Valid(text)) {
		err = fault.Malformed.With("a name or secret in the body is too long, or is not UTF-8")
	}
	return text, err
}

// value reads a value as it stands, without checking more of it than where it ends,
// and how many bytes it has. Of one of more than most, text is nothing.
func (b *bodyReader) value(most int) (text []byte, n int64, err error) {
	c, err := b.nextByte()
	if err != nil {
		return nil, 0, err
	}
	if c == ',' || c == ':' {
		return nil, 0, fault.Malformed.With("the body is not the JSON that this path takes")
	}
	depth, quoted, escaped := 0, false, false
	for {
		if n++; n > int64(most) {
			b.charge.shrink(cap(text))
			text = nil
		} else {
			if len(text) == cap(text) {
				if text, err = b.growBuf(text, most); err != nil {
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
			return nil, n, fault.Malformed.With("the body is not the JSON that this path takes")
		}
		if depth == 0 && !quoted && !escaped && (c == '"' || c == '}' || c == ']') {
			return text, n, nil
		}
		if c, err = b.in.ReadByte(); err != nil {
			return nil, n, err
		}
		// A number or a word ends before what cannot be part of it.
		if depth == 0 && !quoted && (c == ',' || c == '}' || c == ']' || c == ':' || c == ' ' || c == '\t' || c == '\r' || c == '\n') {
			return text, n, b.in.UnreadByte()
		}
	}
}

// growBuf is text with twice the room, within most.
func (b *bodyReader) growBuf(text []byte, most int) ([]byte, error) {
	room := min(max(2*cap(text), 64), most)
	if err := b.charge.grow(room); err != nil {
		return nil, err
	}
	wider := append(make([]byte, 0, room), text...)
	b.charge.shrink(cap(text))
	return wider, nil
}

// orMalformed is why a body could not be read: err if there is one, and what is said
// of a body where there is none.
func orMalformed(err error, what string) error {
	var refused *fault.Error
	var long *http.MaxBytesError
	switch {
	case err == nil:
		return fault.Malformed.With("%s", what)
	case errors.As(err, &refused):
		return err
	case errors.As(err, &long):
		return fault.TooLarge.With("a body has at most %d bytes", long.Limit)
	}
	return fault.Malformed.Because(err, "the body did not come whole")
}
