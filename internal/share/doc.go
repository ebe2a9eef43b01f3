// Package share serves opencode's share API: sharing a session from an unmodified opencode
// creates a session, refs and ops on this server. It is mounted on the server (node.Server.Mount),
// over HTTP (http.go) and over Cap'n Web (rpc.go).
//
// The refs of a share, each minted from the one above it:
//
//	the creator's space ref, with the right to create and nothing else (creator.go)
//	  owner      of the session; its secret is discarded
//	    share    everything under the share; its secret is discarded. Revoking it ends the share
//	      reader of visitors with the public id; its secret is discarded
//	      writer one for each create: its secret is opencode's share secret
//
// The public id is random and contains none of these ids; the table of public shares maps it to
// them. Its row is written before the session is created, so that after a crash at any step the
// same create, repeated, finishes the rest (create.go). A sync (sync.go) becomes puts, and is
// answered when they are committed. A DELETE revokes the share's ref: one cut for readers and
// writers. A create after that makes another session with a share; earlier syncs stay in the old
// one, which only the space's owner can read.
//
// Words:
//
//	public id  128 random bits in a share's URL; allows reading
//	creator    a caller who may create shares, and the space ref it creates under
//	writer     a ref minted by one create; its secret allows syncs and DELETE
//	sync       a request with items, which become puts
//	item       {type, data}: one value that opencode synced
//	piece      part of a sync that is committed as one batch
//	refusal    an item, or a sync, that was not stored
//	visitor    a request with its caller and the create-only ref of its path
//
// # Lock order
//
// A sync takes its address's slot (Config.Requests), then its turn in the share's writeQueue. The
// mutexes of Service, createThrottle, addressSlots and writeQueue are leaves: none is held during
// a call to the store or the server.
//
// # Bounds
//
//	a sync's body               Config.BodyBytes, read as a stream
//	a Cap'n Web message         Config.MessageBytes; a sync in one, 131,072 items (maxItems)
//	one item, or data before    32 MiB (syncbody.MaxBuffered)
//	  the secret
//	memory of requests          the server's budgets, by address and then by share
//	requests of an address      Config.Requests at once; the rest wait SyncTimeout
//	creates of an address       Config.CreatesPerHour, in bursts of CreateBurst
//	addresses counted           65,536 (maxAddresses); the rest share one bucket
//	writers of a share          Config.Writers
//	refusals of a session       64 (maxRefusals)
//	keys sorted at once         Config.MaxOrdered
package share
