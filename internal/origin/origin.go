// Package origin decides which pages of browsers may talk to a server, and by which hosts it may be called. The rule is
// the same for every endpoint: pages of the server's own host, and those of the configured origins (origin.go);
// over loopback, the server's own hosts (host.go).
package origin

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// allowed says whether the page that sent a request may: one of the server's own host, or one that fits a pattern.
// It is the rule that holds for WebSockets. Requests without an origin are not sent by pages.
func allowed(r *http.Request, patterns []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	if IsOwn(r, origin) {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	for _, pattern := range patterns {
		target := u.Host
		if strings.Contains(pattern, "://") {
			target = u.Scheme + "://" + u.Host
		}
		ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(target))
		if err != nil {
			return false
		}
		if ok {
			return true
		}
	}
	return false
}

// IsOwn reports whether an origin is of the host by which a request calls the server.
func IsOwn(r *http.Request, origin string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// exposed are the headers of answers that pages may read besides those that they always may.
const exposed = "Mooring-History, Mooring-Request, Retry-After"

// Admit says whether the page that sent a request may, and lets it read the answer if so; the caller refuses the others.
// A "simple" POST is sent by browsers without asking first, so refusing must not be left to them. Credentials (cookies)
// are never let in.
func Admit(w http.ResponseWriter, r *http.Request, patterns []string) bool {
	w.Header().Add("Vary", "Origin")
	if !allowed(r, patterns) {
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
		w.Header().Set("Access-Control-Expose-Headers", exposed)
	}
	return true
}

// IsPreflight says whether a browser asks on behalf of a page what it may send.
func IsPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header.Get("Access-Control-Request-Method") != ""
}

// Preflight answers that a page may use these methods ("GET, POST"). The origin was admitted.
func Preflight(w http.ResponseWriter, r *http.Request, methods string) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", methods)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
		h.Add("Vary", "Access-Control-Request-Headers")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
