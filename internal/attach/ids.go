package attach

// The ids of opencode's messages and parts: a time, by which they are ordered, and something random.

import (
	"crypto/rand"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	idDigits   = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
	idRandom   = 14 // digits
	idTimeBits = 48
)

// newID returns an id with a prefix, in opencode's form: 12 hexadecimal digits of the time in ms with a counter of 12 bits, then random ones. It
// comes after another id, "" for none: opencode has ordered messages by their ids.
func newID(prefix string, now time.Time, after string) string {
	when := (uint64(now.UnixMilli()) << 12) & (1<<idTimeBits - 1)
	if _, rest, ok := strings.Cut(after, "_"); ok && len(rest) >= idTimeBits/4 {
		if at, err := strconv.ParseUint(rest[:idTimeBits/4], 16, 64); err == nil {
			when = max(when, at+1)
		}
	}
	random := make([]byte, idRandom)
	_, _ = rand.Read(random) // it never fails
	for i, b := range random {
		random[i] = idDigits[int(b)%len(idDigits)]
	}
	return fmt.Sprintf("%s_%012x%s", prefix, when, random)
}
