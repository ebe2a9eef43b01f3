// The types of values for which Go has none.

package capnweb

import "fmt"

// Undefined is JavaScript's undefined.
type Undefined struct{}

// Bytes is a container of bytes other than Uint8Array, numbers in it little-endian.
type Bytes struct {
	Container string // ArrayBuffer, DataView, Int8Array … Float64Array
	Data      []byte
}

// URL is the text of a URL.
type URL string

// Headers are HTTP headers, names in lower case, in order.
type Headers [][2]string

// Request is an HTTP request as a value.
type Request struct {
	URL     string
	Method  string // empty: GET
	Headers Headers
	Body    any            // nil, string, []byte or *Readable
	Init    map[string]any // other members of RequestInit that were sent: cache, redirect, …
}

// Response is an HTTP response as a value.
type Response struct {
	Status     int // 0: 200
	StatusText string
	Headers    Headers
	Body       any // nil, string, []byte or *Readable
	Init       map[string]any
}

// Blob is bytes with a media type. On the wire it is a pipe; a received one is delivered whole, within
// Limits.BlobBytes.
type Blob struct {
	Type string
	Data []byte
}

// Error is an error on the wire. A handler that returns one determines exactly what is sent to the peer; any other error
// is sent as Config.Redact returns it.
type Error struct {
	Name    string // Error, TypeError, RangeError, …; others arrive as Error
	Message string
	Stack   string
	Props   map[string]any // own properties, cause and errors among them; peers before 0.8 drop them
}

func (e *Error) Error() string {
	if e.Name == "" || e.Name == "Error" {
		return e.Message
	}
	return e.Name + ": " + e.Message
}

// TypeErrorf returns a TypeError.
func TypeErrorf(format string, args ...any) *Error {
	return &Error{Name: "TypeError", Message: fmt.Sprintf(format, args...)}
}
