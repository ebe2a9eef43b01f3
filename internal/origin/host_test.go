package origin

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

func TestHosts(t *testing.T) {
	t.Parallel()
	h := Hosts{Names: []string{"pages.example:443", "[2001:db8::1]:7600", "devbox"}, Patterns: []string{"app.example", "*.wide.example:8443", "https://tls.example"}}
	answer := func(local, host string) *httptest.ResponseRecorder {
		r, w := httptest.NewRequest("GET", "/", nil), httptest.NewRecorder()
		r.Host = host
		if local != "" {
			addr, err := net.ResolveTCPAddr("tcp", local)
			if err != nil {
				t.Fatal(err)
			}
			r = r.WithContext(context.WithValue(r.Context(), http.LocalAddrContextKey, net.Addr(addr)))
		}
		h.Guard(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })).ServeHTTP(w, r)
		return w
	}
	for host, want := range map[string]int{
		"localhost": 200, "localhost:7600": 200, "LOCALHOST:1": 200, "localhost.": 200, "127.0.0.1:7600": 200, "127.0.0.2": 200, "[::1]:7600": 200, "[::1]": 200, "": 200,
		"pages.example": 200, "PAGES.example:8443": 200, "pages.example.": 200, "[2001:db8::1]": 200, "devbox:7600": 200,
		"app.example": 200, "app.example:7600": 200, "a.wide.example:8443": 200, "tls.example": 200, "TLS.example:7600": 200,
		"evil.example": 421, "evil.example:7600": 421, "127.0.0.1.evil.example": 421, "localhost.evil.example": 421, "192.168.1.1:7600": 421, "0.0.0.0": 421,
		"a.wide.example": 421, "app.example.evil": 421, "devbox.evil.example": 421, "[::1": 200, "x y": 421, "[2001:db8::2]": 421,
	} {
		for _, local := range []string{"127.0.0.1:7600", "[::1]:7600", "[::ffff:127.0.0.1]:7600"} {
			got := answer(local, host)
			if got.Code != want {
				t.Errorf("%q at %s: %d, want %d", host, local, got.Code, want)
			}
			if got.Code == 421 && (!strings.Contains(got.Body.String(), "--advertise") || got.Header().Get("X-Content-Type-Options") != "nosniff") {
				t.Errorf("%q: %v %s", host, got.Header(), got.Body)
			}
		}
		for _, local := range []string{"192.168.1.1:7600", ""} {
			if got := answer(local, host); got.Code != 200 {
				t.Errorf("%q from elsewhere, at %q: %d", host, local, got.Code)
			}
		}
	}
}
