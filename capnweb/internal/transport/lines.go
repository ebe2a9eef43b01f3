// The lines of a body, one message each.

package transport

import (
	"bytes"
	"io"
)

// lineReader splits a body into its messages while it is read. Empty lines are skipped.
type lineReader struct {
	from      io.Reader
	admitRead func(int, []byte) error // called before buf grows to so many bytes
	buf       []byte
	unread    []byte // of buf: read, and not yet split
	err       error  // the read error: io.EOF at the end
}

// fill reads until n bytes are unread, or the body ends. The error is err, except io.EOF.
func (l *lineReader) fill(n int) error {
	for len(l.unread) < n && l.more() {
	}
	if l.err == io.EOF {
		return nil
	}
	return l.err
}

// more reads some more; false after an error or the end.
func (l *lineReader) more() bool {
	if l.err != nil || l.from == nil {
		return false
	}
	if used := len(l.buf) - len(l.unread); len(l.buf) == cap(l.buf) {
		if size := max(2*len(l.unread), initialLineBuffer); size > cap(l.buf) || used == 0 {
			if l.err = l.admitRead(size, l.unread); l.err != nil {
				return false
			}
			l.buf = append(make([]byte, 0, size), l.unread...)
		} else {
			l.buf = l.buf[:copy(l.buf[:cap(l.buf)], l.unread)]
		}
	}
	have := len(l.unread)
	k, err := l.from.Read(l.buf[len(l.buf):cap(l.buf)])
	l.buf = l.buf[:len(l.buf)+k]
	l.unread, l.err = l.buf[len(l.buf)-have-k:], err
	return k > 0 || err == nil
}

// initialLineBuffer is how many bytes are read at first.
const initialLineBuffer = 4 << 10

// next returns the next message; it is valid until the next call.
func (l *lineReader) next() (line []byte, ok bool) {
	for searched := 0; ; {
		at := bytes.IndexByte(l.unread[searched:], '\n')
		if at < 0 {
			if searched = len(l.unread); l.more() {
				continue
			}
			if l.err != nil && l.err != io.EOF {
				return nil, false
			}
			line, l.unread = l.unread, nil
		} else {
			line, l.unread = l.unread[:searched+at], l.unread[searched+at+1:]
			searched = 0
		}
		if line = bytes.TrimSuffix(line, []byte{'\r'}); len(line) > 0 {
			return line, true
		}
		if at < 0 {
			return nil, false
		}
	}
}
