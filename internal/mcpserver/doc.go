// Package mcpserver is Mooring as a server of the Model Context Protocol: what a model may do with sessions, as tools,
// and sessions as resources with updates. It knows no wire, no ref and no database: a Source has the sessions, under the
// authority that it was made with. Package mcphttp serves it over HTTP in the server's process, and mooring mcp over
// standard input and output, through a client.
//
// A call's path: server.go has the protocol's server and what holds for every call, tools_read.go, tools_values.go and
// tools_write.go the tools, text.go makes a session's values texts of bounded size, resources.go has the resources and their subscriptions.
//
// The package has no tool that answers a request, and none that returns a secret. Whatever it returns goes through
// withheld, which replaces the secrets of refs that stand in sessions' texts.
//
// # Refusals
//
// A tool's refusal is a result (isError) of one line, CODE: REASON, since a model reads it. A resource's is an error of
// the protocol, which has no other form for it.
//
// # Bounds
//
//	texts of one result        8 KiB (pageBytes), and their JSON is about as long
//	one message in an outline  1 KiB (outlineBytes)
//	messages that are counted  50,000 (maxMessages)
//	subscriptions              16 for one client (maxSubscriptions)
//	waiting for an answer      55 s (maxWait)
package mcpserver
