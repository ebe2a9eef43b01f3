package logdedup

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// output gives the lines written since the last call.
type output struct {
	lockbuf.Buffer
	read int
}

func (o *output) lines() []string {
	text := o.String()[o.read:]
	o.read += len(text)
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}

func newLog(cfg Config) (*Handler, *slog.Logger, *output) {
	out := &output{}
	h := New(slog.NewTextHandler(out, &slog.HandlerOptions{Level: slog.LevelDebug}), cfg)
	return h, slog.New(h), out
}

func TestRepeatedRecordsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, log, out := newLog(Config{Window: time.Minute, Burst: 3})
		for i := range 10_000 {
			log.Warn("connection aborted", "peer", i)
			log.With("part", "hub").Debug("detail")
		}
		log.Error("connection aborted") // of another level: a message of its own
		var warned []string
		for _, l := range out.lines() {
			if strings.Contains(l, "level=WARN") {
				warned = append(warned, l)
			}
		}
		if len(warned) != 3 {
			t.Fatalf("%d lines were written at once, want 3: %q", len(warned), warned)
		}
		time.Sleep(61 * time.Second)
		synctest.Wait()
		got := out.lines()
		if len(got) != 1 || !strings.Contains(got[0], "more_like_it=9997") || !strings.Contains(got[0], "peer=9999") {
			t.Fatalf("at the window's end: %q", got)
		}
		// A flood that goes on costs one line a window.
		log.Warn("connection aborted")
		if got := out.lines(); got != nil {
			t.Fatalf("in the next window: %q", got)
		}
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got := out.lines(); len(got) != 1 || !strings.Contains(got[0], "more_like_it=1") {
			t.Fatalf("after the next window: %q", got)
		}
		// One that was over is written as it comes.
		log.Warn("connection aborted", "peer", "again")
		if got := out.lines(); len(got) != 1 || !strings.Contains(got[0], "peer=again") {
			t.Fatalf("after a quiet window: %q", got)
		}
		time.Sleep(2 * time.Minute)
	})
}

func TestCloseWritesTheCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log, out := newLog(Config{Window: time.Hour, Burst: 1})
		log = log.With("server", 1).WithGroup("g")
		log.Info("a")
		log.Info("a", "n", 2)
		h.Close()
		got := out.lines()
		if len(got) != 2 || !strings.Contains(got[1], "server=1 g.n=2 g.more_like_it=1") {
			t.Fatalf("%q", got)
		}
		h.Close()
		if got := out.lines(); got != nil {
			t.Fatalf("closed twice: %q", got)
		}
		time.Sleep(2 * time.Hour)
	})
}

func TestMessagesAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, log, out := newLog(Config{Window: time.Minute, Burst: 1})
		for i := range 4 * maxMessages {
			log.Warn(fmt.Sprint("message ", i))
		}
		if n := len(out.lines()); n != maxMessages+1 {
			t.Errorf("%d lines, want %d", n, maxMessages+1)
		}
		h.counts.mu.Lock()
		n := len(h.counts.seen)
		h.counts.mu.Unlock()
		if n > maxMessages+1 {
			t.Errorf("%d messages are counted apart", n)
		}
		time.Sleep(3 * time.Minute)
	})
}
