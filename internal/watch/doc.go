// Package watch delivers notices of what happens in a session (package notice), from a client's process.
//
// Each notice is delivered at least once, also of what happened while nobody watched: the position in the session's log is kept in
// a file, and moves on when a notice has been delivered (Config.Deliver has returned). What is delivered again, after a kill in between, has
// the same id. The first watch begins with the requests that are open; so does one whose log is not there any more, trimmed or
// restored from a backup.
//
// # Bounds
//
//	ids that are remembered, so that they are not delivered twice   64 (maxDelivered)
//	a command                                                  CommandConfig.Timeout, then SIGTERM, then killGrace
//
// There are no locks.
package watch
