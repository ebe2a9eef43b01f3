// Package refcmd has the commands about refs: what one allows (mooring redeem), where its page is (link), how others are made of
// it (share), shown (refs), ended (revoke), replaced (rotate) and bound to a key (key), and what was done under each (audit).
//
// Command mooring adds the constructors to its root; each returns a command that works in the home folder (package home). What a
// ref allows is decided by the server; here it is refused only what no server would take, so that a mistake is told before
// anything is durable. Package readcmd shows a session's grant as redeem does (ShowGrant).
//
// Words:
//
//	grant    what a ref allows, to whom and until when (Grant)
//	tree     the refs made from a ref, and those made from these; printed depth first, in pieces (treePrinter)
//	cut      the cursor at which a revocation took effect
//	row      one of the audit: a call or an op under a ref (AuditRow); the rows are a hash chain, which audit verify checks
//
// # Bounds
//
//	refs printed at once   500 (treeChunk)
//	asking for a link      30 s (linkTimeout)
package refcmd
