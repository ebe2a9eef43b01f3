// Package intake decides how much is held of what peers send, and what of it is decoded, on every wire that has
// connections.
//
// A peer is a stranger until it has shown a ref: until Trust. Of strangers bytes are kept raw, charged to one budget of
// all of them, and nothing is decoded but what showing a ref takes. So that a first flight of restore, open and apply can
// leave before anything was answered, what comes behind a restore waits for its answer: raw up to Config.MaxStrangerBytes, and
// beyond that unread. Where none is pending, more is refused. A peer that has shown a ref goes on under another budget, by
// that ref, with what it holds.
//
// A connection tells its [Peer] what it reads (ReserveRead) and holds (TryGrow, Shrink), and asks whether it may decode
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
	// MaxStrangerMessage is the largest message that is decoded for a stranger: to show a ref takes a tenth of it.
	MaxStrangerMessage = 16 << 10
	// PendingCalls is how many calls of a stranger may be unanswered before no further one is taken in.
	PendingCalls = 32
	// QueuedBytes is how much may wait for a stranger to read it before nothing further is taken in.
	QueuedBytes = 64 << 10
	// CallBytes is what a call takes besides its arguments, about.
	CallBytes = 1 << 10
)

// Config is for all connections of a server.
type Config struct {
	Strangers        *membudget.Budget // by address
	Known            *membudget.Budget // by ref
	MaxStrangerBytes int               // how much of what a stranger sends is kept
	MaxWait          time.Duration     // how long more than that may wait for a restore's answer

	TooLarge   error // what a stranger is told that sends more and has no restore pending
	Overloaded error // what peers are told for whom there is no memory
}

// Open is for a connection from an address. It has to be closed.
func (c *Config) Open(address string) *Peer {
	return &Peer{cfg: c, account: c.Strangers.Open(address), maxMessage: MaxStrangerMessage}
}

// OpenFindingRefs is Open for a wire on which messages show refs themselves, secrets say. What a stranger sends is decoded up to
// Config.MaxStrangerBytes, for what that takes; of more, show looks at what has come, and gives the ref that it shows, "" for none,
// or what the peer is told.
func (c *Config) OpenFindingRefs(address string, show func(have []byte) (ref string, err error)) *Peer {
	p := c.Open(address)
	p.maxMessage, p.findRef = c.MaxStrangerBytes, show
	return p
}

// Peer is the other side of one connection. It is safe for concurrent use.
type Peer struct {
	cfg       *Config
	account   *membudget.Account
	trusted   atomic.Bool
	throttled atomic.Int32

	maxMessage int                                       // the largest message that is decoded for it as a stranger
	findRef    func(have []byte) (ref string, err error) // nil: only Trust makes it none

	mu            sync.Mutex
	readBytes     int64 // charged for the message that is being read
	usedBytes     int64 // charged for the rest, by parts of quantum: this much is used,
	chargedBytes  int64 // and this much charged
	changed       func()
	awaitRestores func(context.Context) error
}

// Bind tells the peer of its connection: changed is called, without a lock of Peer's held, when it may take in more;
// settle waits until no restore is pending, or the peer is trusted.
func (p *Peer) Bind(changed func(), settle func(context.Context) error) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.changed, p.awaitRestores = changed, settle
	p.mu.Unlock()
}

// Trusted says that the peer has shown a ref.
func (p *Peer) Trusted() bool { return p == nil || p.trusted.Load() }

// Trust says that the peer has shown this ref. The first one counts.
func (p *Peer) Trust(ref string) {
	if p == nil || !p.trusted.CompareAndSwap(false, true) {
		return
	}
	p.account.MoveTo(p.cfg.Known, ref)
	p.notify()
}

// BeginThrottle says that the answer to a wrong ref is delayed; EndThrottle that it is given. What waits for a restore does not wait
// for such.
func (p *Peer) BeginThrottle() { p.addThrottled(1) }

// EndThrottle is the end of BeginThrottle.
func (p *Peer) EndThrottle() { p.addThrottled(-1) }

func (p *Peer) addThrottled(n int32) {
	if p != nil && !p.Trusted() {
		p.throttled.Add(n)
		p.notify()
	}
}

// Throttled is how many answers are.
func (p *Peer) Throttled() int { return int(max(p.throttled.Load(), 0)) }

func (p *Peer) notify() {
	p.mu.Lock()
	changed := p.changed
	p.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// MaxStrangerBytes is how much of a stranger's bytes is kept.
func (p *Peer) MaxStrangerBytes() int { return p.cfg.MaxStrangerBytes }

// MaxWait is how long more than that may wait.
func (p *Peer) MaxWait() time.Duration { return p.cfg.MaxWait }

// TooLarge and Overloaded are what the peer is told.
func (p *Peer) TooLarge() error { return p.cfg.TooLarge }

// Overloaded is for whom there is no memory.
func (p *Peer) Overloaded() error { return p.cfg.Overloaded }

// MaxMessage is the largest message that is decoded for the peer as a stranger.
func (p *Peer) MaxMessage() int { return p.maxMessage }

// FindRef looks for a ref in what has come of a message that is too much for a stranger. An error is what the peer is told.
func (p *Peer) FindRef(have []byte) error {
	if p.Trusted() {
		return nil
	}
	if p.findRef == nil {
		return p.cfg.TooLarge
	}
	ref, err := p.findRef(have)
	switch {
	case err != nil:
		return err
	case ref == "":
		return p.cfg.TooLarge
	}
	p.Trust(ref)
	return nil
}

// ReserveRead is called before the buffer of the message that is being read, of which this is there, holds n bytes: 0 when it is
// let go of. It may wait. An error is what the peer is to be told, and the end of its connection.
func (p *Peer) ReserveRead(n int, have []byte) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	more, settle := int64(n)-p.readBytes, p.awaitRestores
	p.mu.Unlock()
	if more > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), p.cfg.MaxWait)
		defer cancel()
		if n > p.cfg.MaxStrangerBytes && !p.trusted.Load() {
			if settle != nil && p.findRef == nil {
				if err := settle(ctx); err != nil {
					return err
				}
			}
			if err := p.FindRef(have); err != nil {
				return err
			}
		}
		if err := p.charge(ctx, more); err != nil {
			return err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.readBytes = int64(n)
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
	want := p.usedBytes + int64(n)
	if more := want - p.chargedBytes; more > 0 {
		more += p.quantum() - 1
		more -= more % p.quantum()
		if !p.account.TryGrow(more) {
			return false
		}
		p.chargedBytes += more
	}
	p.usedBytes = want
	return true
}

// Grow is TryGrow that waits for room. An error is what the peer is to be told, and the end of its connection.
func (p *Peer) Grow(n int) error {
	if p.TryGrow(n) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), p.cfg.MaxWait)
	defer cancel()
	if err := p.charge(ctx, int64(n)); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.usedBytes += int64(n)
	p.chargedBytes += int64(n)
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
	p.usedBytes = max(0, p.usedBytes-int64(n))
	if q := p.quantum(); p.chargedBytes-p.usedBytes >= 2*q || p.usedBytes == 0 {
		back := p.chargedBytes - p.usedBytes
		if p.usedBytes > 0 {
			back -= back % q
		}
		p.account.Shrink(back)
		p.chargedBytes -= back
	}
}

// Close gives all back.
func (p *Peer) Close() {
	if p != nil {
		p.account.Close()
	}
}
