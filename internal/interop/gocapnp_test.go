// Our vat and go-capnp's, over WebSockets.

package interop

import (
	"testing"

	"github.com/mooring-rpc/mooring/rpc"
)

var subprotocols = []string{rpc.SubprotocolPlain, rpc.SubprotocolMerged}

func TestGoCapnpServer(t *testing.T) {
	for _, sub := range subprotocols {
		t.Run(sub, func(t *testing.T) {
			t.Parallel()
			start := func(t *testing.T) *process { return goCapnp(t, "server", sub) }
			dial := func(t *testing.T, address string) rpc.Transport {
				tr, err := rpc.Dial(t.Context(), address, rpc.DialOptions{Subprotocols: []string{sub}})
				if err != nil {
					t.Fatal(err)
				}
				return tr
			}
			asClient(t, start, dial, true)
		})
	}
}

func TestGoCapnpClient(t *testing.T) {
	for _, sub := range subprotocols {
		t.Run(sub, func(t *testing.T) {
			t.Parallel()
			start := func(t *testing.T, address string) *process { return goCapnp(t, "client", sub, address) }
			asServer(t, start, listenWebSocket)
		})
	}
}
