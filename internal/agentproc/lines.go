package agentproc

// Lines that are read: none is kept that is too long.

import (
	"bufio"
	"bytes"
	"errors"
	"io"
)

// ErrLongLine is reported for a line that is too long, once it has been read to its end.
var ErrLongLine = errors.New("a line is too long")

// LineReader reads lines. It is for one goroutine at a time.
type LineReader struct {
	in  *bufio.Reader
	max int
}

// NewLineReader returns a reader of lines of at most max bytes.
func NewLineReader(in io.Reader, max int) *LineReader {
	return &LineReader{bufio.NewReaderSize(in, 64<<10), max}
}

// ReadLine returns the next line without its line feed; it is valid until the next call. The error is ErrLongLine,
// after which the next line can be read, or that of the reader. A last line without a line feed is no line: it was cut off.
func (r *LineReader) ReadLine() ([]byte, error) {
	var line []byte
	for long := false; ; {
		part, err := r.in.ReadSlice('\n')
		if !long && len(line)+len(part) > r.max+1 {
			long, line = true, nil
		}
		if !long && (len(line) > 0 || err == bufio.ErrBufferFull) {
			line = append(line, part...)
		}
		switch {
		case err == nil && long:
			return nil, ErrLongLine
		case err == nil && len(line) > 0:
			return bytes.TrimSuffix(line, []byte("\n")), nil
		case err == nil:
			return bytes.TrimSuffix(part, []byte("\n")), nil
		case err != bufio.ErrBufferFull:
			return nil, err
		}
	}
}
