// Package a2ahttp serves the agent of a session by A2A (Agent2Agent, https://a2a-protocol.org, version 1.0): what a client sends
// is asked of the agent as a prompt, and a task is that request with the messages that answer it. The protocol's two forms,
// JSON-RPC and HTTP+JSON, are the SDK's (github.com/a2aproject/a2a-go).
//
// A request is admitted, and its ref restored, by package httpapi; package prompts asks and follows. a2ahttp.go has the routes,
// card.go the agent's card, handler.go what the protocol's methods do, and list.go its lists; task.go and artifacts.go, which are
// pure, make tasks and their artifacts of the session's values. The rules of what a ref allows and of how a request applies are
// the server's; none is implemented here.
//
// Words:
//
//	context   a session; its id is the context's
//	task      a prompt that was asked here, with what answers it; its id is the request's
//	artifact  a text or a file of a message that answers
//
// # Bounds
//
//	a request    package httpapi's
//	a wait       SendMessage waits for the task's end as long as its client does, and counts as a stream
//	a task       what is read of it is charged to the ref (Request.Hold), from 64 KiB on, until it is written
//	a stream     begins with the task and some MiB of its artifacts; what is more follows as events of its own
//	a list       100 tasks a page; each page reads the keys of all tasks of the ref
package a2ahttp
