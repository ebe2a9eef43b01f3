// Package e2e tests Mooring from outside: the real binary and agents run as
// processes of their own, on real databases, behind a proxy that breaks links to
// the byte, and are killed with SIGKILL where it hurts.
//
// main_test.go builds the binary; server_test.go runs it, behind a proxy whose
// address the refs name, so that a server may come back on another port;
// agent_test.go makes the test binary itself an agent's process, which works off
// a plan (plan_test.go) and may be killed and started again at any moment.
// model_test.go is a second, sequential and independent statement of what a
// session is; check_test.go compares with it what the server shows.
//
// history_test.go has random histories of everything that there is, over every wire and with both clients; what it compares with
// is package session's fold of the log.
//
// Everything else is a story a file. Those with the build tag crash take
// minutes: make test-slow.
package e2e
