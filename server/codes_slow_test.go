//go:build crash && unix

package server

import (
	"strings"
	"testing"
)

// TestEveryCodeAtEveryStatement is TestCodesAtStatements with every code at every statement of every verb.
func TestEveryCodeAtEveryStatement(t *testing.T) {
	onFailing(t, func(t *testing.T, d failing) {
		for name, verb := range d.failingVerbs(t) {
			for _, f := range d.failures {
				for at := 1; at <= 30 && d.checkFailing(t, name, verb, at, f); at++ {
				}
			}
		}
		if text := d.log.String(); strings.Contains(text, "unexpected error") {
			t.Errorf("logged %s", text)
		}
	})
}
