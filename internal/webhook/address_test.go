package webhook

import (
	"net/netip"
	"strings"
	"testing"
)

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
