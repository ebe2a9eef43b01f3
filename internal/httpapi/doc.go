// Package httpapi is Mooring over plain HTTP: sessions are read, followed, appended to and shared
// by requests below /api/v1, each under a ref in its Authorization header. openapi.json describes
// the API and is served with it.
//
// A request's path: httpapi.go admits it and finds its route, request.go restores its ref as a
// live capability of the server, body.go and json.go parse its body, and batch.go, events.go,
// snapshot.go, sessions.go, refs.go and audit.go execute it; answer.go writes the answer. The rules of what
// a ref allows and of how an op applies are the server's, as over the other protocols; none is
// implemented here.
//
// Words:
//
//	ref         sturdy ref, as the bearer token of a request: its text, or its id and secret
//	attenuation limits beside the ref's, of one request (header Mooring-Attenuate)
//	redemption  one counted use of a ref (header Mooring-Redemption)
//	batch       ops of an outbox, as over the other protocols
//	position    a cursor with its event's hash
//	fault       an error with a code; the status follows from the code
//	stream      an answer of server-sent events
//
// # Lock order
//
// eventStream.mu is the only lock; it is held while an event is written to the client.
//
// # Bounds
//
//	a request's body       Config.BodyBytes, and the server's memory budget of its ref
//	a request's time       Config.Timeout, except streams and snapshots
//	a slow client          64 KiB in each Config.StallTimeout
//	a page                 1000 (maxPage), or less by the server's limits
//	lists in a batch       2000 (maxListLen); ops of a request 10,000 (ledger.MaxFrameOps), their args and depends_on 500,000 in all
//	batches of a request   the server's unanswered batches of a stream (BatchesInFlight)
//	refs sent with a batch 16 (maxWith)
//	connections, streams   the server's (Server.Admit, AdmitStream)
package httpapi
