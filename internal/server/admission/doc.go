// Package admission decides how much of whom a server lets in, and counts what it refuses: the
// connections and the handshakes before them, the memory for what peers send, the tries of wrong
// refs. It collects the audit of refusals and the uses of refs, and it has the instruments and the
// faults that peers are sent.
//
// All other packages of internal/server call it. It calls none of them, and of a database it writes
// only audit rows and counts of uses (AuditStore). Whether a ref allows a call is decided in
// package authority, whether a batch in decide.Commit; a refusal is only recorded here.
//
//	address    the IP address that limits count by: a /64 for IPv6
//	handshake  a connection over HTTP that is not a WebSocket or a long answer yet
//	stranger   a peer that has shown no ref yet; all others are known
//	wrong try  an attempt with an unknown ref, or with a wrong secret
//	denial     a call or an op that was refused for lack of authority
//	use        a call or an op under a ref
//	window     Config.AuditWindow: what is counted in it makes one row of a kind
//
// # Lock order
//
// Every mutex is a leaf. pageWriter.sem, which is held over transactions, comes before them.
//
// # Bounds
//
//	connections  the limits of NewConnections, in all and per address
//	handshakes   the limits of NewHandshakes; beyond, the address with most of them loses its oldest
//	memory       the budgets of NewIntake, of strangers, of all others, and of one ref
//	wrong tries  64 delayed answers for each of 65536 addresses
//	audit        in one window 1000 single refusals, 1000 rows of counts, 10,000 rows of uses
package admission
