//go:build !linux && !darwin && !windows

// TCP socket options on other systems: none.

package socket

import "time"

func limitUnsent(uintptr, int) error { return nil }

func limitSilence(uintptr, time.Duration) error { return nil }
