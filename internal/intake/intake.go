// Package intake decides how many bytes of peers' messages are kept, and which messages are decoded, on every wire that has
// connections.
//
//	stranger      a peer that has not authenticated with a ref: Trust was not called for it
//	first flight  restore, open and apply, sent before any of them is answered
//	restore       the call that authenticates with a ref
//	throttled     of the answer to a wrong ref: delayed
//
// A stranger's bytes are kept raw, charged to one budget of all strangers, and only messages needed to authenticate are
// decoded. For a first flight, messages behind a restore wait for its answer: raw up to Config.MaxStrangerBytes, and beyond
// that unread. Where no restore is pending, more is refused. A peer that authenticates moves, with all it has charged, to
// another budget, under the key of that ref.
//
// A connection reports to its [Peer] the bytes it reads (ReserveRead) and keeps (TryGrow, Shrink), and asks whether it may
// decode (Trusted); the code that checks refs calls Trust. A nil Peer is trusted, and its memory is not bounded.
//
// # Lock order
//
//	Peer.mu, then the lock of its membudget.Account, then that of the Budget
//
// # Bounds
//
// Memory is bounded by Config.Strangers and Config.Known (package membudget), a stranger's raw bytes by MaxStrangerBytes, its
// waiting by MaxWait, and its messages and calls by the constants of this package.
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
	// MaxStrangerMessage is the largest message that is decoded for a stranger, in bytes: authenticating takes a tenth of it.
	MaxStrangerMessage = 16 << 10
	// PendingCalls is how many calls of a stranger may be unanswered before no further one is accepted.
	PendingCalls = 32
	// QueuedBytes is how many bytes of output may wait for a stranger to read before no further message is accepted.
	QueuedBytes = 64 << 10
	// CallBytes is about how many bytes a call takes besides its arguments.
	CallBytes = 1 << 10
)

// Config holds the settings for all connections of a server.
type Config struct {
	Strangers        *membudget.Budget // keyed by address
	Known            *membudget.Budget // keyed by ref
	MaxStrangerBytes int               // how many bytes of a stranger are kept
	MaxWait          time.Duration     // how long input beyond that may wait for a restore's answer

	TooLarge   error // the error for a stranger that sends more and has no restore pending
	Overloaded error // the error for a peer when there is no memory
}

// Open returns a Peer for a connection from an address. It must be closed.
func (c *Config) Open(address string) *Peer {
	return &Peer{cfg: c, account: c.Strangers.Open(address), maxMessage: MaxStrangerMessage}
}

// OpenFindingRefs is Open for a wire whose messages contain refs, with their secrets. A stranger's messages are decoded up to
// Config.MaxStrangerBytes; of larger ones, show searches the bytes received so far, and returns the ref it finds, "" for
// none, or the error to send to the peer.
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
	findRef    func(have []byte) (ref string, err error) // nil: only Trust makes it trusted

	mu            sync.Mutex
	readBytes     int64 // charged for the message that is being read
	usedBytes     int64 // charged for the rest, in multiples of quantum: this much is used,
	chargedBytes  int64 // and this much charged
	changed       func()
	awaitRestores func(context.Context) error
}

// Bind sets the peer's callbacks: changed is called, without a lock of Peer's held, when more may be accepted; settle waits
// until no restore is pending, or the peer is trusted.
func (p *Peer) Bind(changed func(), settle func(context.Context) error) {
	if p == nil {
		return
	}
	p.mu.Lock()
	p.changed, p.awaitRestores = changed, settle
	p.mu.Unlock()
}

// Trusted reports whether the peer has authenticated.
func (p *Peer) Trusted() bool { return p == nil || p.trusted.Load() }

// Trust records that the peer has authenticated with this ref. The first one counts.
func (p *Peer) Trust(ref string) {
	if p == nil || !p.trusted.CompareAndSwap(false, true) {
		return
	}
	p.account.MoveTo(p.cfg.Known, ref)
	p.notify()
}

// BeginThrottle records that the answer to a wrong ref is delayed; EndThrottle that it is sent. Input that waits for a
// restore does not wait for delayed ones.
func (p *Peer) BeginThrottle() { p.addThrottled(1) }

// EndThrottle ends the delay of BeginThrottle.
func (p *Peer) EndThrottle() { p.addThrottled(-1) }

func (p *Peer) addThrottled(n int32) {
	if p != nil && !p.Trusted() {
		p.throttled.Add(n)
		p.notify()
	}
}

// Throttled returns how many answers are delayed.
func (p *Peer) Throttled() int { return int(max(p.throttled.Load(), 0)) }

func (p *Peer) notify() {
	p.mu.Lock()
	changed := p.changed
	p.mu.Unlock()
	if changed != nil {
		changed()
	}
}

// MaxStrangerBytes returns how many bytes of a stranger are kept.
func (p *Peer) MaxStrangerBytes() int { return p.cfg.MaxStrangerBytes }

// MaxWait returns how long input beyond that may wait.
func (p *Peer) MaxWait() time.Duration { return p.cfg.MaxWait }

// TooLarge returns the error for a stranger that sends too much.
func (p *Peer) TooLarge() error { return p.cfg.TooLarge }

// Overloaded returns the error for a peer when there is no memory.
func (p *Peer) Overloaded() error { return p.cfg.Overloaded }

// MaxMessage returns the largest message that is decoded for the peer as a stranger, in bytes.
func (p *Peer) MaxMessage() int { return p.maxMessage }

// FindRef searches for a ref in the bytes received of a message too large for a stranger. An error is for the peer.
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

// ReserveRead is called before the read buffer of a message, of which have is present, grows to n bytes: 0 when it is
// released. It may wait. An error is to be sent to the peer, and ends its connection.
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

// quantum is how many bytes are charged at once, so that not every small call contends for the budget's lock.
func (p *Peer) quantum() int64 {
	if p.trusted.Load() {
		return 64 << 10
	}
	return 4 << 10
}

// TryGrow charges n bytes before they are kept; false if there is no room.
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

// Grow is TryGrow that waits for room. An error is to be sent to the peer, and ends its connection.
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

// charge waits for room. An error is to be sent to the peer.
func (p *Peer) charge(ctx context.Context, n int64) error {
	switch err := p.account.Grow(ctx, n); {
	case errors.Is(err, membudget.ErrTooLarge):
		return p.cfg.TooLarge
	case err != nil:
		return p.cfg.Overloaded
	}
	return nil
}

// Shrink releases n bytes.
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

// Close releases everything.
func (p *Peer) Close() {
	if p != nil {
		p.account.Close()
	}
}
