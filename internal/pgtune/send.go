// Batches, and the memory that they are sent from.

package pgtune

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A connection collects what it sends in a buffer that begins at 1 kB, grows by being copied, and is mostly dropped once it
// was sent. For batches of many rows that is most of the memory a program goes through, so these get one that has served
// before, and it is taken back afterwards.

// A batch gets a buffer from so many bytes on; those beyond largest are not kept.
const (
	smallest = 4 << 10
	largest  = 4 << 20
)

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// Buffer is memory that is used again and again, for one thing at a time.
type Buffer struct{ memory []byte }

// NewBuffer gives a buffer, which is whoever's asks until Done.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Take gives the buffer's memory with what is in before at its beginning and room for so many bytes more. It is never less
// than smallest, which pgx does not keep for a next statement's arguments.
func (b *Buffer) Take(before []byte, room int) []byte {
	if need := len(before) + room; cap(b.memory) < need {
		b.memory = make([]byte, 0, max(need, smallest))
	}
	return append(b.memory[:0], before...)
}

// Done gives it back: nobody may use its memory any more.
func (b *Buffer) Done() {
	if cap(b.memory) <= largest {
		buffers.Put(b)
	}
}

// Send sends a batch whose arguments take at least so many bytes, and not many more, and waits for its end.
func Send(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch, bytes int) error {
	if bytes < smallest {
		return conn.SendBatch(ctx, batch).Close()
	}
	buffer, front := NewBuffer(), conn.PgConn().Frontend()
	front.Send(&room{buffer, bytes + bytes/16 + perStatement*batch.Len()})
	err := conn.SendBatch(ctx, batch).Close()
	if back := (takeBack{}); !conn.IsClosed() {
		if front.Send(&back); back.done {
			buffer.Done()
		}
	}
	return err
}

// Weigh is how many bytes the texts and bytes among a batch's arguments have, and the numbers in lists.
func Weigh(b *pgx.Batch) (bytes int) {
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

// perStatement is about what a statement takes on its way besides its arguments.
const perStatement = 256

// room is a message of no bytes that makes room for those which follow it.
type room struct {
	buffer *Buffer
	bytes  int
}

// Frontend implements pgproto3.FrontendMessage.
func (*room) Frontend() {}

// Decode implements pgproto3.Message.
func (*room) Decode([]byte) error { return nil }

// Encode implements pgproto3.Message.
func (r *room) Encode(dst []byte) ([]byte, error) { return r.buffer.Take(dst, r.bytes), nil }

// takeBack is a message of no bytes after which the connection has a small buffer of its own again: one that was filled it
// has dropped, but in the mode exec it fills another.
type takeBack struct{ done bool }

// Frontend implements pgproto3.FrontendMessage.
func (*takeBack) Frontend() {}

// Decode implements pgproto3.Message.
func (*takeBack) Decode([]byte) error { return nil }

// Encode implements pgproto3.Message.
func (t *takeBack) Encode(dst []byte) ([]byte, error) {
	if t.done = true; cap(dst) < smallest {
		return dst, nil
	}
	return append(make([]byte, 0, 1<<10), dst...), nil
}

var _, _ pgproto3.FrontendMessage = (*room)(nil), (*takeBack)(nil)
