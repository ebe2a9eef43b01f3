package main

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/pgtune"
)

// someRows are of a bigint, a text that may be long, and a NULL.
func someRows(n int) rowSource {
	return rowSource{Columns: 3, Len: n, Row: func(buf []byte, i int) ([]byte, error) {
		buf = pgtune.PutInt(buf, int64(i))
		return pgtune.PutNull(pgtune.PutValue(buf, bytes.Repeat([]byte("x"), i%60*(i%60)*(i%60)))), nil
	}}
}

func TestCopyReader(t *testing.T) {
	t.Parallel()
	for _, n := range []int{0, 1, 2, 60} {
		read := func(wrap func(io.Reader) io.Reader) []byte {
			data, err := io.ReadAll(wrap(&copyReader{rows: someRows(n), buf: []byte(copyHead)}))
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		want := []byte(copyHead)
		for i := range n {
			want, _ = someRows(n).Row(append(want, 0, 3), i)
		}
		want = append(want, copyTail...)
		if got := read(func(r io.Reader) io.Reader { return r }); !bytes.Equal(got, want) {
			t.Errorf("%d rows: %d bytes, want %d", n, len(got), len(want))
		}
		if got := read(iotest.OneByteReader); !bytes.Equal(got, want) {
			t.Errorf("%d rows, byte by byte: %d bytes, want %d", n, len(got), len(want))
		}
	}
}

// TestNothingIsReadAfterCopy: pgx may go on reading when copyInto has returned.
func TestNothingIsReadAfterCopy(t *testing.T) {
	t.Parallel()
	made := 0
	rows := someRows(1000)
	rows.Row = func(buf []byte, i int) ([]byte, error) {
		made++
		return pgtune.PutValue(buf, make([]byte, copyChunk)), nil
	}
	r := &copyReader{rows: rows, buf: []byte(copyHead)}
	p := make([]byte, copyChunk)
	if _, err := r.Read(p); err != nil || made != 1 {
		t.Fatalf("%d rows were made: %v", made, err)
	}
	if err := r.end(); err != nil {
		t.Fatal(err)
	}
	if n, err := r.Read(p); n != 0 || !errors.Is(err, io.ErrClosedPipe) || made != 1 {
		t.Errorf("%d bytes of %d rows were read after the end: %v", n, made, err)
	}
}

func TestCopy(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `CREATE TABLE copied (i bigint PRIMARY KEY, t text, n text)`); err != nil {
		t.Fatal(err)
	}
	const into = "copied (i, t, n)"
	sum := func() (rows, bytes, nulls int) {
		t.Helper()
		if err := conn.QueryRow(t.Context(), `SELECT count(*), coalesce(sum(length(t)), 0), count(*) - count(n) FROM copied`).Scan(&rows, &bytes, &nulls); err != nil {
			t.Fatal(err)
		}
		return rows, bytes, nulls
	}
	if err := copyInto(t.Context(), conn, into, someRows(60)); err != nil {
		t.Fatal(err)
	}
	if rows, bytes, nulls := sum(); rows != 60 || bytes != 60*60*59*59/4 || nulls != 60 {
		t.Errorf("%d rows of %d bytes and %d nulls", rows, bytes, nulls)
	}
	broken := errors.New("broken")
	rows := someRows(200)
	inner := rows.Row
	rows.Row = func(buf []byte, i int) ([]byte, error) {
		if i == 150 {
			return nil, broken
		}
		return inner(buf, i+1000)
	}
	if err := copyInto(t.Context(), conn, into, rows); !errors.Is(err, broken) {
		t.Errorf("a row that cannot be made: %v", err)
	}
	if err := copyInto(t.Context(), conn, into, someRows(60)); err == nil {
		t.Error("rows were taken twice")
	}
	if rows, _, _ := sum(); rows != 60 {
		t.Errorf("%d rows after copies that failed", rows)
	}
}
