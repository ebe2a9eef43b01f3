package outbox

// Files with bits that are not what was written.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/seed"
)

// TestFlippedBitsAreNotSent damages the file of an outbox with ops that were not sent.
// Whatever a server gets of it is what was committed, and draining ends: with nothing
// left, or with the reason.
func TestFlippedBitsAreNotSent(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed.Of(t), 19))
	const ops = 60
	text := strings.Repeat("x", 300)
	value := func(i int) string { return fmt.Sprintf(`{"n":%d,"t":%q}`, i, text) }
	file := filepath.Join(t.TempDir(), "whole.db")
	b, err := openSQLite(limited(t), file, quick())
	if err != nil {
		t.Fatal(err)
	}
	session := withSession(t, b)
	committed := map[string]string{} // by op
	for i := range ops {
		committed[commit(t, b, Batch{Session: session, Ops: []Op{put(value(i))}}).Ops[0]] = value(i)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for trial := range 16 {
		data := append([]byte(nil), whole...)
		kind := rng.IntN(4)
		switch kind {
		case 0: // one bit
			data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
		case 1:
			for range 20 {
				data[rng.IntN(len(data))] ^= 1 << rng.IntN(8)
			}
		case 2: // a page
			at := rng.IntN(len(data)/4096) * 4096
			clear(data[at:min(at+4096, len(data))])
		case 3: // a bit of a stored payload
			at := strings.Index(string(data), value(rng.IntN(ops)))
			data[at+rng.IntN(len(text))] ^= 1 << rng.IntN(8)
		}
		t.Run(fmt.Sprintf("%d kind %d", trial, kind), func(t *testing.T) {
			t.Parallel()
			name := filepath.Join(t.TempDir(), "outbox.db")
			if err := os.WriteFile(name, data, 0o600); err != nil {
				t.Fatal(err)
			}
			b, err := openSQLite(limited(t), name, quick())
			if err != nil {
				return // it says so at once
			}
			defer b.Close()
			srv := newFakeServer()
			stop := run(t, b, srv)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			err = b.Drain(ctx, nil)
			cancel()
			stop()
			if errors.Is(err, fault.Canceled) {
				t.Fatal("draining does not end")
			}
			got := 0
			for _, e := range srv.log(session) {
				got++
				if v := string(e.args[0].JSON); committed[e.op] != v {
					t.Errorf("op %s was sent as %.80s", e.op, v)
				}
			}
			if kind == 3 && (got != ops-1 || !errors.Is(err, fault.OutboxDamaged)) {
				t.Errorf("%d ops were sent, draining says %v", got, err)
			}
		})
	}
}

// An entry of an index that is not what its row is hides that row, and those behind it,
// from every statement: nothing fails, and nothing goes on.
func TestAnIndexThatDoesNotFitIsFound(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "outbox.db")
	b, err := openSQLite(limited(t), file, quick())
	if err != nil {
		t.Fatal(err)
	}
	session := withSession(t, b)
	for range 60 {
		commit(t, b, Batch{Session: session, Ops: []Op{put(`{}`)}})
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.Index(data, []byte("\x04I\x01\x01"+session+"\x2e\x2e")) // of row 46: session, num, num
	if at < 0 {
		t.Fatal("the index is not as it was")
	}
	data[at+5] ^= 0x10
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if b, err = openSQLite(limited(t), file, quick()); err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	srv := newFakeServer()
	stop := run(t, b, srv)
	err = b.Drain(limited(t), nil)
	stop()
	if n := len(srv.log(session)); !errors.Is(err, fault.OutboxDamaged) || n != 45 {
		t.Errorf("%d of 60 ops were sent, draining says %v", n, err)
	}
}
