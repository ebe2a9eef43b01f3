//go:build crash && unix

package main

import "testing"

// 300 prompts.
func TestPromptsUnderManyKills(t *testing.T) { promptsUnderKills(t, 300) }

// With two more kinds of agent at every step than TestRunsAreKilledAtEveryStep.
func TestMoreRunsAreKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	runsAreKilled(t, func(step, agent int) bool { return (step+agent)%2 == 1 })
}
