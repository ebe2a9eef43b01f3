// Output: what a core leaves for its Loop to write and to deliver.

package peerconn

import (
	"slices"
	"sync"
)

// Output is a core's output, guarded by the owner's lock.
type Output struct {
	Bytes  []byte // messages, back to back,
	Ends   []int  // and where each ends
	Urgent bool   // somebody waits for a message
	Tasks  []Task // for the delivery goroutine, in order

	memory  *buffer       // that Bytes and Ends are in; nil while there are none
	chunks  []*buffer     // messages before those
	queued  int           // bytes in chunks
	writing int           // bytes taken that are being written
	room    chan struct{} // if not nil, waiters at a limit wait for it to be closed, when there may be room
}

// Task is one unit of work for the delivery goroutine.
type Task interface{ Run() }

// Func is a Task that calls a function.
type Func func()

// Run implements Task.
func (f Func) Run() { f() }

// buffer is memory for messages that are written together. It is pooled: a connection without output has none.
type buffer struct {
	b    []byte
	ends []int
}

// bufferSizes are the sizes of pooled buffers; more is there only for a single large message, and is not pooled.
var bufferSizes = [...]int{1 << 10, 4 << 10, 16 << 10, ChunkBytes}

var bufferPools [len(bufferSizes)]sync.Pool

// newBuffer returns an empty buffer with room for so many bytes.
func newBuffer(bytes int) *buffer {
	for i, size := range bufferSizes {
		if bytes <= size {
			if m, ok := bufferPools[i].Get().(*buffer); ok {
				return m
			}
			return &buffer{b: make([]byte, 0, size)}
		}
	}
	return &buffer{b: make([]byte, 0, bytes)}
}

// free makes m available to other connections.
func (m *buffer) free() {
	if i := slices.Index(bufferSizes[:], cap(m.b)); i >= 0 && cap(m.ends) <= 4096 {
		m.b, m.ends = m.b[:0], m.ends[:0]
		bufferPools[i].Put(m)
	}
}

// Reserve makes room in Bytes for a message of so many bytes, which is appended next and ended with EndMessage. Messages are
// written in chunks of up to ChunkBytes, unless one is larger.
func (o *Output) Reserve(bytes int) {
	if len(o.Bytes) > 0 && len(o.Bytes)+bytes > ChunkBytes {
		o.chunks, o.queued = append(o.chunks, o.takeOpen()), o.queued+len(o.Bytes)
		o.Bytes, o.Ends = nil, nil
	}
	if cap(o.Bytes)-len(o.Bytes) >= bytes {
		return
	}
	m := newBuffer(len(o.Bytes) + bytes)
	b, ends := append(m.b, o.Bytes...), append(m.ends, o.Ends...)
	if o.memory != nil {
		o.memory.free()
	}
	o.memory, o.Bytes, o.Ends = m, b, ends
}

// takeOpen returns the memory of Bytes and Ends.
func (o *Output) takeOpen() *buffer {
	m := o.memory
	if m == nil {
		m = new(buffer)
	}
	m.b, m.ends, o.memory = o.Bytes, o.Ends, nil
	return m
}

// EndMessage ends a message that was appended to Bytes. With urgent set it is written at once, else with the next one, or a
// moment later.
func (o *Output) EndMessage(urgent bool) {
	o.Ends = append(o.Ends, len(o.Bytes))
	o.Urgent = o.Urgent || urgent
}

// pending returns how many bytes wait to be written.
func (o *Output) pending() int { return o.queued + len(o.Bytes) }

// Size returns how many bytes the peer has not taken yet.
func (o *Output) Size() int { return o.pending() + o.writing }

// take takes the messages that are to be written next out.
func (o *Output) take() *buffer {
	var m *buffer
	if len(o.chunks) > 0 {
		m = o.chunks[0]
		o.chunks[0] = nil
		if o.chunks = o.chunks[1:]; len(o.chunks) == 0 {
			o.chunks = nil
		}
		o.queued -= len(m.b)
	} else {
		m = o.takeOpen()
		o.Bytes, o.Ends = nil, nil
	}
	o.Urgent = o.Urgent && o.pending() > 0
	return m
}

// putBack undoes take.
func (o *Output) putBack(m *buffer) {
	o.chunks, o.queued = slices.Insert(o.chunks, 0, m), o.queued+len(m.b)
}

// TakeMessages takes all messages out.
func (o *Output) TakeMessages() (messages [][]byte) {
	for o.pending() > 0 {
		m, from := o.take(), 0
		for _, end := range m.ends {
			messages = append(messages, m.b[from:end])
			from = end
		}
	}
	return messages
}

// WakeWaiters wakes the callers that wait at a limit.
func (o *Output) WakeWaiters() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

func (o *Output) waitRoom() <-chan struct{} {
	if o.room == nil {
		o.room = make(chan struct{})
	}
	return o.room
}
