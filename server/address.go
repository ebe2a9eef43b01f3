// Whom a connection is from, for the audit and for limits by address.

package server

import (
	"net"
	"net/netip"
	"strings"
	"unicode/utf8"
)

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
