//go:build !unix

package outbox

// lockFile: no such lock here; a dead sender's lease is waited out.
func lockFile(string) (release func(), held, known bool) { return nil, false, false }
