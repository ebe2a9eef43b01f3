package ledger

// The encoding of a record: compact JSON text, one row per batch. It has its own codec, since
// encoding/json would rewrite the results' bytes.

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
)

// Marshal returns the record's text: {"b":batch,"f":first seq,"o":[outcomes]} with one-letter
// names. Results are copied byte for byte.
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

// appendText appends s as JSON text; plain ASCII, the usual case, takes a fast path.
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

// UnmarshalRecord decodes the text of Marshal, of this version or an earlier one. It fails on a
// record that cannot answer a repeat: no outcomes, unknown statuses, results that are not
// objects. Unknown fields are skipped. The record may share data's bytes.
func UnmarshalRecord(data []byte) (*Record, error) {
	if r := decodeAppliedRecord(data); r != nil {
		return r, nil
	}
	return decodeAnyRecord(data)
}

// decodeAnyRecord is UnmarshalRecord for records that decodeAppliedRecord does not take.
func decodeAnyRecord(data []byte) (*Record, error) {
	if !gjson.ValidBytes(data) || !utf8.Valid(data) {
		return nil, fmt.Errorf("decode outcome record: not JSON text")
	}
	r := &Record{}
	f := fieldReader{}
	var outcomes gjson.Result
	gjson.ParseBytes(data).ForEach(func(name, v gjson.Result) bool {
		switch name.Str {
		case "b":
			f.text(&r.BatchID, v)
		case "f":
			f.number(&r.FirstSeq, v, 64)
		case "o":
			outcomes = v
		}
		return true
	})
	if outcomes.IsArray() {
		outcomes.ForEach(func(_, v gjson.Result) bool {
			r.Outcomes = append(r.Outcomes, f.outcome(v))
			return f.err == ""
		})
	}
	switch {
	case f.err != "":
		return nil, fmt.Errorf("decode outcome record: %s", f.err)
	case r.FirstSeq == 0 || r.FirstSeq > r.LastSeq(): // also for no outcomes
		return nil, fmt.Errorf("decode outcome record: no outcomes or no first seq")
	}
	return r, nil
}

// strictBase64 accepts exactly one text for each digest.
var strictBase64 = base64.RawURLEncoding.Strict()

// decodeAppliedRecord decodes a record of which every op was applied and whose text is exactly
// Marshal's, the common case; nil for any other. Each commit reads the acknowledged records.
func decodeAppliedRecord(data []byte) *Record {
	if !utf8.Valid(data) {
		return nil
	}
	t := recordScanner{data: data, text: string(data)}
	t.literal(`{"b":"`)
	r := &Record{BatchID: t.plainString()}
	t.literal(`,"f":`)
	r.FirstSeq = t.number()
	t.literal(`,"o":[`)
	r.Outcomes = make([]Outcome, 0, strings.Count(t.text, `{"i":"`))
	for more := true; more && !t.mismatch; more = t.at < len(data) && data[t.at] == ',' {
		if len(r.Outcomes) > 0 {
			t.literal(`,`)
		}
		o := Outcome{Status: Applied}
		t.literal(`{"i":"`)
		o.OpID = t.plainString()
		t.literal(`,"d":"`)
		t.digest(&o.Digest)
		t.literal(`,"s":1,"c":`)
		o.Cursor = t.number()
		t.literal(`,"v":`)
		o.Result = t.object()
		t.literal(`}`)
		r.Outcomes = append(r.Outcomes, o)
	}
	t.literal(`]}`)
	if t.mismatch || t.at != len(data) || r.FirstSeq == 0 || r.FirstSeq > r.LastSeq() {
		return nil
	}
	return r
}

// recordScanner scans a record's text token by token. mismatch reports an unexpected token;
// then the values scanned are invalid.
type recordScanner struct {
	data     []byte
	text     string // data
	at       int
	mismatch bool
}

func (t *recordScanner) literal(w string) {
	if t.mismatch = t.mismatch || !strings.HasPrefix(t.text[t.at:], w); !t.mismatch {
		t.at += len(w)
	}
}

// plainString scans a string without escapes, whose opening quote was scanned.
func (t *recordScanner) plainString() string {
	from := t.at
	for ; t.at < len(t.text); t.at++ {
		switch c := t.text[t.at]; {
		case c == '"':
			t.at++
			return t.text[from : t.at-1]
		case c == '\\' || c < ' ':
			t.mismatch = true
			return ""
		}
	}
	t.mismatch = true
	return ""
}

func (t *recordScanner) digest(to *Digest) {
	text := t.plainString()
	from := t.at - 1 - len(text)
	if t.mismatch || len(text) != strictBase64.EncodedLen(len(to)) {
		t.mismatch = true
		return
	}
	if n, err := strictBase64.Decode(to[:], t.data[from:from+len(text)]); err != nil || n != len(to) {
		t.mismatch = true
	}
}

func (t *recordScanner) number() uint64 {
	from := t.at
	t.at = skipDigits(t.data, t.at)
	n, err := strconv.ParseUint(t.text[from:t.at], 10, 64)
	t.mismatch = t.mismatch || err != nil || t.text[from] == '0' && t.at > from+1
	return n
}

// object scans a JSON object without nested objects.
func (t *recordScanner) object() []byte {
	n := strings.IndexByte(t.text[t.at:], '}') + 1
	o := t.data[t.at : t.at+n : t.at+n]
	t.at += n
	if t.mismatch = t.mismatch || n == 0 || o[0] != '{' || !IsJSON(o); t.mismatch {
		return nil
	}
	return o
}

// fieldReader reads values; bad describes the first invalid one.
type fieldReader struct{ err string }

func (f *fieldReader) text(to *string, v gjson.Result) {
	if v.Type != gjson.String {
		f.err = "text expected at " + excerpt(v.Raw)
	}
	*to = v.Str
}

func (f *fieldReader) number(to *uint64, v gjson.Result, bits int) {
	n, err := strconv.ParseUint(v.Raw, 10, bits)
	if err != nil {
		f.err = "number expected at " + excerpt(v.Raw)
	}
	*to = n
}

func (f *fieldReader) outcome(from gjson.Result) (o Outcome) {
	var status, reason uint64
	digested := false
	from.ForEach(func(name, v gjson.Result) bool {
		switch name.Str {
		case "i":
			f.text(&o.OpID, v)
		case "d":
			digest, err := strictBase64.DecodeString(v.Str)
			digested = err == nil && len(digest) == len(o.Digest)
			copy(o.Digest[:], digest)
		case "s":
			f.number(&status, v, 8)
		case "r":
			f.number(&reason, v, 16)
		case "m":
			f.text(&o.Message, v)
		case "c":
			f.number(&o.Cursor, v, 64)
		case "v":
			if !v.IsObject() {
				f.err = "object expected at " + excerpt(v.Raw)
			}
			o.Result = []byte(v.Raw)
		case "x":
			f.text(&o.Cause, v)
		case "a":
			f.number(&o.At, v, 64)
		}
		return true
	})
	o.Status, o.Reason = Status(status), fault.Code(reason)
	if !digested || o.Status < Applied || o.Status > BatchAborted {
		f.err = "outcome expected at " + excerpt(from.Raw)
	}
	return o
}

func excerpt(s string) string { return s[:min(len(s), 40)] }
