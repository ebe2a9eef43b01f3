package httpkit

import (
	"bytes"
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestAcceptsGzip(t *testing.T) {
	t.Parallel()
	for sent, want := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "br": false, "deflate, gzip;q=0.5": true, "gzip, deflate, br, zstd": true,
		"gzip;q=0": false, "gzip; q=0.000": false, "gzip ; Q=0": false, "gzip;q=1.0": true, "gzip;q=0.001": true, "gzip;q=x": false, "gzip;q=2": false, "gzip;q=-1": false, "gzip;q=NaN": false,
		"*": true, "*;q=0": false, "*;q=0, gzip": true, "gzip;q=0, *": false, "*, gzip;q=0": false, "identity": false, "identity;q=0, *;q=0.1": true, "gzippy": false, ";q=1": false,
	} {
		if got := AcceptsGzip(http.Header{"Accept-Encoding": {sent}}); got != want {
			t.Errorf("%q: %t", sent, got)
		}
	}
	if AcceptsGzip(http.Header{}) || !AcceptsGzip(http.Header{"Accept-Encoding": {"br", "gzip"}}) {
		t.Error("no header, or two")
	}
}

// What is written can be read at once, piece by piece, and is the same as without compression.
func TestCompressed(t *testing.T) {
	t.Parallel()
	pieces := []string{strings.Repeat("a first piece. ", 5000), "a small one", strings.Repeat("and the last. ", 9000)}
	for _, accepts := range []string{"gzip", "br"} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Accept-Encoding", accepts)
		body := Compressed(w, r)
		for i, piece := range pieces {
			if _, err := io.WriteString(body, piece); err != nil {
				t.Fatal(err)
			}
			if got, _ := read(t, w); got != strings.Join(pieces[:i+1], "") {
				t.Errorf("%s: after %d pieces %d bytes can be read", accepts, i+1, len(got))
			}
		}
		if err := body.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := read(t, w); err != nil {
			t.Errorf("%s: the end: %v", accepts, err)
		}
		if h := w.Header(); h.Get("Vary") != "Accept-Encoding" || (h.Get("Content-Encoding") == "gzip") != (accepts == "gzip") {
			t.Errorf("%s: %v", accepts, h)
		}
		if small := w.Body.Len() < 20_000; small != (accepts == "gzip") {
			t.Errorf("%s: %d bytes", accepts, w.Body.Len())
		}
	}
}

// read returns what can be read of a body so far.
func read(t *testing.T, w *httptest.ResponseRecorder) (string, error) {
	t.Helper()
	if w.Header().Get("Content-Encoding") == "" {
		return w.Body.String(), nil
	}
	z, err := gzip.NewReader(bytes.NewReader(w.Body.Bytes()))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(z)
	return string(text), err
}

func TestWriteCompressedJSON(t *testing.T) {
	t.Parallel()
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.Header.Set("Accept-Encoding", "gzip")
	for size, compressed := range map[int]bool{100: false, 5000: true} {
		text := `"` + strings.Repeat("x", size) + `"`
		w := httptest.NewRecorder()
		WriteCompressedJSON(w, r, http.StatusCreated, []byte(text))
		got, err := read(t, w)
		if h := w.Header(); got != text || err != nil || w.Code != http.StatusCreated || h.Get("Content-Type") != "application/json" || h.Get("Vary") != "Accept-Encoding" || (h.Get("Content-Encoding") == "gzip") != compressed {
			t.Errorf("%d: %d %v, %d bytes, %v", size, w.Code, h, len(got), err)
		}
	}
}
