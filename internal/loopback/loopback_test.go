package loopback

import "testing"

func TestIs(t *testing.T) {
	for host, want := range map[string]bool{
		"localhost": true, "LocalHost": true, "localhost:7600": true, "127.0.0.1": true, "127.8.9.1:80": true, "[::1]": true,
		"::1": true, "[::1]:7600": true, "[::ffff:127.0.0.1]:1": true,
		"": false, ":80": false, "0.0.0.0": false, "[::]:80": false, "10.0.0.1:80": false, "example.org": false,
		"localhost.example.org": false, "127.0.0.1.example.org": false, "localhost.": true, "LOCALHOST.:80": true, "localhost..": false, "2130706433": false, "127.1": false,
		"[localhost": true, "::ffff:8.8.8.8": false, "127.0.0.1 ": false,
	} {
		if Is(host) != want {
			t.Errorf("%q: %t", host, !want)
		}
		if IsAddress(host) && !want {
			t.Errorf("%q is an address that loops back", host)
		}
	}
	if IsAddress("localhost") || !IsAddress("::1") || IsAddress("127.0.0.1:80") {
		t.Error("a name or a port is an address, or an address is none")
	}
}
