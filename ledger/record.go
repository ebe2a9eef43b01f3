package ledger

// How a record is kept: compact JSON text, one row a batch. Its own codec,
// since encoding/json would rewrite the results' bytes.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
)

// Marshal gives the record's text: {"b":batch,"f":first seq,"o":[outcomes]}
// with one-letter names. Results go in byte for byte.
func (r *Record) Marshal() []byte {
	b := make([]byte, 0, 64+160*len(r.Outcomes))
	b = append(b, `{"b":`...)
	b = appendText(b, r.BatchID)
	b = append(b, `,"f":`...)
	b = strconv.AppendUint(b, r.FirstSeq, 10)
	b = append(b, `,"o":[`...)
	for i := range r.Outcomes {
		if i > 0 {
			b = append(b, ',')
		}
		b = r.Outcomes[i].append(b)
	}
	return append(b, `]}`...)
}

func (o *Outcome) append(b []byte) []byte {
	b = append(b, `{"i":`...)
	b = appendText(b, o.OpID)
	b = append(b, `,"d":"`...)
	b = base64.RawURLEncoding.AppendEncode(b, o.Digest[:])
	b = append(b, `","s":`...)
	b = strconv.AppendUint(b, uint64(o.Status), 10)
	number := func(name string, v uint64) {
		if v != 0 {
			b = append(b, name...)
			b = strconv.AppendUint(b, v, 10)
		}
	}
	text := func(name, v string) {
		if v != "" {
			b = append(b, name...)
			b = appendText(b, v)
		}
	}
	number(`,"r":`, uint64(o.Reason))
	text(`,"m":`, o.Message)
	number(`,"c":`, o.Cursor)
	if len(o.Result) > 0 {
		b = append(b, `,"v":`...)
		b = append(b, o.Result...)
	}
	text(`,"x":`, o.Cause)
	number(`,"a":`, o.At)
	return append(b, '}')
}

// appendText appends s as JSON text; plain ASCII, the usual case, needs no help.
func appendText(b []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if c := s[i]; c < ' ' || c == '"' || c == '\\' || c >= utf8.RuneSelf {
			q, err := json.Marshal(s)
			if err != nil {
				panic(err) // a string always marshals
			}
			return append(b, q...)
		}
	}
	b = append(b, '"')
	b = append(b, s...)
	return append(b, '"')
}

type recordText struct {
	B string        `json:"b"`
	F uint64        `json:"f"`
	O []outcomeText `json:"o"`
}

type outcomeText struct {
	I string          `json:"i"`
	D string          `json:"d"`
	S uint8           `json:"s"`
	R uint16          `json:"r"`
	M string          `json:"m"`
	C uint64          `json:"c"`
	V json.RawMessage `json:"v"`
	X string          `json:"x"`
	A uint64          `json:"a"`
}

// UnmarshalRecord reads what Marshal wrote, in this version or an earlier one.
// It fails on anything that could not be answered from: no outcomes, unknown
// statuses, results that are not objects. Fields it does not know are passed over.
func UnmarshalRecord(data []byte) (*Record, error) {
	var t recordText
	if err := json.Unmarshal(data, &t); err != nil {
		return nil, fmt.Errorf("decode outcome record: %w", err)
	}
	if t.F == 0 || len(t.O) == 0 || t.F > t.F+uint64(len(t.O))-1 {
		return nil, fmt.Errorf("decode outcome record: no outcomes or no first seq")
	}
	r := &Record{BatchID: t.B, FirstSeq: t.F, Outcomes: make([]Outcome, len(t.O))}
	for i, x := range t.O {
		o := Outcome{OpID: x.I, Status: Status(x.S), Reason: fault.Code(x.R), Message: x.M, Cursor: x.C, Cause: x.X, At: x.A}
		digest, err := base64.RawURLEncoding.Strict().DecodeString(x.D)
		if err != nil || len(digest) != len(o.Digest) {
			return nil, fmt.Errorf("decode outcome record: digest of seq %d", t.F+uint64(i))
		}
		copy(o.Digest[:], digest)
		if o.Status < Applied || o.Status > BatchAborted {
			return nil, fmt.Errorf("decode outcome record: status %d of seq %d", x.S, t.F+uint64(i))
		}
		if len(x.V) > 0 {
			if !bytes.HasPrefix(x.V, []byte("{")) {
				return nil, fmt.Errorf("decode outcome record: result of seq %d", t.F+uint64(i))
			}
			o.Result = x.V
		}
		r.Outcomes[i] = o
	}
	return r, nil
}
