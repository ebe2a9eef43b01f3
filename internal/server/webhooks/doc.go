// Package webhooks delivers notices of sessions (package notice) to the webhooks that the sessions' owners have registered.
//
// The server runs Deliverer.Run, and package objects, where webhooks are registered, wakes it. It reads sessions through package
// objects, under the ref that a webhook was registered under, and writes the rows of webhooks and nothing else.
//
// A webhook has a position in its session's log. Each notice is sent until it is taken, and only then the position moves on: so each
// arrives at least once, in order, and again under the same id where a server dies in between. It begins with the requests that are
// open, and so it does anew, and says so, when the log does not have its position any more (trimmed, or restored from a backup).
//
// What is sent was read with the ref's authority in one snapshot, right before each try. So nothing is sent of what was committed after the
// ref's cut: the next read finds the ref dead, and the webhook ends.
//
//	claim   a server takes a webhook that has something to do, for Config.Lease by the database's clock, and renews that as it goes on
//	slow    a webhook that took long the last time, or does so now: one that fails at once holds up nobody
//
// A server learns what there is to do from its own commits, and by looking every Config.Poll: for commits of others, for what is tried again,
// and for what a server that died has held.
//
// # Bounds
//
//	deliveries       Config.Fast at a time, and Config.Slow to slow webhooks; one to a webhook. One that turns out to be slow
//	                 makes room for another fast one, up to 64 in all (maxRunning)
//	memory           a page of the log (4 MiB) for 8 of them (maxReading), and what package webhook reads of an answer for each
//	one claim        100 notices (maxInTurn), then others have their turn
//	woken sessions   1000, beyond: all are looked at
//
// Deliverer.mu is a leaf.
package webhooks
