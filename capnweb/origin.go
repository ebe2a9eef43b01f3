// Which pages of browsers may talk to a server, and how those are told so.

package capnweb

import (
	"net/http"
	"net/url"
	"path"
	"strings"
)

// originAllowed says whether the page that sent a request may: one of the server's own host, or one that fits a pattern.
// It is the rule that holds for WebSockets. Requests without an origin are not sent by pages.
func originAllowed(r *http.Request, patterns []string) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	if err != nil {
		return false
	}
	if strings.EqualFold(u.Host, r.Host) {
		return true
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

// admitOrigin refuses a request of a page that may not, else lets the page read the answer. A "simple" POST is sent by
// browsers without asking first, so refusing must not be left to them.
func admitOrigin(w http.ResponseWriter, r *http.Request, patterns []string) bool {
	w.Header().Add("Vary", "Origin")
	if !originAllowed(r, patterns) {
		http.Error(w, "this origin is not let in", http.StatusForbidden)
		return false
	}
	if origin := r.Header.Get("Origin"); origin != "" {
		w.Header().Set("Access-Control-Allow-Origin", origin)
	}
	return true
}

// answerPreflight says to a browser that a page may POST. The origin was admitted.
func answerPreflight(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Access-Control-Allow-Methods", http.MethodPost)
	if asked := r.Header.Get("Access-Control-Request-Headers"); asked != "" {
		h.Set("Access-Control-Allow-Headers", asked)
		h.Add("Vary", "Access-Control-Request-Headers")
	}
	h.Set("Access-Control-Max-Age", "600")
	w.WriteHeader(http.StatusNoContent)
}
