// What answers a prompt: the values that are its parts are read, and then followed, until the prompt has ended.

package prompts

import (
	"context"
	"errors"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Sink takes what answers a prompt. One goroutine calls its methods.
type Sink interface {
	// Begin says that what follows is of a message, which answers the prompt.
	Begin(message string)

	// Put takes the value of a part as of a cursor, Append the payload of an event that appends text to one, and Remove its
	// removal; all of them may come again. stale says that the message's parts have to be read again.
	Put(k session.Key, payload []byte, cursor uint64) (stale bool)
	Append(k session.Key, payload []byte, cursor uint64) (stale bool)
	Remove(key string, cursor uint64) (stale bool)

	// Reset says that the parts of a message are put anew. Where it returns false they are not.
	Reset(message string) bool

	// Pending returns about how many bytes of what was taken a reader does not have yet. Flush is called for it to have them, with
	// what came together, and after each change of the prompt's state.
	Pending() int
	Flush() error
}

// Hold charges whoever reads with so many bytes until they are released, or refuses them (httpapi.Request.Hold).
type Hold func(bytes int) (release func(), refused *fault.Error)

// ErrEnded is the error of what follows a prompt that has ended.
var ErrEnded = errors.New("the prompt has ended")

// resetEvery is how often the parts of a message are read again, at most.
const resetEvery = time.Second

// partsBytes is about how many bytes of parts are read at once; freeBytes how many of values may be held without being charged;
// gatherBytes how many a reader is given without waiting for those of the next event.
const (
	partsBytes  = 256 << 10
	freeBytes   = 64 << 10
	gatherBytes = 4 << 10
)

// Follower reads and follows a prompt. Its methods are for one goroutine.
type Follower struct {
	Prompt
	live    *objects.Capability
	hold    Hold
	resetAt time.Time // of the last reset
}

// NewFollower returns a Follower of a prompt, which Read has to read first.
func NewFollower(live *objects.Capability, id string, hold Hold) *Follower {
	return &Follower{Prompt: Prompt{ID: id}, live: live, hold: hold}
}

// Put gives a sink what there is of the answer.
func (f *Follower) Put(ctx context.Context, sink Sink) error {
	for _, m := range f.Messages {
		sink.Begin(m)
		if err := f.putParts(ctx, sink, m); err != nil {
			return err
		}
	}
	return nil
}

// Follow gives a sink what comes after that was read, until the prompt has ended (ErrEnded), ctx ends, or following does
// (objects.Capability.Follow).
func (f *Follower) Follow(ctx context.Context, sink Sink) error {
	if f.State.Ended() {
		return ErrEnded
	}
	keys, refused := session.SelectKeys([]string{session.RequestKey(f.ID), session.RequestStateKey(f.ID), "message/", "part/"})
	if refused != nil {
		return refused
	}
	return f.live.Follow(ctx, f.at, keys, func(events []*session.Event) error { return f.take(ctx, sink, events) })
}

// Wait waits for the end of the prompt. Its errors are Follow's; nil is the end.
func (f *Follower) Wait(ctx context.Context) error {
	if f.State.Ended() {
		return nil
	}
	keys, refused := session.SelectKeys([]string{session.RequestKey(f.ID), session.RequestStateKey(f.ID)})
	if refused != nil {
		return refused
	}
	err := f.live.Follow(ctx, f.at, keys, func(events []*session.Event) error {
		for _, e := range events {
			if _, err := f.request(e); err != nil {
				return err
			}
		}
		return nil
	})
	if err == ErrEnded {
		return nil
	}
	return err
}

// putParts puts the parts of a message as they are, a page at a time.
func (f *Follower) putParts(ctx context.Context, sink Sink, message string) error {
	query := session.KeyQuery{Prefix: session.PartKey(message, ""), Order: session.ByPut, Values: true, Limit: session.MaxListKeys, MaxBytes: partsBytes}
	for {
		page, err := f.live.ListKeys(ctx, query)
		if err != nil {
			return err
		}
		size := 0
		for _, e := range page.Entries {
			size += len(e.Payload)
		}
		err = f.holding(size, func() error {
			for _, e := range page.Entries {
				if k, refused := session.ParseKey(e.Key); refused == nil {
					sink.Put(k, e.Payload, e.Changed())
				}
				if err := sink.Flush(); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if !page.More {
			return nil
		}
		query.After = page.Next
	}
}

// holding calls do while values of so many bytes, and what is made of them, are charged to the ref: a reader may take
// them as slowly as its pace allows, and there may be many.
func (f *Follower) holding(size int, do func() error) error {
	if size <= freeBytes {
		return do()
	}
	release, refused := f.hold(2 * size)
	if refused != nil {
		return refused
	}
	defer release()
	return do()
}

// take is the callback of Capability.Follow. What comes together is given together.
func (f *Follower) take(ctx context.Context, sink Sink, events []*session.Event) error {
	for _, e := range events {
		if e.Hidden {
			continue
		}
		state := f.State
		err := f.holding(len(e.Payload), func() error {
			stale, err := f.event(ctx, sink, e)
			if err == nil && stale != "" {
				if err = sink.Flush(); err == nil { // it may wait
					err = f.reset(ctx, sink, stale)
				}
			}
			if err == nil && (f.State != state || len(e.Payload) > freeBytes || sink.Pending() >= gatherBytes) {
				err = sink.Flush()
			}
			return err
		})
		if err == ErrEnded {
			if failed := sink.Flush(); failed != nil {
				return failed
			}
		}
		if err != nil {
			return err
		}
	}
	return sink.Flush()
}

// request takes an event, if it is about a request: then is is true, and the error is ErrEnded once the prompt has ended.
func (f *Follower) request(e *session.Event) (is bool, err error) {
	id, state, is := session.RequestOf(e.Key)
	if is && state && id == f.ID && !e.Hidden {
		f.became(e.Payload)
	}
	if is && f.State.Ended() {
		return is, ErrEnded
	}
	return is, nil
}

// event takes an event. stale is the message whose parts have to be read again, "" for none.
func (f *Follower) event(ctx context.Context, sink Sink, e *session.Event) (stale string, err error) {
	if is, err := f.request(e); is {
		return "", err
	}
	k, refused := session.ParseKey(e.Key)
	if refused != nil {
		return "", nil
	}
	switch {
	case k.Kind == session.KeyMessage && (e.Method == session.MethodPut || e.Method == session.MethodBegin):
		mine, err := f.seen(ctx, k.Message, e)
		if mine && err == nil {
			sink.Begin(k.Message)
		}
		return "", err
	case k.Kind == session.KeyPart && !f.Owns(k.Message):
		if e.Method == session.MethodPut {
			f.named(k.Message, e.Payload)
		}
	case f.Owns(k.Message) && f.change(sink, k, e):
		return k.Message, nil
	}
	return "", nil
}

// change takes an event about a message that answers, or about one of its parts.
func (f *Follower) change(sink Sink, k session.Key, e *session.Event) (stale bool) {
	switch {
	case e.Method == session.MethodFinalize:
		for key, value := range session.FinalValues(e.Payload) {
			if part, refused := session.ParseKey(key); refused == nil && part.Kind == session.KeyPart && f.Owns(part.Message) {
				stale = sink.Put(part, value, e.Cursor) || stale
			}
		}
	case e.Method == session.MethodRevert, e.Method == session.MethodUnrevert, e.Method == session.MethodSettle:
		return true
	case k.Kind != session.KeyPart:
		return e.Method == session.MethodRemove || e.Method == session.MethodPurge
	case e.Method == session.MethodPut && e.Payload != nil:
		return sink.Put(k, e.Payload, e.Cursor)
	case e.Method == session.MethodAppendText && e.Payload != nil:
		return sink.Append(k, e.Payload, e.Cursor)
	case e.Method == session.MethodRemove, e.Method == session.MethodPurge:
		return sink.Remove(e.Key, e.Cursor)
	}
	return stale
}

// reset has the parts of a message put anew, as they are by now. It waits, so that a writer who changes a text
// again and again has them read no more often than a reader needs them.
func (f *Follower) reset(ctx context.Context, sink Sink, message string) error {
	if !sink.Reset(message) {
		return nil
	}
	if wait := resetEvery - time.Since(f.resetAt); wait > 0 {
		select {
		case <-time.After(wait):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	f.resetAt = time.Now()
	return f.putParts(ctx, sink, message)
}
