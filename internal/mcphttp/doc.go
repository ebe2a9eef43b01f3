// Package mcphttp serves the Model Context Protocol over streamable HTTP, in the server's process. Each request carries a
// ref in its Authorization header, as for the API of package httpapi; package mcpserver has what a model can do with it.
//
// Package httpapi admits requests and restores their refs. http.go has them answered, sessions.go has the protocol's sessions,
// and live.go does what is asked through live capabilities (package objects), which check at each call whether the ref still
// allows it.
//
// Clients of the protocol up to 2025-11-25 have sessions, with a stream of notices beside their calls. A session keeps
// the live capability of the ref that it began with, which every request of it carries again: a session's id is no
// secret, and opens nothing with another ref. Clients of 2026-07-28 have none: each request stands for itself, and a
// subscription is the answer of one.
//
// # Lock order
//
// Handler.mu is the only lock. It is not held over a call of the protocol's server or of the ref's.
//
// # Bounds
//
//	sessions                 Config.Sessions, and Config.SessionsPerRef of one ref: a new one ends the one that is idle longest
//	an idle session          Config.IdleTimeout
//	a request's body         2 MiB, and the server's memory budget of its ref
//	a request's time         Config.Timeout, except streams
//	a slow client            64 KiB in each Config.StallTimeout
//	connections, streams     the server's (Server.Admit, AdmitStream)
package mcphttp
