// Package membudget bounds the memory that many hold together for what others send: in all, and by who it is for.
//
// A [Budget] is made once, with a limit of bytes in all and one for each key: a peer's address, or a ref's id. Whoever is
// about to hold something opens an [Account] under a key, grows it before the bytes are held, shrinks it when some are let
// go, and closes it in the end:
//
//	account := budget.Open(address)
//	defer account.Close()
//	body, err := io.ReadAll(account.Reader(ctx, r.Body)) // as much as comes, never more than there is room for
//
//	if err := account.Grow(ctx, n); err != nil { … } // waits for room, as long as the budget has patience
//	if !account.TryGrow(n) { … }                     // does not
//	account.Shrink(n)
//
// What is charged is what is really held, decoded forms and growth included: a budget knows only what it is told. Who
// waits with a part of what it needs keeps others from theirs, which the budget's patience ends: the error is [ErrFull],
// which peers are answered as overloaded. More than could ever be there is [ErrTooLarge] at once.
//
// A peer that shows who it is goes on under another key, or another budget, with what it holds: [Account.MoveTo].
//
// Budgets and accounts are safe for concurrent use.
package membudget

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"time"
)

// ErrFull is that there was no room within the budget's patience; it may help to try again later.
var ErrFull = errors.New("no memory is left for this now")

// ErrTooLarge is that something is larger than there could ever be room for.
var ErrTooLarge = errors.New("this is larger than there is ever memory for")

// Config says how much there is.
type Config struct {
	Total   int64         // bytes of all keys together
	PerKey  int64         // bytes of one key; 0 is Total
	MaxWait time.Duration // for how long Grow waits for room; 0 not at all
}

// Budget is so many bytes.
type Budget struct {
	maxWait time.Duration

	mu      sync.Mutex
	total   int64
	perKey  int64
	held    int64
	keys    map[string]*holder
	waiting []*waiter // the oldest first
	peak    int64
	refused uint64
}

// holder is one key's part. It is forgotten when no account of the key is open.
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

// outcome is what Grow gives once done is closed.
func (w *waiter) outcome() error {
	if w.closed {
		return ErrFull
	}
	return nil
}

// New makes a budget.
func New(cfg Config) *Budget {
	b := &Budget{maxWait: cfg.MaxWait, keys: map[string]*holder{}}
	b.SetLimits(cfg.Total, cfg.PerKey)
	return b
}

// SetLimits has others hold from now on, perKey as in [Config]. What is held stays, also where it is more by now: nothing is
// added to it then.
func (b *Budget) SetLimits(total, perKey int64) {
	if perKey <= 0 || perKey > total {
		perKey = total
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.total, b.perKey = total, perKey
	b.admit()
}

// Stats are a budget's numbers.
type Stats struct {
	Held, Peak, Total int64
	Refused           uint64 // how often there was no room
}

// Stats gives the present numbers.
func (b *Budget) Stats() Stats {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Stats{Held: b.held, Peak: b.peak, Total: b.total, Refused: b.refused}
}

// Open gives an account of key in which nothing is yet. It has to be closed.
func (b *Budget) Open(key string) *Account {
	a := &Account{}
	b.mu.Lock()
	defer b.mu.Unlock()
	a.enter(b, key)
	return a
}

// fits says whether n more bytes of h are within all limits. The lock is held.
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

// refund gives n bytes of a back and lets in who has waited for them: the oldest first, past those whose own key is full.
// One that waits for room in all keeps later ones from taking it bit by bit. The lock is held.
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

// Account is what one holds of a budget.
type Account struct {
	mu     sync.Mutex // guards budget; the budget's lock comes after it
	budget *Budget    // nil once it is closed

	// The budget's lock guards these.
	key    string
	holder *holder
	held   int64
}

// enter makes the account one of b. The budget's lock is held.
func (a *Account) enter(b *Budget, key string) {
	h := b.keys[key]
	if h == nil {
		h = &holder{}
		b.keys[key] = h
	}
	h.open++
	a.budget, a.key, a.holder = b, key, h
}

// exit takes the account out of b, with all that it holds. The budget's lock is held.
func (a *Account) exit(b *Budget) {
	b.refund(a, a.held)
	if a.holder.open--; a.holder.open == 0 {
		delete(b.keys, a.key)
	}
}

// Grow charges n more bytes before they are held, and waits for room if there is none. The error is ErrFull,
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

// smallGrowth is what goes past those who wait for more: it keeps nobody waiting for long.
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

// Shrink gives n bytes back.
func (a *Account) Shrink(n int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if b := a.budget; b != nil {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.refund(a, min(n, a.held))
	}
}

// Held is how much is charged.
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

// MoveTo has the account go on under another key, of another budget even, with all that it holds, whether there is room
// for it there or not. Who moves must not be in Grow.
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

// Close gives back all that is held. What is charged afterwards is refused, and what is given back ignored, so that an
// account may be closed, twice even, while others still use it.
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

// Reader reads from r and charges the account for what has come, a byte for a byte: bytes that are only announced cost
// nothing. Who keeps the bytes in a buffer that grows, or decodes them, charges for that besides. Errors are those of r and of Grow.
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
