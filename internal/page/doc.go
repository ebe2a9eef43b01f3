// Package page renders sessions for people: HTML, its styles and its script.
//
// A session's page is written message by message while the state is read, so it is never held
// whole: Start, then Message and its Parts in the session's order (session.Document), then Rest
// and End. It can be read without JavaScript. Later changes are sent as Frames over server-sent
// events, each the HTML of one block, or text to append to one; the script (src/) inserts them at
// their keys' positions.
//
// All of a session's content is hostile. It reaches the output in two ways only: escaped by package markup,
// whose constant parts have a type that no string converts to implicitly, or from markdown
// through its sanitiser. Unknown shapes and wrong types are shown as text (package fields); nothing makes
// rendering fail. The output for one field, and the work for it, is bounded.
//
// Package web asks for what the pages show, and serves them; this package reads no store, and uses HTTP
// only in Assets. Its functions may be called concurrently, a Doc by one goroutine at a time.
//
// page.go writes a session's page, with about.go (what is true of it as a whole), contents.go and later.go (what a
// first paint leaves out); message.go, part.go, tool.go, diff.go, request.go, own.go and rest.go its blocks. list.go,
// found.go, access.go and gate.go are the other pages, in the frame of shell.go; assets.go is what browsers load.
//
// Words:
//
//	block     one element of a page with its key: a message without its parts, a part, info, the diff, a model, a
//	          value of an own kind
//	frame     a server-sent event that changes an open page
//	placing   the function that returns a new key's position on a page
//	ord       a key's position in the session's order (session.Ord)
//	turn      the work that a message begins, open until it is finalized
//	orphan    a part without its message
//	contents  the page's table of contents
//
// # Lock order
//
// The package has no locks; its variables are initialized once.
//
// # Bounds
//
//	text, code, diffs          those of package markup; highlighting 10 s a page (pageTime)
//	a list                     those of package fields
//	a value of an own kind     4000 values, 8 levels (treeValues, treeDepth); below as JSON text
//	the contents               2000 entries (contentsMax)
//	an image in the page       192 KiB (imageBytes)
package page
