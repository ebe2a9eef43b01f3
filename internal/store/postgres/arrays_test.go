package postgres

import (
	"context"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// TestScratchIsLetGo: once a statement was sent, the connection writes no more into
// the memory that its lists were made in, which serves others then.
func TestScratchIsLetGo(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.WithoutCancel(t.Context()))
	registerArrays(conn.TypeMap())
	s := &dialect.Statement{Postgres: dialect.Forms{Many: `SELECT unnest($1::text[]) || $2`}, Columns: []dialect.Column{dialect.Text}}
	for _, size := range []int{0, 1, 100, 100_000} {
		r := &runner{backend: &backend{endTimeout: endTimeout}, conn: conn, batch: &pgx.Batch{}, options: readWrite, scratch: pgtune.NewBuffer()}
		for _, letter := range []string{"a", "b"} {
			text := strings.Repeat(letter, size)
			r.Queue(s, [][]any{{text}, {&text}}, []any{letter}, func(row dialect.Scanner) error {
				var got string
				if err := row.Scan(&got); err != nil || got != text+letter {
					t.Errorf("%d bytes: %.10q, %v", size, got, err)
				}
				return nil
			})
		}
		if err := r.commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		scratch := reflect.ValueOf(r.scratch.Take(nil, 0)).Pointer()
		if _, err := conn.Exec(t.Context(), `SELECT $1::text`, "next"); err != nil {
			t.Fatal(err)
		}
		if kept := reflect.ValueOf(conn).Elem().FieldByName("eqb").FieldByName("paramValueBytes"); kept.Pointer() == scratch {
			t.Errorf("%d bytes: the next statement is made in the same memory", size)
		}
	}
}
