// Addresses of peers, for the audit and for limits by address.

package admission

import (
	"net"
	"net/netip"
	"strings"
	"unicode/utf8"
)

// PeerName returns the name of a peer in the audit: its address without the port, or "unix". The
// path of a socket is not disclosed.
func PeerName(remote string) string {
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

// maxPeerName bounds the peer name of a foreign transport, in bytes.
const maxPeerName = 64

// AddressOf returns the address that a connection's limits count by, without its port. The
// holder of an IPv6 network has 2^64 addresses, so a /64 counts as one.
func AddressOf(remote string) string {
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
