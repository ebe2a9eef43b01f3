// Package linear shows that revocation is exact: that appends, shares, revokes,
// reverts and epoch bumps of a session are linearizable, whichever replica each
// of them goes to. It has tests only.
//
// A history is what a handful of clients saw who worked on one session at the
// same time, over the real wire, on real server processes: three on one Postgres
// (which for a part of the time are killed and started again), or one on SQLite.
// Each call is kept with the moment it was made and the moment it was answered.
// Porcupine (github.com/anishathalye/porcupine) then looks for an order of the
// calls that keeps to those moments and in which every answer is what the
// sequential model gives, to the last cursor. A history without such an order is
// refused, and shown: in words, and as Porcupine's page.
//
//	vocabulary_test.go  calls and answers, as plain comparable values
//	words_test.go       the same as a person reads them
//	session_test.go     the sequential model: a session in one value
//	check_test.go       the model as Porcupine takes it; what is shown of a refused history
//	model_test.go       the model's own tests, on histories written by hand
//
// and, with the build tag linear, because they take as long as they are given
// (make linearize FOR=10m; SEED=N begins with the plan of a seed):
//
//	plan_test.go        what the clients of a history do, made from a seed
//	wire_test.go        the calls on the wire
//	client_test.go      a client that works off its part of a plan and keeps what it saw
//	play_test.go        one history: a fresh session, its clients, all they saw
//	servers_test.go     the processes
//	histories_test.go   histories by the thousand (make linearize)
//	unlocked_test.go    the same without the session row's lock, which must be refused
//
// The model is written from the promises (README.md, internal/session/decide/doc.go,
// capability.Check) and shares no code with what it checks.
package linear
