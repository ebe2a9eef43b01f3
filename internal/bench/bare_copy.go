// COPY, for the bare program: Postgres writes the rows of a long list a page at a time, with one WAL record for each page.

package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/internal/pgtune"
)

// rowSource is the input of copyInto. Row appends the i-th row's values, each as its length and its bytes in Postgres' binary form
// (pgtune.PutValue and its like).
type rowSource struct {
	Columns int
	Len     int
	Row     func(buf []byte, i int) ([]byte, error)
}

// copyInto copies rows into a table's columns, "table (column, …)", in one round trip, in a transaction or as one. After it has
// returned, rows is not read any more.
func copyInto(ctx context.Context, conn *pgx.Conn, into string, rows rowSource) error {
	buffer := pgtune.NewBuffer()
	defer buffer.Free()
	r := &copyReader{rows: rows, buf: append(buffer.Take(nil, copyChunk), copyHead...)}
	tag, err := conn.PgConn().CopyFrom(ctx, r, "COPY "+into+" FROM STDIN (FORMAT binary)")
	switch own := r.end(); {
	case own != nil:
		return fmt.Errorf("copy: %w", own) // Postgres only says that the client cancelled
	case err == nil && tag.RowsAffected() != int64(rows.Len):
		return fmt.Errorf("copy: %d rows of %d were taken", tag.RowsAffected(), rows.Len)
	}
	return err
}

// The bytes around the rows in COPY's binary format (PostgreSQL's documentation of COPY, "Binary Format"): a signature, empty
// flags and an empty extension; and -1 for the number of a row's values.
const (
	copyHead = "PGCOPY\n\xff\r\n\x00" + "\x00\x00\x00\x00" + "\x00\x00\x00\x00"
	copyTail = "\xff\xff"
)

// copyChunk is about how many bytes are encoded at a time: what pgx sends at a time.
const copyChunk = 64 << 10

// copyReader reads rows in COPY's binary format. pgx reads in a goroutine of its own, and does not wait for that when it
// loses the connection: so its memory may be reused only after end.
type copyReader struct {
	mu          sync.Mutex // guards the fields below
	rows        rowSource
	rendered    int    // rows encoded
	buf         []byte // the last chunk encoded,
	read        int    // of which this many bytes were read
	trailerMade bool   // the trailer was encoded
	ended       bool   // nothing is encoded any more
	err         error  // of a row
}

// Read implements io.Reader.
func (c *copyReader) Read(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended {
		return 0, io.ErrClosedPipe
	}
	if c.read == len(c.buf) {
		c.buf, c.read = c.buf[:0], 0
	}
	if c.err = c.fill(); c.err != nil {
		return 0, c.err
	}
	if len(c.buf) == 0 {
		return 0, io.EOF
	}
	n := copy(p, c.buf[c.read:])
	c.read += n
	return n, nil
}

// fill encodes the next chunk, when the previous one is read.
func (c *copyReader) fill() (err error) {
	if c.read > 0 {
		return nil
	}
	for c.rendered < c.rows.Len && len(c.buf) < copyChunk {
		c.buf = binary.BigEndian.AppendUint16(c.buf, uint16(c.rows.Columns))
		if c.buf, err = c.rows.Row(c.buf, c.rendered); err != nil {
			return err
		}
		c.rendered++
	}
	if c.rendered == c.rows.Len && !c.trailerMade {
		c.buf, c.trailerMade = append(c.buf, copyTail...), true
	}
	return nil
}

// end stops reading, and returns the error of a row that could not be encoded.
func (c *copyReader) end() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	return c.err
}
