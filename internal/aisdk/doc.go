// Package aisdk serves sessions as chats to the AI SDK (npm package ai): what its useChat and DefaultChatTransport send is
// asked of the session's agent, and the agent's answer is the UI message stream that they read.
//
// A request is admitted, and its ref restored, by package httpapi; package prompts asks, finds which messages of the session
// answer a prompt, and follows them. sent.go parses what a chat sends, stream.go writes the stream, and message.go and tool.go,
// which are pure, make chunks of the session's values. The rules of what a ref allows and of how a request applies are the
// server's; none is implemented here.
//
// Words:
//
//	chat     a session; its id is the chat's
//	prompt   a request of that kind, asked for the last message of a chat
//	message  the UI message of a stream: all that answers a prompt
//	step     a message of the session, as a part of that
//	chunk    one event of the stream
//	stale    of a value: not what was written with more behind it, so its step is begun anew
//
// # Lock order
//
// stream.mu is the only lock; it is held while chunks, or a heartbeat, are written to the client.
//
// # Bounds
//
//	a request    package httpapi's
//	a stream     what it holds is one piece of a session's events, a page of 256 KiB of parts or one value, charged to the ref
//	             from 64 KiB on (Request.Hold), and for each part of the message a row of fixed size: no text
//	a reset      one a second (package prompts)
package aisdk
