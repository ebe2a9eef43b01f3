//go:build crash && unix

package main

import "testing"

// 300 prompts.
func TestPromptsUnderManyKills(t *testing.T) { promptsUnderKills(t, 300) }
