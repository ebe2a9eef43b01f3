//go:build !unix

package spin

const canAsk = false

func readable(uintptr) bool { return true }
