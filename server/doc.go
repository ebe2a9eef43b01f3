// Package server embeds a Mooring server in a program: the database, and
// everything that serves it over Cap'n Proto, Cap'n Web and HTTP. `mooring serve` is its
// first user: flags, signals and output are all that it adds.
//
//	srv, err := server.New(ctx, server.Config{Dir: "data", Addrs: []net.Addr{ln.Addr()}})
//	defer srv.Close()
//	err = srv.Serve(ctx, ln)
//
// New opens the database, migrates it, and at the first start makes the space, whose owner's
// ref it writes to the data folder (Owner). Serve serves a listener until its context ends,
// and then drains. A program with an HTTP server of its own gives that Handler instead, at the
// root or below the path of Config.Address, and calls Close before it shuts that server down.
//
// Any number of servers may share a Postgres database; an SQLite database has one. One program
// may hold several servers, each with a folder of its own.
//
// Handler's requests meet all limits but those of net/http itself, which the program sets on
// its http.Server: the time for a request's head and body, and the number of connections that
// are no WebSocket. The package changes nothing of the process: neither signals nor the standard
// logger nor the collector's tuning.
//
// Words:
//
//	ref          sturdy ref: an id and a secret that grant access to a session or a space
//	space        the set of sessions that a server has
//	owner's ref  the ref that the first start makes, with all rights in the space
//	drain        to refuse new calls, answer those that run, and end subscriptions
//	node         package internal/server/node, which serves; internal/server/objects decides about every call
//
// # Lock order
//
// Server.mu is the only mutex. It is held while the node starts, which takes 2 seconds at most.
//
// # Bounds
//
// Limits has all of them.
package server
