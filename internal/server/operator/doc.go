// Package operator is what an operator of a server has it do, without a call of a peer: the first
// start and the owner's refs, quotas, trimming, sweeping, counting, and probing in an outage.
//
// The server runs Operator.Loops and asks the Outage whether commits succeed; package server calls
// Bootstrap, and mooring admin (package servercmd) RotateOwner and RotateSessionOwner. Package commit asks
// for quotas and reports to the Outage. This package writes rows of the database in transactions of its
// own, and the files of the owner's ref. It knows neither connections nor objects.
//
//	owner's ref  the ref with which a space, or a session, began; OwnerFile has the first space's
//	account      what all sessions made under one ref of a space hold together
//	to measure   to count a session's bytes exactly, where commits estimate
//	to trim      to remove old events from a log; the state stays
//	lapsed       a turn whose lease ran out
//	outage       commits fail, from the first probe that fails until one succeeds
//
// # Lock order
//
// Every mutex is a leaf. accountQuotas.mu is taken inside transactions (CheckQuota).
//
// # Bounds
//
//	one transaction  100 sessions swept, 100 refs audited, 500 events or 4 MiB trimmed
//	measurements     1000 sessions queued, each once in Config.MeasureInterval
//	accounts         100,000 sessions and refs cached
//	probes           16 MiB each
package operator
