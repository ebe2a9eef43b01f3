// Package servercmd has the commands of the machine that a server runs on: mooring serve, which runs it, and mooring admin, which
// works on its data folder or database without a server, and without a ref.
//
// Command mooring adds Serve and Admin to its root. What a flag of serve means for a server is decided here, and no more: the
// server is package server's, what admin does to a database that of packages operator and store. serve.go checks the flags and
// runs the server; listen.go has the listeners beside HTTP's, share.go opencode's share API, and cert.go and limits_file.go the
// files that are read again while the server runs (reload.go).
//
// Words:
//
//	advertise      the address that clients use, put into refs by the server
//	limit          a bound of the server with a flag of its name (limits.go), or a line of the file of --limits
//	fixed limit    one promised to clients or to net/http, which changes at the next start (fixedLimits)
//	byte stream    a listener of --capnp-listen, for peers that speak Cap'n Proto without WebSockets
//	behind a proxy listening to this machine alone, and known elsewhere (behindProxy)
//
// # Bounds
//
//	a limits file           64 KiB (maxLimitsFile)
//	a file with a key       64 KiB (maxKeyFile)
//	a file of certificates  1 MiB (cli.MaxCertificateFile)
//	a file is read again    every 20 s (reloadInterval), and at SIGHUP
//	one message in the log  10 a minute (logRepeats)
package servercmd
