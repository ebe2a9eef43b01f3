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
			for i++; i < len(msg) && msg[i] != '"'; i++ {
				n := bytes.IndexByte(msg[i:], '"')
				if n < 0 {
					return size
				}
				if k := bytes.IndexByte(msg[i:i+n], '\\'); k >= 0 {
					i += k + 1 // and past the escaped byte
					continue
				}
				i += n - 1
			}
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
