//go:build crash && unix

package main

import (
	"testing"

	"github.com/mooring-rpc/mooring/internal/seed"
)

// 300 prompts on each database (SHARE=N: one in N of them).
func TestPromptsUnderManyKills(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) { promptsUnderKills(t, database, seed.Share(t, 300)) })
}

// With two more kinds of agent at every step than TestRunsAreKilledAtEveryStep.
func TestMoreRunsAreKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	runsAreKilled(t, func(step, agent int) bool { return (step+agent)%2 == 1 })
}
