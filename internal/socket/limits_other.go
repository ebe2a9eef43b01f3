//go:build !linux && !darwin && !windows

package socket

import "time"

func limitUnsent(uintptr) error { return nil }

func limitSilence(uintptr, time.Duration) error { return nil }
