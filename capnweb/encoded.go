// Arguments that are encoded once for many calls.

package capnweb

import (
	"errors"
	"math"
	"sync"
)

// EncodedArgs are arguments without references that are copied once, and encoded once, for many calls. They may be used by many
// goroutines.
type EncodedArgs struct {
	values []any
	size   int // about how many bytes were copied
	texts  [len(encodedFor)]encodedText
}

// encodedText is a list of arguments as peers of some versions are sent it.
type encodedText struct {
	once sync.Once
	text []byte
	err  error
}

// encodedFor has the oldest versions, 0.n, that are sent each text: the other versions are sent what the one before is.
var encodedFor = [...]int{0, 5, 8}

var errEncodedReference = errors.New("capnweb: arguments with stubs, promises, streams or blobs cannot be encoded once")

// EncodeArgs copies arguments, for [Stub.CallEncoded]. The error is a TypeError for a value that cannot be sent, a RangeError for one
// that nests too deep, and another one for a stub, promise, function, stream or blob: each call has its own.
func EncodeArgs(args ...any) (*EncodedArgs, error) {
	p, _, err := copyInArgs(args, nil)
	if err != nil {
		return nil, err
	}
	if len(p.refs) > 0 || holdsBlob(p.value) {
		p.release()
		return nil, errEncodedReference
	}
	return &EncodedArgs{values: p.value.([]any), size: p.size}, nil
}

// holdsBlob reports whether a copied value has a blob in it, which each connection sends in a pipe of its own.
func holdsBlob(v any) bool {
	switch v := v.(type) {
	case *Blob:
		return true
	case []any:
		for _, e := range v {
			if holdsBlob(e) {
				return true
			}
		}
	case map[string]any:
		for _, e := range v {
			if holdsBlob(e) {
				return true
			}
		}
	case *Error:
		return holdsBlob(v.Props)
	}
	return false
}

// text returns the list of arguments for a peer of version 0.version.
func (a *EncodedArgs) text(version int) ([]byte, error) {
	i := len(encodedFor) - 1
	for encodedFor[i] > version {
		i--
	}
	t := &a.texts[i]
	t.once.Do(func() {
		e := encoder{limits: encodeLimits{bytes: math.MaxInt, digits: DefaultLimits().BigIntDigits, peerVersion: encodedFor[i]}}
		t.err = e.list(a.values, 1)
		t.text = e.b
	})
	return t.text, t.err
}
