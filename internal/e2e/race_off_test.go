//go:build !(race && crash)

package e2e

const raceDetector = false
