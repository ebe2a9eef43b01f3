// Package agentproc runs an agent's process: it gives it lines, reads its lines, and ends it with all that it has
// started. It knows no protocol.
//
// The process is the leader of a group of its own, so that a Ctrl-C at the terminal reaches the runner alone, and a
// signal reaches all of the group. Beside it, the environment has a mark (MarkVar) that children inherit: on Linux
// processes that have left the group are found by it. The mark and the leader's pid and start time are an Identity,
// which a runner writes down before and after the start; a later runner ends by it what a killed one has left (EndLeft).
//
// # Bounds
//
//	a line           Config.MaxLine; a longer one is read to its end, and not kept
//	standard error   the last Config.StderrBytes
//	lines to write   queuedLines and queuedBytes; then Send reports ErrStuck
//	the end          Config.Grace twice (standard input closed, then SIGTERM), then killWait
//
// # Lock order
//
// All mutexes are leaves.
package agentproc
