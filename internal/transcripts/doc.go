// Package transcripts reads what Claude Code (2.1.332) and Codex (0.169.0) write of their sessions, JSONL, as recordings in the
// shapes that opencode's sessions have, so that a page shows them alike. It is pure: no protocol, no outbox, no clock.
//
//	transcripts.go  which program wrote a file; its lines one by one
//	writer.go       the messages, parts and tool calls that are recorded
//	claude.go       Claude Code's lines; claudetool.go: its tools
//	codex.go        Codex's lines; codextool.go: its tools
//
// Each line is a batch of its own, and depends on the lines before it alone: a transcript that has grown begins with the
// batches that it had, so that an import goes on where it ended. A tool call's part is put when it is called, and again with
// its result.
//
// What is not of the conversation (requests, prompts of the programs' own, states) is left out, and counted by its type in the
// recording's notices; so is what is of a type that is not known.
//
// # Bounds
//
// Those of package jsonlines. The recording takes memory for what is recorded; lines that are left out take none.
package transcripts
