//go:build crash && unix

package main

import "testing"

// 300 prompts.
func TestPromptsUnderManyKills(t *testing.T) { promptsUnderKills(t, 300) }

// With every kind of agent at every step.
func TestAllRunsAreKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	runsAreKilled(t, func(int, int) bool { return true })
}
