package main

// The rows that the bare program writes: those that the whole path leaves in its
// two databases, byte for byte but for their keys, hashes and numbers. A sample
// is taken from the path itself (sample.go) and repeated under fresh keys.

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// sample is a run of consecutive batches of one writer, all of one size.
type sample struct {
	session string
	space   string
	batches []sampleBatch
}

// sampleBatch is one batch: its outbox row as committed and as finished, and
// the events it became.
type sampleBatch struct {
	via      string
	body     []byte // as committed
	slim     []byte // as finished
	outcomes []byte
	events   []session.Event
}

// size is how many ops a batch has.
func (s *sample) size() int { return len(s.batches[0].events) }

// batchRows is what one batch writes to both databases.
type batchRows struct {
	num     int64 // of its outbox row
	id      string
	first   int64 // seq
	via     string
	body    []byte
	slim    []byte
	results []byte // the outbox row's outcomes
	events  []session.Event
	entries []session.Entry
	record  []byte
	lastOp  string
	digest  []byte
}

func (b *batchRows) last() int64 { return b.first + int64(len(b.events)) - 1 }

// cursor and head are the session's after the batch.
func (b *batchRows) cursor() int64 { return int64(b.events[len(b.events)-1].Cursor) }
func (b *batchRows) head() []byte  { return b.events[len(b.events)-1].Hash[:] }

// writerRows is one writer: its session, its outbox and its batches in order.
type writerRows struct {
	box     int64 // number of the outbox in Postgres
	session string
	outbox  string
	space   string
	creator string
	batches []*batchRows
}

// repeat makes rows for writers with so many batches each. The writers are in no order of their
// ids: those who write are not the newest session one after the other, which an index would take
// for a sorted load.
func (s *sample) repeat(writers, batches int) []*writerRows {
	all, ids := make([]*writerRows, writers), make([]string, writers)
	for w := range ids {
		ids[w] = ulid.Make().String()
	}
	rand.Shuffle(writers, func(i, j int) { ids[i], ids[j] = ids[j], ids[i] })
	for w, id := range ids {
		wr := &writerRows{box: int64(w + 1), session: capability.SessionPrefix + id, outbox: "obx_" + id, space: s.space, creator: "obx_" + id}
		wr.batches = make([]*batchRows, batches)
		cursor, seq := uint64(1), int64(2) // after the session's create
		for i := range wr.batches {
			wr.batches[i] = s.batches[i%len(s.batches)].rekey(wr, int64(i+1), cursor, seq)
			cursor += uint64(s.size())
			seq += int64(s.size())
		}
		all[w] = wr
	}
	return all
}

// rekey makes a batch's rows under another writer's keys, after a cursor.
func (b *sampleBatch) rekey(w *writerRows, num int64, cursor uint64, seq int64) *batchRows {
	id := ulid.Make().String()
	out := &batchRows{num: num, id: id, first: seq, via: w.session + b.via[len(w.session):],
		body: b.body, slim: b.slim, results: b.outcomes,
		events: make([]session.Event, len(b.events)), entries: make([]session.Entry, len(b.events))}
	record := ledger.Record{BatchID: id, FirstSeq: uint64(seq), Outcomes: make([]ledger.Outcome, len(b.events))}
	for i := range b.events {
		cursor++
		e := b.events[i]
		e.Session, e.Cursor, e.Outbox, e.Batch = w.session, cursor, w.outbox, id
		e.Ref = w.session + e.Ref[len(w.session):]
		e.Key = opKey(cursor)
		e.Op = ulid.Make().String()
		// Like the sample's, which they are in the other bytes, nothing can compress them.
		binary.BigEndian.PutUint64(e.Hash[:], rand.Uint64())
		binary.BigEndian.PutUint64(e.Sum[:], rand.Uint64())
		out.events[i] = e
		out.entries[i] = session.Entry{Session: w.session, Key: e.Key, Cursor: cursor, Schema: e.Schema, Sum: e.Sum, TextLen: payloadBytes}
		record.Outcomes[i] = ledger.Outcome{OpID: e.Op, Digest: ledger.Digest(e.Hash), Status: ledger.Applied, Cursor: cursor,
			Result: fmt.Appendf(nil, `{"cursor":%d}`, cursor)}
	}
	out.record = record.Marshal()
	out.lastOp, out.digest = out.events[len(out.events)-1].Op, out.head()
	return out
}

// payloadBytes is about how long an op's payload is: a short paragraph.
const payloadBytes = 300

// opKey is the key of a writer's n-th op: every op puts a part of its own.
func opKey(n uint64) string {
	b := append(make([]byte, 0, 32), "part/msg_"...)
	b = append(appendID(b, n/8), "/prt_"...)
	return string(appendID(b, n))
}

// opPayload appends what it puts there. It is made while the path is measured, so it
// is made without much ado.
func opPayload(b []byte, n uint64) []byte {
	start := len(b)
	b = append(b, `{"id":"prt_`...)
	b = append(appendID(b, n), `","messageID":"msg_`...)
	b = append(appendID(b, n/8), `","type":"text","text":"`...)
	b = append(b, prose[:payloadBytes-(len(b)-start)-2]...)
	return append(b, `"}`...)
}

// appendID appends n, which is below a hundred million, as eight digits.
func appendID(b []byte, n uint64) []byte {
	var id [8]byte
	for i := len(id) - 1; i >= 0; i-- {
		id[i] = '0' + byte(n%10)
		n /= 10
	}
	return append(b, id[:]...)
}

var prose = strings.Repeat("The test fails because the lease is renewed before the row is locked; I will move the renewal below it and run it again. ", 4)

// chunk is one transaction: consecutive batches of one writer, and those of
// the transaction before, which are marked as acknowledged in this one.
type chunk struct {
	writer *writerRows
	new    []*batchRows
	acked  []*batchRows
}

// ops is how many ops the chunk writes.
func (c *chunk) ops() int {
	n := 0
	for _, b := range c.new {
		n += len(b.events)
	}
	return n
}

// cut divides the writer's batches into transactions of so many batches. The
// last one only acknowledges.
func (w *writerRows) cut(size int) []chunk {
	var cs []chunk
	var before []*batchRows
	for rest := w.batches; len(rest) > 0; {
		n := min(size, len(rest))
		cs = append(cs, chunk{writer: w, new: rest[:n], acked: before})
		before, rest = rest[:n], rest[n:]
	}
	return append(cs, chunk{writer: w, acked: before})
}
