// Package jsonlines reads files of JSON, a value a line, that may have been written by a program that was killed, and may be
// large. Memory is bounded by that of a line.
package jsonlines

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// Bounds of a file, which bound the memory for it.
const (
	MaxFile = 1 << 30
	MaxLine = 64 << 20
)

// ErrLongLine is returned for a line beyond the bound.
var ErrLongLine = errors.New("a long line")

// Reader reads a file line by line. It is for one goroutine at a time.
type Reader struct {
	r    *bufio.Reader
	most int // bytes of a line
	n    int // number of the last line
	torn bool
}

// NewReader returns a reader of r that fails with TooLarge beyond file bytes, and has lines of about line bytes at most.
func NewReader(r io.Reader, file, line int) *Reader {
	return &Reader{r: bufio.NewReaderSize(&bounded{r: r, left: file, most: file}, 64<<10), most: line}
}

// bounded is a reader that fails beyond its bound.
type bounded struct {
	r          io.Reader
	left, most int
}

// Read implements io.Reader.
func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p[:min(len(p), b.left+1)])
	if n > b.left {
		n, err = b.left, fault.TooLarge.With("the file has more than %d bytes: is it the right one?", b.most)
	}
	b.left -= n
	return n, err
}

// Line returns the number of the last line, from 1; 0 before the first.
func (l *Reader) Line() int { return l.n }

// Torn reports whether the last line had no line feed: whoever wrote it may not have written all of it.
func (l *Reader) Torn() bool { return l.torn }

// Rest returns what follows the last line.
func (l *Reader) Rest() io.Reader { return l.r }

// TooLong returns what is said of a line beyond the bound: TooLarge, with its number.
func (l *Reader) TooLong() error {
	return fault.TooLarge.With("line %d: longer than %d bytes", l.n, l.most)
}

// Next returns the next line without surrounding white space. The error is io.EOF at the end,
// ErrLongLine with the line's beginning if it is too long, else the file's.
func (l *Reader) Next() (line []byte, err error) {
	l.n++
	for {
		piece, err := l.r.ReadSlice('\n')
		line = append(line, piece...)
		switch {
		case errors.Is(err, bufio.ErrBufferFull) && len(line) > l.most:
			return line, ErrLongLine
		case errors.Is(err, bufio.ErrBufferFull):
		case err != nil && (!errors.Is(err, io.EOF) || len(line) == 0):
			return nil, err
		default:
			l.torn = err != nil
			return bytes.TrimSpace(line), nil
		}
	}
}

// First returns the first line that is not empty. The error is as of Next, or Malformed if it cannot begin a JSON text.
func (l *Reader) First() (line []byte, err error) {
	for {
		if begin, _ := l.r.Peek(3); l.n == 0 && string(begin) == "\ufeff" {
			_, _ = l.r.Discard(3)
		}
		begin, err := l.r.Peek(1)
		if errors.Is(err, io.EOF) {
			return nil, fault.Malformed.With("the file is empty")
		}
		if err != nil {
			return nil, err
		}
		if !strings.ContainsRune("{[ \t\r\n", rune(begin[0])) {
			return nil, fault.Malformed.With("line %d: not JSON: it begins with neither { nor [", l.n+1)
		}
		if line, err = l.Next(); len(line) > 0 || err != nil {
			return line, err
		}
	}
}
