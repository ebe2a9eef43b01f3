//go:build !race

// Whether the tests run with the race detector, so that the binary does too.

package e2e

const raceDetector = false
