// Package cli has what all of mooring's commands share: the environment of a command line and how it prints results, errors and
// progress, its exit codes, its flags and their checks, its inputs, and the files that refs are written to.
//
// Command mooring makes an Env for each command line and reports its error; the packages beside this one, which have the
// commands, print by it. Nothing here opens an outbox or calls a server: the home folder is package home's.
//
// What a command returns is its error, of package fault; the exit code follows from it: ExitUsage for fault.Usage and a
// UsageError, else ExitRefused. Results go to Env.Out alone, all else to Env.Err, so that results can be piped.
//
// Words:
//
//	result     what a command was run for: a line of text, or with --json an object on one line
//	ref file   a file that a ref is written to, whole or not at all, readable by its owner alone (RefFile)
//	position   a cursor, with the hash of its event if known: CURSOR[:HASH] (PositionFlag)
//	to clean   to remove, from text that others wrote, what a terminal would obey (SanitizeLine); JSON is escaped instead
//
// # Bounds
//
//	a file of certificates      1 MiB (MaxCertificateFile)
//	a file with a secret        4096 bytes, of a webhook (maxWebhookSecret)
//	a ref in a file             4097 bytes with its line end (refFileRoom)
//	a request's expiry          30 days (MaxRequestExpiry)
//	lines of progress           one in 2 s where there is no terminal (lineEvery)
//	a read of standard input    64 KiB at once (readChunk); ends with the command's context
package cli
