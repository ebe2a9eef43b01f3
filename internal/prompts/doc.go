// Package prompts asks something of a session's agent for clients of other protocols, and follows what answers it. The AI SDK's
// chats (package aisdk) and A2A's tasks (package a2ahttp) stand on it: each has its own form for what is asked and for what a
// Sink is given.
//
// blocks.go has what is asked, ask.go asks and stops, prompt.go finds which messages of the session answer a prompt, and
// follow.go reads these and follows them. The rules of what a ref allows and of how a request applies are the server's; none is
// implemented here.
package prompts
