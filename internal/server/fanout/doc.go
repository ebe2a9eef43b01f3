// Package fanout delivers what is committed to those who follow: the events of a session to its
// subscriptions, at the rate at which they ack them, and the folded state in snapshots.
//
// Package objects makes subscriptions and asks for snapshots; package commit, and operator, tell
// the Hub what they have committed; the server runs Hub.Loops. This package reads the log, the
// state and the authority to see them, in one snapshot of the database, and writes nothing. It
// knows no wire: a Sink sends for it, an Authority decides what its ref may see.
//
// hub.go holds the fan-outs, session_fanout.go the single runner of a session that delivers,
// subscription.go what one subscriber has and may have, flow.go the share of its connection.
// replicas.go hears of other replicas' commits. snapshot.go, snapshot_slots.go and send_window.go
// send the state.
//
//	cursor        the number of an event in a session's log
//	AuthGen       a session's counter, raised whenever authority over it changes
//	fan-out       the subscriptions of one session, with their runner
//	tail          the events published here that the runner has not passed
//	sink          where a subscription's events, or a snapshot's state, go
//	window        the bytes that may be in flight to one subscriber
//	flow          the bytes that may be in flight to one connection, and whose turn it is
//	sight         what a subscriber is shown: its ref's limits and the keys that it asked for
//	slot          the right to send a snapshot
//
// # Lock order
//
//	Hub.mu, sessionFanout.mu, Flow.mu or Hub.runMu
//	sendWindow.mu, Flow.mu or snapshotSlots.mu
//
// No mutex is held over a call of the store or of a sink.
//
// # Bounds
//
//	one fan-out     while its runner runs: a tail of 1 MiB, and 16 deliveries that are shared; on all fan-outs 4 reads of the log at once, 1 MiB each
//	one connection  FlowConfig: bytes in flight, subscriptions, snapshots
//	one subscriber  SubscriptionConfig.Window; it begins with 64 KiB
//	snapshots       SnapshotsConfig.AtOnce, FoldBytes each
package fanout
