// Requests from this machine.

package origin

import (
	"net"
	"net/http"
	"strings"

	"github.com/mooring-rpc/mooring/internal/loopback"
)

// proxyHeaders are the headers that show that a request was forwarded.
var proxyHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// IsLocal reports whether a request was made on this machine, and not by another site's page in a
// browser. The address alone does not show that: any page can make its browser send a POST to a
// server on its machine, and through a name that resolves there (DNS rebinding) read the answer.
func IsLocal(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !loopback.IsAddress(host) || !loopback.Is(r.Host) {
		return false
	}
	for _, name := range proxyHeaders {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	origins := r.Header.Values("Origin")
	return len(origins) == 0 || len(origins) == 1 && IsOwn(r, origins[0])
}

// ForwardedFor returns everything that proxies report about a request's origin.
func ForwardedFor(r *http.Request) string {
	var message []string
	for _, name := range proxyHeaders {
		message = append(message, r.Header.Values(name)...)
	}
	return strings.Join(message, "\n")
}
