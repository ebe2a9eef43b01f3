// Package npm tests package capnweb against the npm package capnweb on Node, in the oldest and the newest version that is
// spoken to, over WebSockets and in HTTP batches (build tag interop: it needs Node and npm, and installs the packages of
// js/package-lock.json).
//
// Both sides serve the same target: capnweb/testserver/target in Go, js/target.mjs in JavaScript. The npm package's client
// runs the scenarios of js/scenarios against its own server, as a control, and against ours; ours runs those of the
// client_*_test.go files against the npm package's server, and against ours. After each of them all tables
// of both sides must be empty while the connection still stands.
package npm
