// Package logdedup keeps repeated log records from filling a log. Within a window
// the first few records of one message are written as they come; the others are
// counted, and one record at the window's end says how many there were.
//
// The server's root logger stands on it, so that no peer can have it write
// without end: whatever strangers make it say, a message costs at most
// Burst + 1 lines a window.
package logdedup

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// Config says how much is written.
type Config struct {
	Window time.Duration // how long records of one message are counted together
	Burst  int           // how many of them are written as they come
}

// maxMessages bounds how many messages are counted apart. Messages are constants
// of the program, so this is never reached but by mistake; those beyond share one
// count.
const maxMessages = 256

// Handler is a slog.Handler that thins out what it hands to another. It may be
// used concurrently. Records below slog.LevelInfo pass unchanged.
type Handler struct {
	next   slog.Handler
	counts *counts
}

// counts is shared by a Handler and those derived from it by With.
type counts struct {
	cfg  Config
	mu   sync.Mutex
	seen map[key]*count
}

type key struct {
	level   slog.Level
	message string
}

// count is what one message came to in the present window.
type count struct {
	written    int
	suppressed int
	last       slog.Record  // of those suppressed
	handler    slog.Handler // that it would have gone to
}

// New gives a Handler that writes to next. Close it in the end.
func New(next slog.Handler, cfg Config) *Handler {
	return &Handler{next: next, counts: &counts{cfg: cfg, seen: map[key]*count{}}}
}

// Enabled implements slog.Handler.
func (h *Handler) Enabled(ctx context.Context, l slog.Level) bool { return h.next.Enabled(ctx, l) }

// WithAttrs implements slog.Handler.
func (h *Handler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &Handler{next: h.next.WithAttrs(attrs), counts: h.counts}
}

// WithGroup implements slog.Handler.
func (h *Handler) WithGroup(name string) slog.Handler {
	return &Handler{next: h.next.WithGroup(name), counts: h.counts}
}

// Handle implements slog.Handler.
func (h *Handler) Handle(ctx context.Context, r slog.Record) error {
	if r.Level >= slog.LevelInfo && !h.counts.admit(r, h.next) {
		return nil
	}
	return h.next.Handle(ctx, r)
}

// admit reports whether a record is to be written now; if not it counts it.
func (c *counts) admit(r slog.Record, to slog.Handler) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	k := key{r.Level, r.Message}
	n := c.seen[k]
	if n == nil {
		if len(c.seen) >= maxMessages {
			k.message = ""
			n = c.seen[k]
		}
		if n == nil {
			n = &count{}
			c.seen[k] = n
			time.AfterFunc(c.cfg.Window, func() { c.endWindow(k) })
		}
	}
	if n.written < c.cfg.Burst {
		n.written++
		return true
	}
	n.suppressed++
	n.last, n.handler = r.Clone(), to
	return false
}

// endWindow writes how many records of a message were suppressed. Where there were
// some the count goes on in a new window without a burst, until one passes quietly.
func (c *counts) endWindow(k key) {
	c.mu.Lock()
	n := c.seen[k]
	if n == nil { // flushed meanwhile
		c.mu.Unlock()
		return
	}
	was := *n
	if was.suppressed == 0 {
		delete(c.seen, k)
	} else {
		*n = count{written: c.cfg.Burst}
		time.AfterFunc(c.cfg.Window, func() { c.endWindow(k) })
	}
	c.mu.Unlock()
	was.write()
}

// Close writes the counts of the windows that have not ended. The Handler stays
// usable, and counts anew.
func (h *Handler) Close() {
	c := h.counts
	c.mu.Lock()
	seen := c.seen
	c.seen = map[key]*count{}
	c.mu.Unlock()
	for _, n := range seen {
		n.write()
	}
}

// write hands on the last suppressed record, with the number of all.
func (n *count) write() {
	if n.suppressed == 0 {
		return
	}
	n.last.AddAttrs(slog.Int("more_like_it", n.suppressed))
	_ = n.handler.Handle(context.Background(), n.last) // as slog.Logger does
}
