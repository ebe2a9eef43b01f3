// Rows as statements' lists.

package txn

import (
	"math"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// PairRows returns a map of lists as a list of two columns, in order.
func PairRows(m map[string][]string) [][]any {
	n := 0
	for _, values := range m {
		n += len(values)
	}
	list, room := make([][]any, 0, n), make([]any, 0, 2*n)
	keys := sortedKeys(m)
	for i, a := range keys {
		for j := range m[a] {
			room = append(room, &keys[i], &m[a][j])
			list = append(list, room[len(room)-2:len(room):len(room)])
		}
	}
	return list
}

// StreamRows returns streams as rows of a statement's list.
func StreamRows(keys []session.StreamKey) [][]any {
	list := make([][]any, len(keys))
	for i, k := range keys {
		list[i] = []any{k.Session, k.Outbox}
	}
	return list
}

// TextRows returns values as rows of a list with one column.
func TextRows(values []string) [][]any {
	list := make([][]any, len(values))
	for i, v := range values {
		list[i] = []any{v}
	}
	return list
}

// MapRows returns the list of items' values.
func MapRows[T any](items []T, values func(T) []any) [][]any {
	list := make([][]any, len(items))
	for i, item := range items {
		list[i] = values(item)
	}
	return list
}

// RefRows returns ref ids as rows of a list, each in its two columns.
func RefRows(ids []string) [][]any {
	list := make([][]any, len(ids))
	for i, id := range ids {
		target, tail := SplitRef(id)
		list[i] = []any{target, tail}
	}
	return list
}

// bufferedRows is MapRows for long lists of s, in memory that is reused after the transaction.
func bufferedRows[T any](t *Tx, items []T, s *dialect.Statement, values func(to []any, item T) []any) [][]any {
	if len(items) == 0 {
		return nil
	}
	p := rowBuffers.Get().(*rowBuffer)
	t.buffers = append(t.buffers, p)
	p.list = slices.Grow(p.list[:0], len(items))[:len(items)]
	room := slices.Grow(p.values[:0], len(items)*len(s.Columns)) // which is not reallocated
	for i, item := range items {
		from := len(room)
		room = values(room, item)
		p.list[i] = room[from:len(room):len(room)]
	}
	p.values = room
	return p.list
}

// rowBuffer has space for the values of many rows.
type rowBuffer struct {
	list   [][]any
	values []any
}

var rowBuffers = sync.Pool{New: func() any { return new(rowBuffer) }}

// releaseBuffers returns the memory of bufferedRows to the pool at the end of the transaction.
func (t *Tx) releaseBuffers() {
	for _, p := range t.buffers {
		clear(p.values) // so that it retains no other memory
		rowBuffers.Put(p)
	}
	t.buffers = nil
}

// Clamp returns v, which a peer may have sent, limited to the database's integers.
func Clamp(v uint64) int64 {
	return int64(min(v, math.MaxInt64))
}
