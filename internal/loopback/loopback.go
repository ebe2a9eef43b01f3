// Package loopback says which names are this machine, whatever a resolver says: secrets may go there in clear, and a
// browser that names one was not led here by somebody else's name.
package loopback

import (
	"net"
	"net/netip"
	"strings"
)

// Is says whether HOST or HOST:PORT is this machine: localhost (RFC 6761, section 6.3), with a dot at its end or not, or an
// address that loops back, in brackets or not.
func Is(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.EqualFold(strings.TrimSuffix(host, "."), "localhost") || IsAddress(host)
}

// IsAddress says whether a host is an address that loops back; a name never is.
func IsAddress(host string) bool {
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}
