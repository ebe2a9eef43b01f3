package webhook

import (
	"net/netip"
	"strings"
	"testing"
)

// What is dialled where private addresses are allowed: the machine's own network, and never its link, where clouds have its credentials.
func TestAllowedAddresses(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]bool{
		"1.1.1.1": {true, true}, "127.0.0.1": {false, true}, "10.1.2.3": {false, true}, "::ffff:192.168.1.1": {false, true}, "100.64.0.1": {false, true}, "fd12::1": {false, true}, "::1": {false, true},
		"169.254.169.254": {}, "::ffff:169.254.169.254": {}, "fe80::1%eth0": {}, "fd00:ec2::254": {}, "0.0.0.0": {}, "224.0.0.1": {}, "::": {}, "192.0.2.1": {},
	} {
		ip := netip.MustParseAddr(text)
		if got := [2]bool{dialable(ip, false), dialable(ip, true)}; got != want {
			t.Errorf("%s is dialled: %v, and not %v", text, got, want)
		}
		url := "https://" + netip.AddrPortFrom(ip.WithZone(""), 8443).String() + "/hook"
		if got := [2]bool{CheckURL(url, false, AllowedByWatch) == nil, CheckURL(url, true, "") == nil}; got != want {
			t.Errorf("%s is taken: %v, and not %v", url, got, want)
		}
	}
}

func TestPublicAddresses(t *testing.T) {
	t.Parallel()
	for _, text := range strings.Fields("127.0.0.1 10.0.0.1 172.16.0.1 192.168.1.1 169.254.169.254 100.64.0.1 0.0.0.0 255.255.255.255 224.0.0.1 198.18.0.1 192.0.2.1 " +
		"::1 :: fe80::1%eth0 fc00::1 fd12::1 ff02::1 ::ffff:10.0.0.1 ::7f00:1 64:ff9b::a00:1 2002:a00:1:: 2001:db8::1 fec0::1") {
		if public(netip.MustParseAddr(text)) {
			t.Errorf("%s is taken as public", text)
		}
	}
	for _, text := range strings.Fields("1.1.1.1 93.184.216.34 172.32.0.1 2606:4700::1111 2a00:1450::1 ::ffff:8.8.8.8") {
		if !public(netip.MustParseAddr(text)) {
			t.Errorf("%s is taken as private", text)
		}
	}
}
