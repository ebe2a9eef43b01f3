package capability

// PageToken is what a browser shows for a page of a ref, in place of the ref's secret: 32 random bytes, of which the server
// keeps the hash. It is good for pages alone, for a while, and allows what the ref does.
type PageToken struct {
	Ref     string
	Hash    [32]byte
	Origin  string // of the page that it was given to, SCHEME://HOST[:PORT]
	Expires int64  // Unix ms, database clock
}
