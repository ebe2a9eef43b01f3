// Compressed bodies: those alone that contain nothing secret.

package httpkit

import (
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/klauspost/compress/gzip"
)

// Compressed begins an answer's body, which is compressed with gzip if the client accepts that; it
// is called before WriteHeader, and Close ends a body that is complete.
//
// It is only for bodies without a secret, a token or a public id: a writer of one part of a body
// who sees its compressed length can guess the rest (BREACH). So an answer is not compressed
// unless its handler calls this.
//
// Each Write is compressed by itself and can be read at once; nothing is kept between two. So a
// reader who is slow holds no compressor, and writes of a few kilobytes compress badly.
func Compressed(w http.ResponseWriter, r *http.Request) io.WriteCloser {
	w.Header().Add("Vary", "Accept-Encoding")
	if !AcceptsGzip(r.Header) {
		return plain{w}
	}
	w.Header().Set("Content-Encoding", "gzip")
	z, err := gzip.NewWriterLevel(w, gzip.StatelessCompression)
	if err != nil {
		panic("httpkit: " + err.Error()) // the level is valid
	}
	return z
}

// plain is a body that is not compressed.
type plain struct{ io.Writer }

func (plain) Close() error { return nil }

// minCompressed is the size in bytes from which a body is compressed: a smaller one takes one packet anyway.
const minCompressed = 1400

// WriteCompressedJSON is WriteJSON of a text without secrets (Compressed).
func WriteCompressedJSON(w http.ResponseWriter, r *http.Request, status int, text []byte) {
	if len(text) < minCompressed {
		w.Header().Add("Vary", "Accept-Encoding")
		WriteJSON(w, status, text)
		return
	}
	body := Compressed(w, r)
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := body.Write(text); err == nil { // else the client has gone
		_ = body.Close()
	}
}

// AcceptsGzip reports whether a request's head accepts gzip: named with a quality above 0, or by *
// if it is not named.
func AcceptsGzip(h http.Header) bool {
	accepts := false
	for _, each := range strings.Split(strings.Join(h.Values("Accept-Encoding"), ","), ",") {
		name, params, _ := strings.Cut(each, ";")
		switch name = strings.ToLower(strings.TrimSpace(name)); name {
		case "gzip", "x-gzip":
			return quality(params) > 0
		case "*":
			accepts = quality(params) > 0
		}
	}
	return accepts
}

// quality returns the q among an element's parameters: 1 without one, 0 if it is invalid.
func quality(params string) float64 {
	for _, each := range strings.Split(params, ";") {
		if name, value, ok := strings.Cut(each, "="); ok && strings.EqualFold(strings.TrimSpace(name), "q") {
			q, err := strconv.ParseFloat(strings.TrimSpace(value), 64)
			if err != nil || !(q >= 0 && q <= 1) {
				return 0
			}
			return q
		}
	}
	return 1
}
