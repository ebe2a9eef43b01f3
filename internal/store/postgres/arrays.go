// Lists of rows as arrays, one for each column, encoded directly from the rows: pgx would look up a
// plan for every value.

package postgres

import (
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgtype"

	"github.com/mooring-rpc/mooring/internal/pgtune"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/dialect"
)

// column is one column of a list as a statement's argument.
type column struct {
	rows  [][]any
	index int
	size  int // encoded bytes of this column and of the list's columns after it

	scratch *pgtune.Buffer // buffer for a connection with less space
}

// Sizes in a binary array besides its elements' own bytes.
const (
	arrayHead   = 20
	elementHead = 4
)

// arrayArgs returns a list's columns as arguments, and their encoded size in bytes.
func arrayArgs(list [][]any, n int, scratch *pgtune.Buffer) (args []any, room int) {
	args = make([]any, n)
	for i := n - 1; i >= 0; i-- {
		room += arrayHead + elementHead*len(list)
		for _, row := range list {
			room += encodedSize(row[i])
		}
		args[i] = &column{rows: list, index: i, size: room, scratch: scratch}
	}
	return args, room
}

// encodedSize returns how many bytes a value has in an array.
func encodedSize(value any) int {
	switch v := value.(type) {
	case nil:
		return 0
	case string:
		return len(v)
	case *string:
		return len(*v)
	case []byte:
		return len(v)
	case *[]byte:
		return len(*v)
	case *session.Hash:
		return len(v)
	}
	return 8
}

// arrayCodec is pgx's codec for arrays that also encodes columns.
type arrayCodec struct{ *pgtype.ArrayCodec }

// registerArrays registers the codec with a connection.
func registerArrays(m *pgtype.Map) {
	for _, oid := range []uint32{pgtype.TextArrayOID, pgtype.Int8ArrayOID, pgtype.ByteaArrayOID} {
		if t, ok := m.TypeForOID(oid); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: arrayCodec{t.Codec.(*pgtype.ArrayCodec)}})
		}
	}
}

// PlanEncode implements pgtype.Codec.
func (c arrayCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, is := value.(*column); is && format == pgtype.BinaryFormatCode {
		return columnPlan{c.ElementType.OID}
	}
	return c.ArrayCodec.PlanEncode(m, oid, format, value)
}

// columnPlan encodes a column as an array of elements of this type.
type columnPlan struct{ element uint32 }

// Encode implements pgtype.EncodePlan.
func (p columnPlan) Encode(value any, buf []byte) ([]byte, error) {
	c := value.(*column)
	if cap(buf)-len(buf) < c.size {
		buf = c.scratch.Take(buf, c.size)
	}
	for _, word := range []uint32{1, 1, p.element, uint32(len(c.rows)), 1} { // dimensions, has NULLs, element type, length, lower bound
		buf = binary.BigEndian.AppendUint32(buf, word)
	}
	for _, row := range c.rows {
		var err error
		if buf, err = appendElement(buf, row[c.index]); err != nil {
			return nil, err
		}
	}
	return buf, nil
}

func appendElement(buf []byte, value any) ([]byte, error) {
	switch v := value.(type) {
	case string:
		return pgtune.PutValue(buf, v), nil
	case *string:
		return pgtune.PutValue(buf, *v), nil
	case int64:
		return pgtune.PutInt(buf, v), nil
	case *int64:
		return pgtune.PutInt(buf, *v), nil
	case *uint64:
		return pgtune.PutInt(buf, int64(*v)), nil
	case *session.Hash:
		return pgtune.PutValue(buf, v[:]), nil
	}
	switch v := dialect.Value(value).(type) {
	case nil:
		return pgtune.PutNull(buf), nil
	case []byte:
		return pgtune.PutValue(buf, v), nil
	}
	return nil, fmt.Errorf("a list has a value of type %T", value)
}
