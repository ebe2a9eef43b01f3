//go:build unix

// Command acpagent is the agent of package acpagent.
package main

import "github.com/mooring-rpc/mooring/internal/acpagent"

func main() { acpagent.Main() }
