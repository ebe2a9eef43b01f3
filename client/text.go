// Detection of texts that are not UTF-8: encoding/json replaces invalid bytes, so such a text
// would arrive altered.

package client

import (
	"reflect"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
)

// replacement is what encoding/json writes for bytes that are not UTF-8. It writes a U+FFFD of
// the text itself unescaped.
var replacement = []byte(`\ufffd`)

// checkText refuses a text that is not UTF-8.
func checkText(name, s string) error {
	if utf8.ValidString(s) {
		return nil
	}
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		if head, tail := s[:len(s)-n], s[len(s)-n:]; utf8.RuneStart(tail[0]) && !utf8.FullRuneInString(tail) && utf8.ValidString(head) {
			return fault.BadArgument.With("%s ends within a character: keep its last %d bytes for the next call", name, n)
		}
	}
	if !utf8.RuneStart(s[0]) {
		return fault.BadArgument.With("%s begins within a character: the text before it should have ended before that character", name)
	}
	return fault.BadArgument.With("%s is not UTF-8: encode bytes that are not text, as base64 for example", name)
}

// invalidText returns a text that is not UTF-8 in a value that encoding/json has written; nil if
// there is none.
func invalidText(v reflect.Value) *string {
	var broken *string
	walk(v, "", func(v reflect.Value, _ string) bool {
		if v.Kind() == reflect.String {
			if s := v.String(); !utf8.ValidString(s) {
				broken = &s
			}
		}
		return broken != nil
	})
	return broken
}
