package pgtune

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// A connection collects what it sends in a buffer that begins at 1 kB, grows by being copied, and is dropped once it was
// sent. For batches of many rows that is most of the memory a program goes through, so these get one that has served before.

// From so many bytes on, which is more than a connection keeps for itself, a batch gets a buffer; those beyond largest are
// not kept.
const (
	smallest = 4 << 10
	largest  = 4 << 20
)

var buffers = sync.Pool{New: func() any { return new(Buffer) }}

// Buffer is memory that is used again and again, for one thing at a time.
type Buffer struct{ memory []byte }

// NewBuffer gives a buffer, which is whoever's asks until Done.
func NewBuffer() *Buffer { return buffers.Get().(*Buffer) }

// Take gives the buffer's memory with what is in before at its beginning and room for so many bytes more, and always so
// much that a connection does not keep it for itself.
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
	buffer := NewBuffer()
	conn.PgConn().Frontend().Send(&room{buffer, bytes + bytes/16 + perStatement*batch.Len()})
	err := conn.SendBatch(ctx, batch).Close()
	if err == nil { // so all of it was sent, and the connection has begun another buffer
		buffer.Done()
	}
	return err
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

var _ pgproto3.FrontendMessage = (*room)(nil)
