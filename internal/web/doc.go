// Package web serves HTML pages over HTTP: /share/ID (a public share), /s/REF (a session under a
// ref), /s/REF/ID (one below it, by the ref's reach), /sessions (the sessions a space's ref may list),
// /sessions/ID (one of them, by the right manage) and the addresses below them. Package page renders the content, package console does what
// buttons ask for; package objects decides at every read and action whether it is allowed.
//
//	GET  …/          the page as of now (paint.go)
//	GET  …/?q=WORDS  what a search of the session finds (search.go)
//	GET  …/live      changes, as server-sent events (live.go) or over a WebSocket (socket.go)
//	GET  …/block     one block's HTML (block.go)
//	GET  …/more      what a page's first paint left out (more.go)
//	POST …/open      a token for a ref's secret (open.go, token.go)
//	POST …/close     the token's end
//	POST …/public    which public share a ref's session has
//	GET  …/access    who has access (access.go)
//	POST …/do        an action (action.go, package console)
//
// /s/REF, /s/REF/ID, /sessions and /sessions/ID are the same empty pages for every visitor; requested again with a token
// they show the ref's content.
//
// Readers are untrusted: the time, size and number of pages in progress are bounded, response
// headers allow nothing from outside (guard.go), and neither ids nor secrets get into the log.
//
// Words:
//
//	page       a document of a session or of a space's list, as HTML
//	paint      to render and send a session's present state
//	block      one element of a page: a message, a part, the session's info, a diff, a model
//	piece      bytes written to a reader under one deadline, at most 32 KiB of a document
//	token      what a browser presents for an opened page; ends after Config.TokenLife
//	opening    the request that exchanges a ref's secret for a token
//	position   a cursor with its event's hash, from which a stream resumes
//
// # Lock order
//
// stream.mu, then a slot of Config.Renders, then renderCache.mu. A paint takes its slot of
// Config.Paints first, then for each piece one of Config.Renders, which it returns while the
// piece is sent.
//
// # Bounds
//
//	paints in progress            Config.Paints, and Config.PaintsPerAddr of one address; searches count as such
//	pieces rendered at once       Config.Renders
//	a piece of state read         Config.PageBytes and 512 entries
//	messages and parts of a page  Config.PageBlocks
//	rendered events cached        Config.EventBytes
//	a slow reader                 Config.WriteTimeout a piece; a document also needs 16 KiB/s overall
//	tokens of a ref               Config.TokensPerRef
//	live streams                  the server's connections
package web
