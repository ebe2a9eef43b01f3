//go:build race && crash

// Whether the binary is built with the race detector: in the slow tests, when
// they are. The quick ones run it plain: its packages' own tests race it, and it
// costs a third of the time and a small part of the memory.

package e2e

const raceDetector = true
