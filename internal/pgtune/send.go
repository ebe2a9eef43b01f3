// Batches, and the memory that they are sent from.

package pgtune

import (
	"context"
	"encoding/binary"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A connection collects its output in a buffer that begins at 1 kB, grows by being copied, and is mostly dropped once it
// was sent. For batches of many rows that is most of the memory a program allocates, so these use a pooled buffer, which is
// returned afterwards.

// Batches of at least minBuffer bytes use a pooled buffer; buffers beyond maxBuffer are not kept.
const (
	minBuffer = 4 << 10
	maxBuffer = 4 << 20
)

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// Buffer is reusable memory, for one use at a time.
type Buffer struct{ memory []byte }

// NewBuffer returns a buffer, which is the caller's until Free.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Take returns the buffer's memory, beginning with the bytes of before and with room for room bytes more. It is at least
// minBuffer, which pgx does not keep for a next statement's arguments.
func (b *Buffer) Take(before []byte, room int) []byte {
	if need := len(before) + room; cap(b.memory) < need {
		b.memory = make([]byte, 0, max(need, minBuffer))
	}
	return append(b.memory[:0], before...)
}

// Free returns the buffer to the pool: its memory must not be used any more.
func (b *Buffer) Free() {
	if cap(b.memory) <= maxBuffer {
		buffers.Put(b)
	}
}

// Send sends a batch whose arguments take at least bytes bytes, and not many more, and waits for its end.
func Send(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch, bytes int) error {
	if bytes < minBuffer {
		return conn.SendBatch(ctx, batch).Close()
	}
	buffer, front := NewBuffer(), conn.PgConn().Frontend()
	front.Send(&reserveBuffer{buffer, bytes + bytes/16 + statementBytes*batch.Len()})
	err := conn.SendBatch(ctx, batch).Close()
	if back := (releaseBuffer{}); !conn.IsClosed() {
		if front.Send(&back); back.done {
			buffer.Free()
		}
	}
	return err
}

// EstimateSize returns how many bytes the texts and byte strings among a batch's arguments have, and the numbers in lists.
func EstimateSize(b *pgx.Batch) (bytes int) {
	for _, q := range b.QueuedQueries {
		for _, arg := range q.Arguments {
			switch v := arg.(type) {
			case string:
				bytes += len(v)
			case []byte:
				bytes += len(v)
			case []int64:
				bytes += 8 * len(v)
			case []string:
				for _, s := range v {
					bytes += len(s)
				}
			case [][]byte:
				for _, s := range v {
					bytes += len(s)
				}
			}
		}
	}
	return bytes
}

// statementBytes is about how many bytes a statement takes on the wire besides its arguments.
const statementBytes = 256

// reserveBuffer is an empty message that makes room for the messages after it.
type reserveBuffer struct {
	buffer *Buffer
	bytes  int
}

// Frontend implements pgproto3.FrontendMessage.
func (*reserveBuffer) Frontend() {}

// Decode implements pgproto3.Message.
func (*reserveBuffer) Decode([]byte) error { return nil }

// Encode implements pgproto3.Message.
func (r *reserveBuffer) Encode(dst []byte) ([]byte, error) { return r.buffer.Take(dst, r.bytes), nil }

// releaseBuffer is an empty message after which the connection has a small buffer of its own again: it has dropped one that
// was filled, but in the mode exec it fills another.
type releaseBuffer struct{ done bool }

// Frontend implements pgproto3.FrontendMessage.
func (*releaseBuffer) Frontend() {}

// Decode implements pgproto3.Message.
func (*releaseBuffer) Decode([]byte) error { return nil }

// Encode implements pgproto3.Message.
func (t *releaseBuffer) Encode(dst []byte) ([]byte, error) {
	if t.done = true; cap(dst) < minBuffer {
		return dst, nil
	}
	return append(make([]byte, 0, 1<<10), dst...), nil
}

var _, _ pgproto3.FrontendMessage = (*reserveBuffer)(nil), (*releaseBuffer)(nil)

// PutNull appends a NULL, in Postgres' binary form, to an array, or to a row for COPY.
func PutNull(buf []byte) []byte { return append(buf, 0xff, 0xff, 0xff, 0xff) }

// PutInt appends a bigint to an array, or to a row for COPY.
func PutInt(buf []byte, n int64) []byte {
	return binary.BigEndian.AppendUint64(append(buf, 0, 0, 0, 8), uint64(n))
}

// PutValue appends a text or byte string to an array, or to a row for COPY.
func PutValue[T string | []byte](buf []byte, value T) []byte {
	return append(binary.BigEndian.AppendUint32(buf, uint32(len(value))), value...)
}
