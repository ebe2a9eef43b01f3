package admission

import (
	"strings"
	"testing"
)

func TestAddressOf(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"127.0.0.1:80":            "127.0.0.1",
		"[::ffff:127.0.0.1]:80":   "127.0.0.1",
		"[2001:db8:1:2:3::4]:80":  "2001:db8:1:2::/64",
		"[2001:db8:1:2:ff::]:443": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:80":       "fe80::/64",
		"unix:/run/mooring":       "unix:/run/mooring",
		"":                        "",
	} {
		if got := AddressOf(remote); got != want {
			t.Errorf("%q counts for %q, want %q", remote, got, want)
		}
	}
}

func TestPeerNames(t *testing.T) {
	t.Parallel()
	for remote, want := range map[string]string{
		"192.0.2.1:443": "192.0.2.1", "[2001:db8::5]:1": "2001:db8::5", "[::ffff:192.0.2.1]:1": "192.0.2.1", "[fe80::1%eth0]:1": "fe80::1",
		"unix:/run/secret/place": "unix", "stream": "stream", "": "", "x\x00y": "", strings.Repeat("x", 65): "",
	} {
		if got := PeerName(remote); got != want {
			t.Errorf("%q is %q, want %q", remote, got, want)
		}
	}
}
