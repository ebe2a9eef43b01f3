// Package incident names what went wrong through no fault of who asked: the name is in the
// answer and in the log, and leads from the one to the other.
package incident

import "crypto/rand"

// New makes a name that no other has: 60 random bits.
func New() string { return rand.Text()[:12] }

// Internal is the only text that a peer gets about a panic.
func Internal(incident string) string {
	return "internal error: the log says why at incident " + incident
}
