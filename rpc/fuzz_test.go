// Fuzzing: sequences of messages into a live core.

package rpc

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/rpc/internal/framing"
)

// FuzzConn feeds bytes, cut into frames, to a live core with objects, promises and calls under way in it. The core
// must neither panic nor hang, and when the connection ends nothing may be left.
func FuzzConn(f *testing.F) {
	var all []byte
	for i, m := range transcriptMessages(f) {
		f.Add(m)
		if all = append(all, m...); i%8 == 7 {
			f.Add(all)
			all = nil
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) { fuzzCore(t, data) })
}

// fuzzCore runs one connection of a peer that says data.
func fuzzCore(t *testing.T, data []byte) {
	lim := Limits{
		MessageBytes: 64 << 10, Segments: 16, Traversal: 256 << 10, Nesting: 16, Answers: 64, AnswerBytes: 1 << 20,
		Exports: 64, Imports: 64, QueuedCalls: 32, QueuedBytes: 1 << 20, Questions: 64,
	}
	boot := newTestObject("boot")
	c := NewConn(quiet{}, Config{Bootstrap: boot, Limits: lim, Logger: nil})
	c.loop.Manual = true
	own := newTestObject("own")
	ownRef := NewLocal(own)
	promise, resolve := NewPromise()
	ctx := context.Background()
	// Things under way: questions 0 to 3, export 0, pipelines, a promise passed to the peer.
	b := c.Bootstrap(ctx)
	p1 := b.Call(ctx, mMake, testSize, fill(1, "x", ownRef))
	x := p1.Cap(1)
	p2 := x.Call(ctx, mEcho, testSize, fill(2, "y", promise))
	y := p2.Cap(1)
	p3 := y.Call(ctx, mEcho, testSize, fill(3, "z", x))
	step := 0
	for rest := data; len(rest) > 0; step++ {
		frame, next, err := framing.Split(rest, c.limits.frame())
		c.mu.Lock()
		if err == nil && c.ended == nil {
			err = c.handle(frame)
		}
		if err != nil {
			c.loop.EndLocked(abortEnding(err))
		}
		if step%3 == 2 {
			c.out.TakeMessages() // the writer gets a turn now and then
		}
		c.unlockAndRun()
		if step%2 == 1 {
			c.loop.Deliver()
		}
		switch step {
		case 4:
			resolve(ownRef, nil)
		case 6:
			x.Call(ctx, mEcho, testSize, fill(4, "", y)).Release()
		case 8:
			y.Release()
		}
		if err != nil {
			break
		}
		rest = next
	}
	resolve(nil, errCanceled)
	for _, r := range []*Ref{b, x, y, ownRef, promise} {
		r.Release()
	}
	for _, p := range []*Promise{p1, p2, p3} {
		p.Release()
	}
	c.Close("over")
	for range 3 { // handlers answer late, answers set off deliveries
		c.failOrphans()
		boot.mu.Lock()
		for _, f := range boot.resolve {
			f(nil, errCanceled)
		}
		boot.resolve = nil
		kept := boot.kept
		boot.kept = nil
		boot.mu.Unlock()
		kept.Release()
		c.loop.Deliver()
	}
	if s := c.Stats(); s.Questions+s.Answers+s.Exports+s.Imports+s.Embargoes+s.QueuedCalls != 0 {
		t.Fatalf("tables are not empty: %+v", s)
	}
	for _, o := range append([]*testObject{boot, own}, boot.made...) {
		if o.released != 1 {
			t.Fatalf("object %s was released %d times", o.name, o.released)
		}
	}
}

// transcriptMessages are the messages that the transcripts' peers send.
func transcriptMessages(f *testing.F) [][]byte {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		f.Fatalf("no transcripts: %v", err)
	}
	var all [][]byte
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range strings.Lines(string(text)) {
			if !strings.HasPrefix(line, "in ") {
				continue
			}
			words, err := splitWords(line[3:])
			if err != nil {
				f.Fatal(err)
			}
			if m, err := buildMessage(parseArgs(words)); err == nil {
				all = append(all, m)
			}
		}
	}
	return all
}
