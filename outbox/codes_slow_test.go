//go:build crash

package outbox

import "testing"

// TestEveryCodeAtEveryStatement is TestCodesAtStatements with every code at every statement.
func TestEveryCodeAtEveryStatement(t *testing.T) {
	onFailing(t, func(t *testing.T, d failing) {
		names, verbs := d.failingVerbs(t, newSession())
		for _, name := range names {
			for _, f := range d.Failures {
				for at := 1; d.checkFailing(t, name, verbs[name], at, f); at++ {
				}
			}
		}
	})
}

// TestEveryCodeWhileSending is TestCodesWhileSending likewise.
func TestEveryCodeWhileSending(t *testing.T) {
	onFailing(t, func(t *testing.T, d failing) {
		d.sendThrough(t, func(int) []int { return []int{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12} })
	})
}
