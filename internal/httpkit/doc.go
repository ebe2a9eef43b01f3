// Package httpkit is what all HTTP handlers of a server share: bodies of requests, answers, deadlines
// and routing. It decides at which pace readers must take an answer.
//
// Packages node, origin, share, web and httpapi call it. It touches nothing but the request and the
// answer that it is given: it knows neither sessions nor refs, and imports nothing of this module
// but package fault.
//
//	pace   how fast a reader must take an answer, so that it holds nothing of the server for long
//	piece  bytes of an answer that are written under one deadline
//
// # Lock order
//
// There are no locks: a value belongs to one request's goroutine.
//
// # Bounds
//
//	a body    its reader's (http.MaxBytesReader); ReadBody asks before its buffer grows
//	an answer Pace: PieceTime for each piece, MinRate for the whole
package httpkit
