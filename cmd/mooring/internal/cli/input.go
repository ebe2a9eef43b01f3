// Input of commands: standard input and named files, bounded, and canceled by the first signal.

package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/text/encoding/unicode"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/newfile"
)

// ErrStopped is the error of a read when the command is interrupted.
var ErrStopped = fault.Canceled.With("stopped while reading")

// Input opens a file argument; "-" or none is standard input. A file that cannot be opened is fault.Usage. Reads end with ctx, as
// ErrStopped.
func (env *Env) Input(ctx context.Context, args []string) (in io.Reader, closeIn func(), err error) {
	if len(args) == 0 || args[0] == "-" {
		return utf8Reader(&ctxReader{ctx: ctx, r: env.In}), func() {}, nil
	}
	f, err := openFile(ctx, args[0])
	switch {
	case errors.Is(err, ErrStopped):
		return nil, nil, err
	case err != nil:
		return nil, nil, fault.Usage.Because(err, "%v", err)
	}
	return utf8Reader(&ctxReader{ctx: ctx, r: f}), func() { _ = f.Close() }, nil // read only: nothing is lost
}

// InputSize returns an input's size in bytes, for progress; -1 if unknown.
func InputSize(args []string) int {
	if len(args) > 0 && args[0] != "-" {
		if info, err := os.Stat(args[0]); err == nil && info.Mode().IsRegular() {
			return int(info.Size())
		}
	}
	return -1
}

// openFile opens a file to read. Opening a pipe waits until ctx ends.
func openFile(ctx context.Context, name string) (*os.File, error) {
	info, err := os.Stat(name)
	if err == nil && info.IsDir() {
		return nil, fmt.Errorf("%s is a folder: name a file", name)
	}
	if err != nil {
		return nil, CannotRead(name, err)
	}
	type opened struct {
		f   *os.File
		err error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(name)
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		if o.err != nil {
			return nil, CannotRead(name, o.err)
		}
		return o.f, nil
	case <-ctx.Done():
		return nil, ErrStopped
	}
}

// CannotRead returns the error of a file that cannot be read, with its name once.
func CannotRead(name string, err error) error {
	return fmt.Errorf("cannot read %s: %w", name, newfile.Cause(err))
}

// ReadFileLimited reads a whole file of any kind, of at most limit bytes, as UTF-8. Its error is ErrStopped when ctx ends first,
// else one that names the file.
func ReadFileLimited(ctx context.Context, name string, limit int) ([]byte, error) {
	f, err := openFile(ctx, name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(utf8Reader(&ctxReader{ctx: ctx, r: f}), int64(limit)+1))
	switch {
	case errors.Is(err, ErrStopped):
		return nil, err
	case err != nil:
		return nil, CannotRead(name, err)
	case len(data) > limit:
		return nil, fmt.Errorf("%s has more than %d bytes: is it the right file?", name, limit)
	}
	return data, nil
}

// ctxReader reads from r until ctx ends, even if a read of r blocks, as on a terminal.
type ctxReader struct {
	ctx      context.Context
	r        io.Reader
	buffered []byte // read and not returned yet
	err      error  // returned after buffered
}

// readChunk is the size of one read, in bytes.
const readChunk = 64 << 10

// Read implements io.Reader.
func (u *ctxReader) Read(p []byte) (int, error) {
	if len(u.buffered) == 0 && u.err == nil {
		type read struct {
			piece []byte
			err   error
		}
		done := make(chan read, 1)
		go func() {
			buf := make([]byte, readChunk)
			n, err := u.r.Read(buf)
			done <- read{buf[:n], err}
		}()
		select {
		case got := <-done:
			u.buffered, u.err = got.piece, got.err
		case <-u.ctx.Done():
			u.err = ErrStopped
		}
	}
	if len(u.buffered) == 0 {
		return 0, u.err
	}
	n := copy(p, u.buffered)
	u.buffered = u.buffered[n:]
	return n, nil
}

// utf8Reader returns r's text in UTF-8: text with a byte order mark of UTF-16, as written by
// PowerShell's >, is converted. All other bytes are unchanged, except that a mark of UTF-8 is
// removed.
func utf8Reader(r io.Reader) io.Reader { return &bomReader{r: bufio.NewReaderSize(r, readChunk)} }

// bomReader checks a text's first bytes at the first read.
type bomReader struct {
	r    *bufio.Reader
	text io.Reader // nil: not checked yet
}

// Read implements io.Reader.
func (m *bomReader) Read(p []byte) (int, error) {
	if m.text == nil {
		m.text = m.r
		mark, _ := m.r.Peek(3) // if fewer, Read returns the error again
		switch {
		case bytes.HasPrefix(mark, []byte("\xff\xfe")), bytes.HasPrefix(mark, []byte("\xfe\xff")):
			m.text = unicode.UTF16(unicode.LittleEndian, unicode.ExpectBOM).NewDecoder().Reader(m.r)
		case string(mark) == "\ufeff":
			_, _ = m.r.Discard(len(mark))
		}
	}
	return m.text.Read(p)
}

// MaxCertificateFile bounds a file of certificates, in bytes: several times a whole system's.
const MaxCertificateFile = 1 << 20
