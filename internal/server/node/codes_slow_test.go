//go:build crash && unix

package node

import "testing"

// TestEveryCodeAtEveryStatement is TestCodesAtStatements with every code at every statement of every verb.
func TestEveryCodeAtEveryStatement(t *testing.T) {
	onFailing(t, func(t *testing.T, d failing) {
		for name, verb := range d.failingVerbs(t) {
			for _, f := range d.Failures {
				for at := 1; at <= 30 && d.checkFailing(t, name, verb, at, f); at++ {
				}
			}
		}
	})
}
