package webhook

// The addresses that are dialled.

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"syscall"
)

// errPrivate is the error of dialling an address that is not the internet's.
var errPrivate = errors.New("the address is a private one")

// dialControl returns a net.Dialer's Control: it is called with each address before that is dialled, so no name leads elsewhere
// after it was looked at.
func dialControl(allowPrivate bool) func(network, address string, c syscall.RawConn) error {
	return func(_, address string, _ syscall.RawConn) error {
		at, err := netip.ParseAddrPort(address)
		if err != nil || !dialable(at.Addr(), allowPrivate) {
			return errPrivate
		}
		return nil
	}
}

// dialable reports whether an address is dialled. Those of the machine's own link are never: there clouds have the machine's credentials
// (169.254.169.254).
func dialable(ip netip.Addr, allowPrivate bool) bool {
	ip = ip.Unmap().WithZone("")
	return public(ip) || allowPrivate && (ip.IsLoopback() || ip.IsPrivate() || sharedRange.Contains(ip)) && ip != awsMetadata
}

var (
	sharedRange = netip.MustParsePrefix("100.64.0.0/10") // of providers, and of private networks over the internet
	awsMetadata = netip.MustParseAddr("fd00:ec2::254")   // 169.254.169.254 over IPv6
)

// notPublic are the ranges of IANA's registries of special addresses that netip does not tell: shared, reserved and benchmark ones,
// documentation, and those that have an IPv4 address in them, which would be dialled by a gateway.
var notPublic = prefixes("0.0.0.0/8 100.64.0.0/10 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 " +
	"::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fec0::/10")

func prefixes(text string) (list []netip.Prefix) {
	for p := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

// public reports whether an address is one of the internet.
func public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	return !slices.ContainsFunc(notPublic, func(p netip.Prefix) bool { return p.Contains(ip) })
}
