// Package membudget bounds the memory that many connections together keep for their peers' data: in total, and by key.
//
// A [Budget] is made once, with a limit of bytes in total and one for each key: a peer's address, or a ref's id. Code that
// is about to keep data opens an [Account] under a key, grows it before the bytes are kept, shrinks it when some are
// released, and closes it in the end:
//
//	account := budget.Open(address)
//	defer account.Close()
//	body, err := io.ReadAll(account.Reader(ctx, r.Body)) // as much as comes, never more than there is room for
//
//	if err := account.Grow(ctx, n); err != nil { … } // waits for room, for at most Config.MaxWait
//	if !account.TryGrow(n) { … }                     // does not
//	account.Shrink(n)
//
// Charge the memory really used, decoded forms and growth included: a budget counts only what is charged. An account that
// waits with a part of its memory can block others; MaxWait ends that with [ErrFull], which peers are answered as
// overloaded. A charge that could never fit is [ErrTooLarge] at once.
//
// A peer that authenticates moves to another key, or another budget, with all it has charged: [Account.MoveTo].
//
// Budgets and accounts are safe for concurrent use.
//
// # Lock order
//
//	Account.mu, then Budget.mu
//
// Two budgets' locks are never held together.
package membudget

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// ErrFull says that there was no room within the budget's MaxWait; it may help to try again later.
var ErrFull = errors.New("there is no memory for this now")

// ErrTooLarge says that a charge is larger than there could ever be room for.
var ErrTooLarge = errors.New("this is larger than the memory that there ever is for it")

// Config configures a Budget.
type Config struct {
	Total   int64         // bytes of all keys together
	PerKey  int64         // bytes of one key; 0 is Total
	MaxWait time.Duration // how long Grow waits for room; 0 not at all
}

// Budget is a number of bytes to charge to accounts.
type Budget struct {
	maxWait time.Duration

	mu      sync.Mutex
	total   int64
	perKey  int64
	held    int64
	keys    map[string]*holder
	waiting []*waiter // oldest first
	peak    int64
	refused uint64
}

// holder is the total of one key. It is deleted when no account of the key is open.
type holder struct {
	held int64
	open int
}

type waiter struct {
	account *Account
	n       int64
	done    chan struct{} // closed when the bytes are the account's, or the account is closed
	closed  bool
}

// outcome is Grow's result once done is closed.
func (w *waiter) outcome() error {
	if w.closed {
		return ErrFull
	}
	return nil
}

// New returns a budget.
func New(cfg Config) *Budget {
	b := &Budget{maxWait: cfg.MaxWait, keys: map[string]*holder{}}
	b.SetLimits(cfg.Total, cfg.PerKey)
	return b
}

// SetLimits changes the limits, perKey as in [Config]. Charged bytes stay, also where they exceed the new limits: nothing is
// added to them then.
func (b *Budget) SetLimits(total, perKey int64) {
	if perKey <= 0 || perKey > total {
		perKey = total
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total, b.perKey = total, perKey
	b.admit()
}

// Stats holds a budget's numbers: bytes, and a count.
type Stats struct {
	Held, Peak, Total int64
	Refused           uint64 // how often there was no room
}

// Stats returns the present numbers.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Held: b.held, Peak: b.peak, Total: b.total, Refused: b.refused}
}

// Open returns an empty account of key. It must be closed.
func (b *Budget) Open(key string) *Account {
	a := &Account{}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.enter(b, key)
	return a
}

// fits reports whether n more bytes of h are within all limits. The lock is held.
func (b *Budget) fits(h *holder, n int64) bool {
	return b.held+n <= b.total && h.held+n <= b.perKey
}

// charge charges n bytes. The lock is held.
func (b *Budget) charge(a *Account, n int64) {
	b.held += n
	a.holder.held += n
	a.held += n
	b.peak = max(b.peak, b.held)
}

// refund releases n bytes of a and admits waiters: the oldest first, past those whose own key is full. A waiter for room in
// the total keeps later ones from taking it bit by bit. The lock is held.
func (b *Budget) refund(a *Account, n int64) {
	b.held -= n
	a.holder.held -= n
	a.held -= n
	b.admit()
}

func (b *Budget) admit() {
	left := b.waiting[:0]
	for i, w := range b.waiting {
		if b.held+w.n > b.total {
			left = append(left, b.waiting[i:]...)
			break
		}
		if !b.fits(w.account.holder, w.n) {
			left = append(left, w)
			continue
		}
		b.charge(w.account, w.n)
		close(w.done)
	}
	clear(b.waiting[len(left):])
	b.waiting = left
}

// Account counts the bytes that its owner has charged to a budget.
type Account struct {
	mu     sync.Mutex // guards budget; the budget's lock comes after it
	budget *Budget    // nil once it is closed

	// Guarded by the budget's lock.
	key    string
	holder *holder
	held   int64
}

// enter adds the account to b. The budget's lock is held.
func (a *Account) enter(b *Budget, key string) {
	h := b.keys[key]
	if h == nil {
		h = &holder{}
		b.keys[key] = h
	}
	h.open++
	a.budget, a.key, a.holder = b, key, h
}

// exit removes the account from b, with all its bytes. The budget's lock is held.
func (a *Account) exit(b *Budget) {
	b.refund(a, a.held)
	if a.holder.open--; a.holder.open == 0 {
		delete(b.keys, a.key)
	}
}

// Grow charges n more bytes before they are kept, and waits for room if there is none. The error is ErrFull,
// ErrTooLarge, or ctx's; nothing was charged then.
func (a *Account) Grow(ctx context.Context, n int64) error {
	a.mu.Lock()
	b := a.budget
	if b == nil {
		a.mu.Unlock()
		return ErrFull
	}
	b.mu.Lock()
	switch {
	case n > b.perKey:
		b.refused++
		b.mu.Unlock()
		a.mu.Unlock()
		return ErrTooLarge
	case b.fits(a.holder, n) && (len(b.waiting) == 0 || n <= smallGrowth):
		b.charge(a, n)
		b.mu.Unlock()
		a.mu.Unlock()
		return nil
	}
	w := &waiter{account: a, n: n, done: make(chan struct{})}
	b.waiting = append(b.waiting, w)
	b.mu.Unlock()
	a.mu.Unlock()

	patience := time.NewTimer(b.maxWait)
	defer patience.Stop()
	var err error
	select {
	case <-w.done:
		return w.outcome()
	case <-patience.C:
		err = ErrFull
	case <-ctx.Done():
		err = ctx.Err()
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case <-w.done: // meanwhile
		return w.outcome()
	default:
	}
	b.waiting = slices.DeleteFunc(b.waiting, func(other *waiter) bool { return other == w })
	b.refused++
	b.admit()
	return err
}

// smallGrowth is the largest charge that overtakes waiters for more, in bytes: it delays none of them for long.
const smallGrowth = 4 << 10

// TryGrow is Grow without waiting; false if there is no room.
func (a *Account) TryGrow(n int64) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.budget
	if b == nil {
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.fits(a.holder, n) {
		b.refused++
		return false
	}
	b.charge(a, n)
	return true
}

// Shrink releases n bytes.
func (a *Account) Shrink(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.budget; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refund(a, min(n, a.held))
	}
}

// Held returns how many bytes are charged.
func (a *Account) Held() int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.budget
	if b == nil {
		return 0
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	return a.held
}

// MoveTo moves the account to another key, of another budget even, with all its bytes, whether there is room for them or
// not. No Grow may be running.
func (a *Account) MoveTo(to *Budget, key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	from := a.budget
	if from == nil {
		return
	}
	from.mu.Lock()
	held := a.held
	a.exit(from)
	from.mu.Unlock()
	to.mu.Lock()
	defer to.mu.Unlock()
	a.enter(to, key)
	to.charge(a, held)
}

// Close releases all bytes. Later charges are refused, and later releases ignored, so that an account may be closed, twice
// even, while other goroutines still use it.
func (a *Account) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	b := a.budget
	if b == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.DeleteFunc(b.waiting, func(w *waiter) bool {
		if w.account != a {
			return false
		}
		w.closed = true
		close(w.done)
		return true
	})
	a.exit(b)
	a.budget = nil
}

// Reader reads from r and charges the account a byte for each byte read: bytes that are only announced cost nothing. Code
// that keeps them in a growing buffer, or decodes them, charges for that besides. Errors are those of r and of Grow.
func (a *Account) Reader(ctx context.Context, r io.Reader) io.Reader { return &reader{a, ctx, r} }

type reader struct {
	account *Account
	ctx     context.Context
	from    io.Reader
}

// Read implements io.Reader.
func (r *reader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	if n > 0 {
		if full := r.account.Grow(r.ctx, int64(n)); full != nil {
			return 0, full
		}
	}
	return n, err
}
