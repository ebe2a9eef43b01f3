package pgtune

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/seed"
)

// TestBytes: arguments of all sizes arrive as they are, among others and in lists, in every mode, one statement after the other
// and several on their way.
func TestBytes(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	sizes := []int{0, 1, 200, 255, 257, 4000, minBuffer, 20_000, maxKeptBytes - 300, maxKeptBytes, maxKeptBytes + 1, 300_000}
	for _, mode := range []pgx.QueryExecMode{pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec,
		pgx.QueryExecModeExec} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			seed := seed.Of(t)
			rnd := rand.New(rand.NewPCG(seed, 0))
			ctx, conn := connectIn(t, url, mode)
			if err := Connection(ctx, conn); err != nil {
				t.Fatal(err)
			}
			some := func() []byte {
				if rnd.IntN(6) == 0 {
					return nil
				}
				return bytes.Repeat([]byte{byte(rnd.Uint32())}, sizes[rnd.IntN(len(sizes))])
			}
			for range 40 {
				var batch pgx.Batch
				for range 1 + rnd.IntN(4) {
					a, b, c, text := some(), some(), some(), fmt.Sprintf("%0*d", 1+rnd.IntN(400), rnd.IntN(10))
					list := [][]byte{some(), some(), some()}
					if mode == pgx.QueryExecModeExec { // which knows no types
						list = nil
					}
					batch.Queue(`SELECT $1::bytea, $2::text, $3::bytea, $4::bytea[], $5::bytea`, a, text, b, list, c).QueryRow(func(row pgx.Row) error {
						var gotA, gotB, gotC []byte
						var gotText string
						var gotList [][]byte
						if err := row.Scan(&gotA, &gotText, &gotB, &gotList, &gotC); err != nil {
							return err
						}
						same := func(got, want []byte) bool { return bytes.Equal(got, want) && (got == nil) == (want == nil) }
						ok := same(gotA, a) && same(gotB, b) && same(gotC, c) && gotText == text && len(gotList) == len(list)
						for i := range list {
							ok = ok && same(gotList[i], list[i])
						}
						if !ok {
							t.Errorf("seed %d: other bytes came than were sent, of %d, %d and %d", seed, len(a), len(b), len(c))
						}
						return nil
					})
				}
				if err := conn.SendBatch(ctx, &batch).Close(); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
			}
		})
	}
}

// TestBytesAreWrittenOver: the memory is the same from one statement to the next, and not kept when it is large.
func TestBytesAreWrittenOver(t *testing.T) {
	t.Parallel()
	m := pgtype.NewMap()
	registerBytes(m)
	encode := func(before, arg []byte) []byte {
		buf, err := m.Encode(pgtype.ByteaOID, pgx.BinaryFormatCode, arg, before)
		if err != nil || !bytes.Equal(buf, append(bytes.Clone(before), arg...)) {
			t.Fatalf("%d bytes behind %d became %d, %v", len(arg), len(before), len(buf), err)
		}
		return buf
	}
	first := encode(make([]byte, 3, 100), make([]byte, 20_000))
	if next := encode(make([]byte, 5, 100), make([]byte, 30_000)); &next[0] != &first[0] {
		t.Error("the second has other memory")
	}
	encode(nil, make([]byte, 2*maxKeptBytes))
	if next := encode(nil, make([]byte, 300)); &next[0] != &first[0] || cap(next) > maxKeptBytes {
		t.Error("what is large is kept")
	}
	if small := encode(make([]byte, 5, 100), make([]byte, 30)); cap(small) != 100 {
		t.Error("what fits is moved")
	}
}
