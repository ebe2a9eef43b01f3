// Package intake decides how much is held of what peers send, and what of it is decoded, on every wire that has
// connections.
//
// A peer is a stranger until it has shown a ref: until Trust. Of strangers bytes are kept raw, charged to one budget of
// all of them, and nothing is decoded but what showing a ref takes. So that a first flight of restore, open and apply can
// leave before anything was answered, what comes behind a restore waits for its answer: raw up to Config.Message, and
// beyond that unread. Where none is pending, more is refused. A peer that has shown a ref goes on under another budget, by
// that ref, with what it holds.
//
// A connection tells its [Peer] what it reads (Reading) and holds (TryGrow, Shrink), and asks whether it may decode
// (Trusted); whoever checks refs says Trust. A nil Peer is trusted, and has all the memory there is.
package intake

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/mooring-rpc/mooring/internal/membudget"
)

const (
	// SmallMessage is the largest message that is decoded for a stranger: to show a ref takes a tenth of it.
	SmallMessage = 16 << 10
	// PendingCalls is how many calls of a stranger may be unanswered before no further one is taken in.
	PendingCalls = 32
	// QueuedBytes is how much may wait for a stranger to read it before nothing further is taken in.
	QueuedBytes = 64 << 10
	// CallBytes is what a call takes besides its arguments, about.
	CallBytes = 1 << 10
)

// Config is for all connections of a server.
type Config struct {
	Strangers *membudget.Budget // by address
	Known     *membudget.Budget // by ref
	Message   int               // how much of what a stranger sends is kept
	Patience  time.Duration     // how long more than that may wait for a restore's answer

	TooLarge   error // what a stranger is told that sends more and has no restore pending
	Overloaded error // what peers are told for whom there is no memory
}

// Open is for a connection from an address. It has to be closed.
func (c *Config) Open(address string) *Peer {
	return &Peer{cfg: c, account: c.Strangers.Open(address), small: SmallMessage}
}

// OpenShowing is Open for a wire on which messages show refs themselves, secrets say. What a stranger sends is decoded up to
// Config.Message, for what that takes; of more, show looks at what has come, and gives the ref that it shows, "" for none,
// or what the peer is told.
func (c *Config) OpenShowing(address string, show func(have []byte) (ref string, err error)) *Peer {
	p := c.Open(address)
	p.small, p.show = c.Message, show
	return p
}

// Peer is the other side of one connection. It is safe for concurrent use.
type Peer struct {
	cfg     *Config
	account *membudget.Account
	trusted atomic.Bool
	delayed atomic.Int32

	small int                                       // the largest message that is decoded for it as a stranger
	show  func(have []byte) (ref string, err error) // nil: only Trust makes it none

	mu       sync.Mutex
	reading  int64 // charged for the message that is being read
	held     int64 // charged for the rest, by parts of quantum: this much is used,
	reserved int64 // and this much charged
	changed  func()
	settle   func(context.Context) error
}

// Bind tells the peer of its connection: changed is called, without a lock of Peer's held, when it may take in more;
// settle waits until no restore is pending, or the peer is trusted.
func (p *Peer) Bind(changed func(), settle func(context.Context) error) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.changed, p.settle = changed, settle
	p.mu.Unlock()
}

// Trusted says that the peer has shown a ref.
func (p *Peer) Trusted() bool { return p == nil || p.trusted.Load() }

// Trust says that the peer has shown this ref. The first one counts.
func (p *Peer) Trust(ref string) {
	if p == nil || !p.trusted.CompareAndSwap(false, true) {
		return
	}
	p.account.Move(p.cfg.Known, ref)
	p.tell()
}

// Delay says that the answer to a wrong ref is delayed; Given that it is given. What waits for a restore does not wait
// for such.
func (p *Peer) Delay() { p.delay(1) }

// Given is the end of Delay.
func (p *Peer) Given() { p.delay(-1) }

func (p *Peer) delay(n int32) {
	if p != nil && !p.Trusted() {
		p.delayed.Add(n)
		p.tell()
	}
}

// Delayed is how many answers are.
func (p *Peer) Delayed() int { return int(max(p.delayed.Load(), 0)) }

func (p *Peer) tell() {
	p.mu.Lock()
	changed := p.changed
	p.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// Message is how much of a stranger's bytes is kept.
func (p *Peer) Message() int { return p.cfg.Message }

// Patience is how long more than that may wait.
func (p *Peer) Patience() time.Duration { return p.cfg.Patience }

// TooLarge and Overloaded are what the peer is told.
func (p *Peer) TooLarge() error { return p.cfg.TooLarge }

// Overloaded is for whom there is no memory.
func (p *Peer) Overloaded() error { return p.cfg.Overloaded }

// Small is the largest message that is decoded for the peer as a stranger.
func (p *Peer) Small() int { return p.small }

// Show looks for a ref in what has come of a message that is too much for a stranger. An error is what the peer is told.
func (p *Peer) Show(have []byte) error {
	if p.Trusted() {
		return nil
	}
	if p.show == nil {
		return p.cfg.TooLarge
	}
	ref, err := p.show(have)
	switch {
	case err != nil:
		return err
	case ref == "":
		return p.cfg.TooLarge
	}
	p.Trust(ref)
	return nil
}

// Reading is called before the buffer of the message that is being read, of which this is there, holds n bytes: 0 when it is
// let go of. It may wait. An error is what the peer is to be told, and the end of its connection.
func (p *Peer) Reading(n int, have []byte) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	more, settle := int64(n)-p.reading, p.settle
	p.mu.Unlock()
	if more > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), p.cfg.Patience)
		defer cancel()
		if n > p.cfg.Message && !p.trusted.Load() {
			if settle != nil && p.show == nil {
				if err := settle(ctx); err != nil {
					return err
				}
			}
			if err := p.Show(have); err != nil {
				return err
			}
		}
		if err := p.charge(ctx, more); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reading = int64(n)
	if more < 0 {
		p.account.Shrink(-more)
	}
	return nil
}

// quantum is what is charged at once, so that not every small call meets all others at the budget's lock.
func (p *Peer) quantum() int64 {
	if p.trusted.Load() {
		return 64 << 10
	}
	return 4 << 10
}

// TryGrow charges n bytes that are to be held; false if there is no room.
func (p *Peer) TryGrow(n int) bool {
	if p == nil || n <= 0 {
		return true
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	want := p.held + int64(n)
	if more := want - p.reserved; more > 0 {
		more += p.quantum() - 1
		more -= more % p.quantum()
		if !p.account.TryGrow(more) {
			return false
		}
		p.reserved += more
	}
	p.held = want
	return true
}

// Grow is TryGrow that waits for room. An error is what the peer is to be told, and the end of its connection.
func (p *Peer) Grow(n int) error {
	if p.TryGrow(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.Patience)
	defer cancel()
	if err := p.charge(ctx, int64(n)); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held += int64(n)
	p.reserved += int64(n)
	return nil
}

// charge waits for room. An error is what the peer is to be told.
func (p *Peer) charge(ctx context.Context, n int64) error {
	switch err := p.account.Grow(ctx, n); {
	case errors.Is(err, membudget.ErrTooLarge):
		return p.cfg.TooLarge
	case err != nil:
		return p.cfg.Overloaded
	}
	return nil
}

// Shrink gives n bytes back.
func (p *Peer) Shrink(n int) {
	if p == nil || n <= 0 {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = max(0, p.held-int64(n))
	if q := p.quantum(); p.reserved-p.held >= 2*q || p.held == 0 {
		back := p.reserved - p.held
		if p.held > 0 {
			back -= back % q
		}
		p.account.Shrink(back)
		p.reserved -= back
	}
}

// Close gives all back.
func (p *Peer) Close() {
	if p != nil {
		p.account.Close()
	}
}
