// Package httpkit is what all HTTP APIs of a server share: opencode's share API, the pages and /api/v1. It decides at which pace readers must take an answer. It
// knows neither sessions nor refs, and imports nothing of this module but package fault.
//
// Words:
//
//	pace   how fast a reader must take an answer, so that it holds nothing of the server for long
//	piece  bytes of an answer that are written under one deadline
//
// There are no locks: a value belongs to one request's goroutine, unless it says otherwise.
package httpkit
