package ledger

// The quick way of reading records gives what the other gives, or nothing.

import (
	"bytes"
	"fmt"
	"reflect"
	"slices"
	"testing"
)

func appliedText(results ...string) (*Record, []byte) {
	r := &Record{BatchID: "01ARZ3NDEKTSV4RRFFQ69G5FAV", FirstSeq: 7}
	for i, result := range results {
		r.Outcomes = append(r.Outcomes, Outcome{OpID: fmt.Sprintf("01ARZ3NDEKTSV4RRFFQ69G5FA%d", i), Digest: Digest{byte(i), 255},
			Status: Applied, Cursor: uint64(i) + 1, Result: []byte(result)})
	}
	return r, r.Marshal()
}

func sameRecord(t *testing.T, data []byte) {
	t.Helper()
	quick := decodeAppliedRecord(data)
	if quick == nil {
		return
	}
	if r, err := decodeAnyRecord(data); err != nil || !reflect.DeepEqual(quick, r) {
		t.Fatalf("%s: read as %+v, and as %+v (%v)", data, quick, r, err)
	}
}

func TestAppliedRecord(t *testing.T) {
	t.Parallel()
	r, text := appliedText(`{"cursor":1,"unchanged":true}`, `{"cursor":2}`, `{}`)
	if got := decodeAppliedRecord(text); !reflect.DeepEqual(got, r) {
		t.Errorf("%s:\n got %+v\nwant %+v", text, got, r)
	}
	for i := range text { // each way in which it could be cut off, or differ by a byte
		sameRecord(t, text[:i])
		for _, c := range []byte("\"}{,\\0x \x1f\xff") {
			sameRecord(t, slices.Concat(text[:i], []byte{c}, text[i+1:]))
			sameRecord(t, slices.Concat(text[:i], []byte{c}, text[i:]))
		}
	}
	sameRecord(t, bytes.Replace(text, []byte(`"f":7`), []byte(`"f":18446744073709551615`), 1)) // whose seqs run over
	for _, result := range []string{`{"cursor":1,"of":{}}`, `{"of":"}"}`} {
		if _, text := appliedText(result); decodeAppliedRecord(text) != nil {
			t.Errorf("%s is for the other way", text)
		}
	}
}

func FuzzAppliedRecord(f *testing.F) {
	_, text := appliedText(`{"cursor":1}`, `{"cursor":2}`)
	f.Add(text)
	f.Fuzz(sameRecord)
}
