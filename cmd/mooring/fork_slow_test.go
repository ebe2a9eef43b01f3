//go:build crash && unix

package main

import "testing"

// A session that one event, or one message, could not hold (32 MiB) is forked.
func TestForkOver32MiB(t *testing.T) { forkLarge(t, 60) }
