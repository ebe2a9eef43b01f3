// Bodies: JSON text within the bounds for one body, and for all of a ref. No body is read before
// its ref was restored.

package httpapi

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"net/http"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/ledger"
)

// bodyChunk is the initial capacity of a body's buffer, in bytes.
const bodyChunk = 64 << 10

// ReadBody reads the body: one JSON value, whose parts are substrings of the bytes sent.
func (q *Request) ReadBody() (gjson.Result, *fault.Error) {
	if kind, _, err := mime.ParseMediaType(q.Header.Get("Content-Type")); err != nil || kind != "application/json" {
		return gjson.Result{}, fault.Malformed.With("the body is JSON: send Content-Type: application/json")
	}
	if q.Header.Get("Content-Encoding") != "" {
		return gjson.Result{}, fault.Malformed.With("the body is sent as it is, without a Content-Encoding")
	}
	text, refused := q.ReadBytes(q.ref)
	if refused != nil {
		return gjson.Result{}, refused
	}
	if !utf8.Valid(text) || !ledger.IsJSON(text) {
		return gjson.Result{}, fault.Malformed.With("the body is not one JSON value in UTF-8")
	}
	return gjson.ParseBytes(text), nil
}

// Hold charges the memory of a ref with n bytes until they are released: for what a stream keeps while its reader
// takes it. The fault is Overloaded.
func (q *Request) Hold(ref string, n int) (release func(), refused *fault.Error) {
	_, known := q.api.cfg.Server.MemoryBudgets()
	account := known.Open(ref)
	if !account.TryGrow(int64(n)) {
		account.Close()
		return nil, errNoMemory
	}
	return account.Close, nil
}

var errNoMemory = fault.Overloaded.With("the server's memory for this ref, or for all, is used up: try again later")

// BufferBody reads the body, and has whoever handles the request read it once more. It stays charged to a ref, as ReadBytes
// charges it, until done is called, even if the answer is a stream.
func (q *Request) BufferBody(ref string) (text []byte, done func(), refused *fault.Error) {
	if text, refused = q.ReadBytes(ref); refused != nil {
		return nil, nil, refused
	}
	if unused := cap(text) - len(text); unused > len(text) {
		text = bytes.Clone(text)
		q.memory.Shrink(int64(2 * unused))
	}
	done, q.memory = q.memory.Close, nil // or a stream would let go of it
	q.Body = io.NopCloser(bytes.NewReader(text))
	return text, done, nil
}

// ReadBytes reads the body, whatever it is, charged to a ref.
func (q *Request) ReadBytes(ref string) ([]byte, *fault.Error) {
	_, known := q.api.cfg.Server.MemoryBudgets()
	q.memory, q.bodyRead = known.Open(ref), true
	limit := int64(q.api.cfg.BodyBytes)
	tooLarge := fault.TooLarge.With("the body has more than the %d bytes that a body may have: send less at once", limit)
	if q.ContentLength > limit {
		return nil, tooLarge
	}
	text, err := httpkit.ReadBody(http.MaxBytesReader(q.W, q.Body, limit), bodyChunk, func(n int) error {
		if q.memory.TryGrow(int64(2 * n)) { // twice: parsing holds a second copy
			return nil
		}
		return errNoMemory
	})
	refused, _ := errors.AsType[*fault.Error](err)
	switch _, long := errors.AsType[*http.MaxBytesError](err); {
	case long:
		return nil, tooLarge
	case err != nil && refused == nil:
		return nil, fault.Malformed.Because(err, "the body did not come whole, or not in time")
	}
	if refused == nil {
		_ = http.NewResponseController(q.W.ResponseWriter).SetReadDeadline(time.Time{})
	}
	return text, refused
}
