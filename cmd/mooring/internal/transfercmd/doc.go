// Package transfercmd has the commands of mooring session that move sessions between a server and files: import reads an opencode
// export or recording, a transcript or UIMessages of the AI SDK, and export writes the first and the last of these.
//
// Command mooring adds Commands to mooring session, whose home folder they share. The formats are those of packages opencode,
// transcripts and uimessage, and secrets are found by package secrets; here it is decided which format a file has, how what it
// holds becomes batches, and how an import that was killed goes on.
//
// Words:
//
//	recording   what a file holds, in the form that becomes ops (package opencode)
//	journal     the batches of an import that are durable, in the home folder's folder imports (journal.go); with it an import that
//	            is run again commits nothing twice, even when the outbox has forgotten the first time
//	chain       the hash over a batch's content and all before it, which names the batch in the journal
//
// # Lock order
//
// imports.lock of the home folder is held while an import finds or creates its session.
//
// # Bounds
//
//	a batch, a payload       as large as servers take by default (session.DefaultLimits)
//	keys asked for at once   1000 (changesPage)
package transfercmd
