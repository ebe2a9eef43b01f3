// Package maintain changes sessions without an op: it ends leases that are over, cuts off trees of refs that span sessions, replaces
// the roots of spaces, and copies forks that are too large for an event. The server's operator and the store call it, and its
// objects do for the refs of spaces; package decide uses the same rules where an op has such an effect. It touches the rows of the
// transaction that it is given (session.Tx), and nothing else: it imports neither the wire nor SQL.
//
// lapse.go has the leases of turns and claims, requests.go what becomes of requests with them and with refs, trees.go what ends refs
// in other sessions than their own, operator.go what the operator of a server does, who has the database and needs no ref, and the
// audit rows of refs that have expired. forkcopy.go copies forks, and forkfold.go folds what their sources were at an earlier cursor.
//
//	lapse       the end of what was to be renewed in time: a turn is interrupted, a claim ends, a request is open again or expires
//	cut         an event of a session after which nothing under a ref commits there
//	piece       what one transaction copies of a fork
//
// Whatever is done here was asked for by nobody or is repeated until it is done, so each function finds out under the locks whether it
// still is to be done, and may run on any server, any number of times.
//
// # Lock order
//
// As in package decide: spaces, then sessions, each in id order; RevokeTree and CutRotated are called in transactions whose first
// Load has locked the space exclusively, and lock its sessions in their own one.
//
// # Bounds
//
// MaxCopies bounds the forks of a session that are copied at a time, the caller of CopyFork the bytes and keys of a piece.
// RevokeTree writes an event and two audit rows for each session that it cuts, in one transaction.
//
// # Concurrency
//
// All functions hold no state between calls and may run in parallel, each in its own transaction.
package maintain
