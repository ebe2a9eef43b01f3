// Package opargs has the methods of ops: their names, the rights and features that they need, and their typed arguments. Clients
// check their ops by it before they send them (CheckOps), and the server decodes each as it is decided (package decide, which has
// what the methods do). It reads the op that it is given and nothing of any session.
//
// An argument may be a reference to an earlier op's result. The server decodes an op when all its arguments are values; a client
// does so earlier, with references still in place of values, which are not checked then.
//
//	op          a call of a method, with an id and named arguments (ledger.Intent)
//	Op          its decoded arguments: Put, Claim, Share and so on, one type for each method
//
// method.go has the table of methods, needs.go and features.go what an op needs of its ref and of servers, as far as its arguments can be
// read before they are decoded. The types and their decoding are in creation.go, values.go, requests.go, turns.go, refs.go and reverts.go;
// decoder.go reads arguments by name, keys.go those that are keys, ids, refs and hashes.
//
// # Methods
//
// Each argument may be a reference. Put, remove, patch and add take expect? and claim? too, cursors of the key's last change and of its
// claim; put and remove take sync?, for those of opencode.
//
//	create      ref, hash, external?, shared_external?, label?, actor?, order?, parent?, via?, part?, origin?, origin_at?, origin_message?  the first op of a session's stream; mints the owner ref; order "time" is opencode's
//	fork        source, via, at?, at_hash?, message?, and the arguments of create
//	                                                       begins with the source's entries; a live object of via must be passed along
//	put         key, payload, schema_version?              replaces; equal to the present value: unchanged
//	remove      key                                        absent: unchanged; not a message whose turn is open
//	patch       key, patch, schema_version?                a value of the users' own kinds, by RFC 7396
//	add         key, member, by                            to a number in a value of the users' own kinds
//	claim       key or prefix or request, lease, worker?   who works on a key or a request until its lease is over
//	release     key or request, claim                      ends a claim
//	ask         request, kind, message?, payload?, choices?, expires_in?  a request, to be answered or withdrawn
//	answer      request, choice?, payload?, shown?, claim?, state?, reason?
//	withdraw    request, reason?
//	begin       message, payload, schema_version?          puts the message and opens its turn; the open turns are bounded
//	appendText  key, offset, text                          continues a part's text at its byte offset
//	finalize    message, status, payload?, schema_version?, parts?, usage?, error?, completed?; at most MaxTerminalParts parts
//	share       ref, hash, rights, children?, methods?, expires_at?, expires_in?, from?, message?, read_keys?, write_keys?, ask?, answer?, redemptions?, seal?, public?, label?, actor?
//	revoke      ref                                        it and all minted below it
//	bumpEpoch                                              every share of the session
//	revert      to or cursor                               hides a message or part, and what comes after it
//	unrevert                                               shows it again
//	compact     upto, summary                              a summary stands for the messages up to one
//	purge       key                                        owner refs only; removes every payload of the key from log and state
//	delete                                                 owner refs only
//
// # Bounds
//
// session.Limits bounds an argument and its parts, MaxPeekBytes one that is read before its op is decoded; lists, leases and expiries
// have bounds beside their types.
//
// # Concurrency
//
// A Decoder belongs to one goroutine, and an Op that it returns is valid until its next Decode. Schemas, the compiled schemas of the
// process, may be used by many. Nothing here locks or waits otherwise.
package opargs
