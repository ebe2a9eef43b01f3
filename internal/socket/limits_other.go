//go:build !linux && !darwin && !windows

// Elsewhere a TCP socket is told of no limits.

package socket

import "time"

func limitUnsent(uintptr, int) error { return nil }

func limitSilence(uintptr, time.Duration) error { return nil }
