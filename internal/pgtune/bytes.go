// Long bytes among a statement's arguments.

package pgtune

import (
	"github.com/jackc/pgx/v5/pgtype"
)

// Before a statement leaves, a connection has its arguments in memory that begins at 256 bytes, grows by being copied, and is
// dropped before the next statement. With these codecs, bytes that are too long for it are put into memory of the connection's
// that has served before.

// maxKeptBytes is how much memory a connection keeps for that.
const maxKeptBytes = 64 << 10

// registerBytes has a connection take bytes that way.
func registerBytes(m *pgtype.Map) {
	if t, ok := m.TypeForOID(pgtype.ByteaOID); ok {
		m.RegisterType(&pgtype.Type{Name: t.Name, OID: t.OID, Codec: &bytesCodec{Codec: t.Codec}})
	}
}

// bytesCodec is a connection's codec for bytes.
type bytesCodec struct {
	pgtype.Codec
	memory []byte // of one statement's arguments at a time
}

// PlanEncode implements pgtype.Codec.
func (c *bytesCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if _, is := value.([]byte); is && format == pgtype.BinaryFormatCode {
		return bytesPlan{c}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

type bytesPlan struct{ of *bytesCodec }

// Encode implements pgtype.EncodePlan. What is in buf already has the same place at the beginning of the other memory, should
// arguments before this one be there.
func (p bytesPlan) Encode(value any, buf []byte) ([]byte, error) {
	b := value.([]byte)
	if b == nil {
		return nil, nil
	}
	if need := len(buf) + len(b); need > cap(buf) && need <= maxKeptBytes {
		if cap(p.of.memory) < need {
			p.of.memory = make([]byte, 0, min(max(2*need, minBuffer), maxKeptBytes))
		}
		buf = append(p.of.memory[:0], buf...)
	}
	return append(buf, b...), nil
}
