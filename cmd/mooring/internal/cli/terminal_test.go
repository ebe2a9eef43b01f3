package cli

import (
	"bytes"
	"testing"
)

func TestEscapingWriterSplitsAnywhere(t *testing.T) {
	t.Parallel()
	text := "aé😀\u202e\u009b\U000e0067\xff b\xe2\x80\n"
	const want = "aé😀\\u202e\\u009b\\udb40\\udc67\ufffd b\ufffd\ufffd\n"
	for size := 1; size <= len(text); size++ {
		var out bytes.Buffer
		w := &escapingWriter{w: &out}
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			if m, err := w.Write([]byte(rest[:n])); m != n || err != nil {
				t.Fatal(m, err)
			}
			rest = rest[n:]
		}
		if out.String() != want {
			t.Errorf("in pieces of %d: %+q, want %+q", size, out.String(), want)
		}
	}
}
