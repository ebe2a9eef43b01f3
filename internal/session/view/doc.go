// Package view is the rows that a group of submissions has loaded, with the group's changes so far over them. Package decide, its
// only caller, reads and changes the view alone; changed rows are written at the end (View.Changes). It touches the rows of the
// transaction that it is given (session.Tx), and decides nothing: what may be changed is decided before.
//
// Every change is journaled, so that an atomic batch can be rolled back to its savepoint. States of keys, turns and refs are
// replaced and never modified, so the journal only keeps the old one. The exception is a value read from the store later (a
// payload that was not loaded at first): it is stored in place, since it is a fact about the rows and survives a rollback.
//
//	group       the submissions of one transaction
//	row         a session's row as the group has it; before is the row as it was loaded
//	state       what is known of one key, with how much of it is to be written
//	journal     the changes since the last submission, to be undone from the end
//	lineage     a ref and its ancestors that act in a session
//	orphan      an open turn whose ref is dead: it is not counted
//	left        what a settled revert hid, whose rows the database still has
//
// load.go reads rows that are missing; view.go has keys and turns, events.go events, refs.go refs, requests.go requests, claims.go
// and turns.go what is counted of claims and turns, lineage.go who acts in a session, reverted.go what settled reverts left behind,
// edits.go how an edited value is stored, changes.go what is written.
//
// # Bounds
//
// One submission reads at most as many bytes of payloads as New was given. A group that has used more, read or written, is
// Exhausted: its remaining submissions are refused. An error of the store ends the group (Err); until then every method answers
// with an error, or changes nothing that is written.
//
// # Concurrency
//
// A View belongs to one goroutine. Events that it has made outlive it, and refer to nothing else of it.
package view
