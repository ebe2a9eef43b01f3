// Codecs for long byte strings among a statement's arguments.

package pgtune

import (
	"github.com/jackc/pgx/v5/pgtype"
)

// Before a statement is sent, a connection encodes its arguments into memory that begins at 256 bytes, grows by being copied,
// and is dropped before the next statement. With these codecs, byte strings that are too long for it are encoded into a
// buffer that the connection reuses.

// maxKeptBytes is how much memory a connection keeps for that.
const maxKeptBytes = 64 << 10

// registerBytes registers the codec with a connection.
func registerBytes(m *pgtype.Map) {
	if t, ok := m.TypeForOID(pgtype.ByteaOID); ok {
		m.RegisterType(&pgtype.Type{Name: t.Name, OID: t.OID, Codec: &bytesCodec{Codec: t.Codec}})
	}
}

// bytesCodec is a connection's codec for byte strings.
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

// Encode implements pgtype.EncodePlan. The bytes already in buf, of earlier arguments, are at the same offset in the reused
// buffer.
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
