// Package acpagent is an agent for tests, which speaks the Agent Client Protocol on standard input and output, and
// misbehaves as it is told: by the Script in its environment, and by the words of the prompts that it gets.
package acpagent
