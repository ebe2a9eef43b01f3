// Package markup writes hostile text as HTML. It is the only writer of HTML: text reaches the output escaped, or as
// markdown through the sanitiser; constant parts have the type HTML, to which no string converts implicitly.
//
// Package page calls it, and package fields for labels. It touches nothing but the text that it is given, knows no
// session and no JSON, and nothing makes it fail. Its functions may be called concurrently, an Out by one goroutine at
// a time.
//
// out.go escapes, limits.go truncates, numbers.go has figures and times, markdown.go and code.go texts of people and
// programs, diff.go changed lines.
//
//	block   what one Out collects until its Reset: the bounds of work are a block's
//	clean   of text: without control characters and broken UTF-8
//	prose   markdown that may still grow: what is not settled is written as it is
//	hunk    a piece of a unified diff
//
// # Lock order
//
// The package has no locks; its variables are initialized once.
//
// # Bounds
//
//	one field shown   256 KiB (ShownBytes)
//	a label           160 bytes (LabelBytes)
//	markdown          96 KiB (markdownBytes), and the costs checked by costly
//	highlighting      24 KiB of code, 100 ms a block (CodeTime)
//	diffs             1500 lines a block; texts of 512 KiB are compared
package markup
