//go:build unix

package main

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
)

// A page of somebody else's whose name was made to lead to this machine reaches nothing, whatever it asks for: to the browser
// it is of the server's own origin, so nothing else would stop it.
func TestServeAnswersToItsOwnNames(t *testing.T) {
	t.Parallel()
	all := startServe(t, t.TempDir(), "--metrics-listen", "127.0.0.1:0", "--advertise", "mooring://pages.example/tools", "--allow-origin", "https://app.example")
	// Listening on all interfaces makes no difference to who comes over loopback.
	wide := startServe(t, t.TempDir(), "--listen", "0.0.0.0:0")
	ctx, cancel := context.WithTimeout(context.Background(), servePatience)
	defer cancel()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ask := func(method, address, path, host string, headers ...string) (status int, body string) {
		t.Helper()
		req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		for _, h := range headers {
			name, value, _ := strings.Cut(h, ": ")
			req.Header.Set(name, value)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if res.StatusCode == http.StatusSwitchingProtocols {
			return res.StatusCode, ""
		}
		text, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(text)
	}
	socket := []string{"Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="}
	port := wide.banner.Listening[strings.LastIndexByte(wide.banner.Listening, ':')+1:]
	wideAddress := "127.0.0.1:" + port
	for _, c := range []struct {
		method, path string
		headers      []string
		own          int // what is answered to a name of its own
	}{
		{"GET", "/capnp", socket, 101},
		{"GET", "/rpc", socket, 101},
		{"POST", "/rpc", nil, 200},
		{"GET", "/rpc/share", socket, 101},
		{"POST", "/rpc/share", nil, 200},
		{"GET", "/ws/x", socket, 404},
		{"POST", "/api/share", nil, 400},
		{"POST", "/api/v1/spaces/x/sessions", nil, 401},
		{"GET", "/api/v1/openapi.json", nil, 200},
		{"GET", "/sessions", nil, 200},
		{"GET", "/share/x", nil, 404},
		{"GET", "/assets/x", nil, 404},
		{"GET", "/healthz", nil, 200},
		{"GET", "/readyz", nil, 200},
		{"GET", "/", nil, 404},
	} {
		for _, address := range []string{all.banner.Listening, wideAddress} {
			for _, foreign := range []string{"evil.example", "evil.example:" + port, "127.0.0.1.evil.example", "192.168.1.1"} {
				status, body := ask(c.method, address, c.path, foreign, append([]string{"Origin: http://" + foreign, "Sec-Fetch-Site: same-origin"}, c.headers...)...)
				if status != http.StatusMisdirectedRequest || !strings.Contains(body, "--advertise") {
					t.Errorf("%s %s at %s, called %s: %d %s", c.method, c.path, address, foreign, status, body)
				}
			}
			own := []string{"localhost", "LOCALHOST:1", "[::1]", ""}
			if address == all.banner.Listening {
				own = append(own, "pages.example", "app.example:8443")
			}
			for _, host := range own {
				if status, body := ask(c.method, address, c.path, host, c.headers...); status != c.own {
					t.Errorf("%s %s at %s, called %q: %d %s, want %d", c.method, c.path, address, host, status, body, c.own)
				}
			}
		}
	}
	metrics := strings.TrimSuffix(strings.TrimPrefix(all.banner.Metrics, "http://"), "/metrics")
	for host, want := range map[string]int{"localhost": 200, metrics: 200, "evil.example": 421} {
		if status, _ := ask("GET", metrics, "/metrics", host); status != want {
			t.Errorf("metrics, called %s: %d, want %d", host, status, want)
		}
	}
}
