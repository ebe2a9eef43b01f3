// gate: how many there may be at once, in all and from one address.

package server

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"unicode/utf8"
)

// gate counts what is in, by address. Limits of 0 let nobody in.
type gate struct {
	limit, perAddress int

	mu   sync.Mutex
	n    int
	from map[string]int
}

func newGate(limit, perAddress int) *gate {
	return &gate{limit: limit, perAddress: perAddress, from: map[string]int{}}
}

// enter lets one more of an address in, or names the limit that is met. Who was
// let in has to leave.
func (g *gate) enter(address string) (met bound) {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.n >= g.limit:
		return boundConnections
	case g.from[address] >= g.perAddress:
		return boundPerAddress
	}
	g.n++
	g.from[address]++
	return boundNone
}

func (g *gate) leave(address string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.n--
	if g.from[address]--; g.from[address] == 0 {
		delete(g.from, address)
	}
}

func (g *gate) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

// peerName is what the audit calls whoever is at the other end: an address
// without its port, or "unix". A path is nobody's business.
func peerName(remote string) string {
	if strings.HasPrefix(remote, "unix:") {
		return "unix"
	}
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	if addr, err := netip.ParseAddr(host); err == nil {
		return addr.Unmap().WithZone("").String()
	}
	if len(host) > maxPeerName || strings.ContainsRune(host, 0) || !utf8.ValidString(host) {
		return ""
	}
	return host
}

// maxPeerName bounds what a transport of somebody else's making calls its peer.
const maxPeerName = 64

// addressOf is whom a connection counts for: the address without its port. One
// holder of an IPv6 network has 2^64 of them, so those of a /64 count as one.
func addressOf(remote string) string {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		return remote
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return remote
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if network, err := addr.Prefix(64); err == nil {
			return network.String()
		}
	}
	return addr.String()
}
