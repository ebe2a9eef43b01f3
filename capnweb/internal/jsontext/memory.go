// Memory of a message's value, known before it is read.

package jsontext

import "bytes"

// Memory of decoded values, about, in bytes.
const (
	valueBytes  = 56 // its slot in a list, in that under construction, and a number's own
	memberBytes = 48
	objectBytes = 336
)

// DecodedBytes estimates the memory of a decoded message: for small values many times its length. It does not check the
// syntax.
func DecodedBytes(msg []byte) int {
	size := len(msg)
	for i := 0; i < len(msg); i++ {
		switch msg[i] {
		case '"':
			i = stringEnd(msg, i+1)
		case ',', '[':
			size += valueBytes
		case ':':
			size += memberBytes
		case '{':
			size += objectBytes
		}
	}
	return size
}

// stringEnd returns the position of the quote that ends a string, of which i is the first byte; len(msg) or more if none does. It
// takes time in proportion to the string, however many escapes are in it.
func stringEnd(msg []byte, i int) int {
	for quote := -1; i < len(msg); {
		if quote < i {
			n := bytes.IndexByte(msg[i:], '"')
			if n < 0 {
				break
			}
			quote = i + n
		}
		k := bytes.IndexByte(msg[i:quote], '\\')
		if k < 0 {
			return quote
		}
		i += k + 2 // past the escaped byte
	}
	return len(msg)
}
