package client

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/outbox"
)

// batchFor is a batch of no client's.
func batchFor(id string) *Batch { return &Batch{batch: outbox.Batch{ID: id}} }

// TestBatchKeepsItsValues: what is made for many ops at once is each one's own.
func TestBatchKeepsItsValues(t *testing.T) {
	t.Parallel()
	b := batchFor(outbox.NewBatchID())
	const n = 200
	payload := func(i int) string { return fmt.Sprintf(`{"n":%d,"text":%q}`, i, strings.Repeat("x", i*i%3000)) }
	key := func(i int) string { return fmt.Sprintf("part/m/%d", i) }
	promises := make([]*Promise, n)
	buf := make([]byte, 0, 4096)
	for i := range n {
		buf = append(buf[:0], payload(i)...)
		switch i % 3 {
		case 0:
			promises[i] = b.Put(key(i), json.RawMessage(buf))
		case 1:
			promises[i] = b.Do("put", Arg{"key", key(i)}, Arg{"payload", buf})
		case 2:
			promises[i] = b.AppendText(key(i), promises[i-1].Field("length"), payload(i))
		}
		clear(buf) // the caller's again
	}
	for i := range n { // one more than was thought of
		promises[i].Arg("schema_version", i)
	}
	for _, op := range b.batch.Ops {
		for _, a := range op.Args {
			_ = append(a.JSON, "behind its end"...)
		}
	}
	for i, op := range b.batch.Ops {
		if op.ID != promises[i].OpID() || op.ID != outbox.OpID(b.ID(), i) {
			t.Fatalf("op %d is %s", i, op.ID)
		}
		args := map[string]string{}
		for _, a := range op.Args {
			args[a.Name] = string(a.JSON)
		}
		quoted, _ := json.Marshal(payload(i)) // of plain characters
		want := map[string]string{"key": `"` + key(i) + `"`, "payload": payload(i), "schema_version": fmt.Sprint(i)}
		if i%3 == 2 {
			want = map[string]string{"key": `"` + key(i) + `"`, "offset": "", "text": string(quoted), "schema_version": fmt.Sprint(i)}
		}
		if len(op.Args) != len(want) || fmt.Sprint(args) != fmt.Sprint(want) {
			t.Errorf("op %d has %v, want %v", i, args, want)
		}
	}
}

// TestBatchAllocates little for an op among others: its caller's values and no more.
func TestBatchAllocates(t *testing.T) {
	id, payload := outbox.NewBatchID(), json.RawMessage(bytes.Repeat([]byte("1"), 100))
	const ops = 32
	if n := testing.AllocsPerRun(100, func() {
		b := batchFor(id)
		for range ops {
			b.Put("message/a", payload)
		}
	}); n > 2*ops {
		t.Errorf("%v allocations for %d puts", n, ops)
	}
}
