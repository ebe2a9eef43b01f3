// Package reads answers what is asked of a store without a commit: logs, states, keys, searches, lists, requests, the audit and
// trees of refs. Store has its methods; its callers are the packages of a server that name them, objects above all. Each read
// is one snapshot, in which the rows and the authority to see them belong together, and what a ref does not show is left out
// by session.Unscoped or hiding.
//
// It writes only what reads go by, which says nothing new: titles, the index of a search, and places of entries that have
// none.
//
//	access   a session's row and refs' rows, read in one snapshot (txn)
//	hiding   what reverts hide of a session, and what its compacted view leaves out
//	page     a part of an answer, with whether there is more
//	info     the value of a session's own key, which has its title
//	due      of a title: its info was written since it was taken
//	index    which values of a session have which words
//
// # Lock order
//
// That of package txn. Whoever adds to an index locks the session's row, then the index's.
//
// # Bounds
//
// Reads of logs, states and lists take their limits as arguments. A page of a list scans about maxListScan sessions, one of
// keys what keys.go says. At most searchesAtOnce searches run; others wait.
package reads
