package capability

// PageToken is a browser's credential for a page of a ref, in place of the ref's secret: 32 random
// bytes, of which the server stores the hash. It is valid for pages alone, until Expires, and
// permits what the ref does.
type PageToken struct {
	Ref     string
	Hash    [32]byte
	Origin  string // of the page that it was issued to, SCHEME://HOST[:PORT]
	Expires int64  // Unix ms, database clock
}
