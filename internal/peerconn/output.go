// Output: what a core leaves for its Loop to write and to deliver.

package peerconn

// Output is a core's output, guarded by the owner's lock.
type Output struct {
	Bytes  []byte // messages, back to back,
	Ends   []int  // and where each ends
	Urgent bool   // somebody waits for one of them
	Tasks  []Task // for the delivery goroutine, in order

	writing int           // bytes taken that are being written
	room    chan struct{} // if not nil, waiters at a limit wait for it to be closed, when there may be room
}

// Task is one unit of work for the delivery goroutine.
type Task interface{ Run() }

// Func is a Task that calls a function.
type Func func()

// Run implements Task.
func (f Func) Run() { f() }

// messages are messages back to back, and where each ends.
type messages struct {
	b    []byte
	ends []int
}

// EndMessage ends a message that was appended to Bytes. With urgent set it is written at once, else with the next one, or a
// moment later.
func (o *Output) EndMessage(urgent bool) {
	o.Ends = append(o.Ends, len(o.Bytes))
	o.Urgent = o.Urgent || urgent
}

// Size returns how many bytes the peer has not taken yet.
func (o *Output) Size() int { return len(o.Bytes) + o.writing }

// TakeMessages takes the messages out.
func (o *Output) TakeMessages() (b []byte, ends []int) {
	b, ends = o.Bytes, o.Ends
	o.Bytes, o.Ends = nil, nil
	return b, ends
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
