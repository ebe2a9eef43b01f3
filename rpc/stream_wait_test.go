package rpc

import "testing"

// A byte stream over a socket reads that itself; one over anything else is read as it is.
func TestAStreamReadsItsSocket(t *testing.T) {
	t.Parallel()
	for over, want := range map[string]bool{"tcp": true, "stream": false} {
		a, b := transports[over](t)
		for _, tr := range []Transport{a, b} {
			if got := tr.(*streamTransport).sock.Lends(); got != want {
				t.Errorf("%s: read as a socket: %t", over, got)
			}
			tr.Close(closeNormal, "")
		}
	}
}
