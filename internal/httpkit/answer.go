// Answers: JSON, text, and what goes with a refusal.

package httpkit

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
)

// JSON returns v as JSON text without HTML escapes. v is of a type that the caller has made for
// it, so it cannot fail.
func JSON(v any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		panic("httpkit: JSON: " + err.Error())
	}
	return b.Bytes()[:b.Len()-1] // without the line feed
}

// WriteJSON answers with JSON text. An error of the write is ignored: the client has gone.
func WriteJSON(w http.ResponseWriter, status int, text []byte) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_, _ = w.Write(text)
}

// WriteText answers with a text that nothing may cache. An error of the write is ignored, as by
// WriteJSON.
func WriteText(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

// SetRetryAfter sets when a request that was refused with a code may be repeated, if it may.
func SetRetryAfter(w http.ResponseWriter, code fault.Code) {
	if after := code.RetryAfter(); after != "" {
		w.Header().Set("Retry-After", after)
	}
}
