// Answers: JSON, and what goes with a refusal.

package httpkit

import (
	"bytes"
	"encoding/json"
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

// SetRetryAfter sets when a request that was refused with a code may be repeated, if it may.
func SetRetryAfter(w http.ResponseWriter, code fault.Code) {
	if after := code.RetryAfter(); after != "" {
		w.Header().Set("Retry-After", after)
	}
}
