// Package breach checks for tests that no compressed answer contains a secret.
//
// Whoever can write a part of a body and sees its compressed length can guess the rest of it. So
// the harnesses of all HTTP handlers pass every answer that their tests get to Check.
package breach

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"unicode"

	"github.com/mooring-rpc/mooring/capability"
)

// Check fails if an answer came compressed and its body has the text of a secret (a ref's, a
// page token's, a share's), the public id of the share that was asked for, or one of more.
// Go's client has decompressed the body.
func Check(t testing.TB, res *http.Response, body string, more ...string) {
	t.Helper()
	if !res.Uncompressed && res.Header.Get("Content-Encoding") == "" {
		return
	}
	path := res.Request.URL.Path
	if m := publicPath.FindStringSubmatch(path); m != nil {
		more = append(more, m[1])
	}
	for _, secret := range more {
		if strings.Contains(body, secret) {
			t.Errorf("%s %s: a compressed body has %q", res.Request.Method, path, secret)
		}
	}
	if secret := find(body); secret != "" {
		t.Errorf("%s %s: a compressed body has a secret: %q", res.Request.Method, path, secret)
	}
}

var publicPath = regexp.MustCompile(`/share/([A-Za-z0-9_-]+)`)

// find returns a text of the form of a secret in body, or "".
func find(body string) string {
	for _, word := range strings.FieldsFunc(body, func(r rune) bool {
		return (r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r)) && r != '_' && r != '-'
	}) {
		mixed := strings.ContainsFunc(word, unicode.IsUpper) && strings.ContainsFunc(word, unicode.IsLower) && strings.ContainsFunc(word, unicode.IsDigit)
		if _, err := capability.ParseSecret(word); err == nil && mixed {
			return word
		}
	}
	return ""
}
