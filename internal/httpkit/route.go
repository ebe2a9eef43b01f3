// Routing within a handler that a server has mounted.

package httpkit

import (
	"net/http"
	"net/url"
	"path"
)

// Route has mux serve a request as one for at, a path without escapes. It differs from
// mux.ServeHTTP in two ways: the server's own pattern stays in r, since requests are counted by it;
// and a path that is not clean goes to unclean, where mux would redirect to an address that repeats
// the path, which may be a secret.
func Route(mux *http.ServeMux, w http.ResponseWriter, r *http.Request, at string, unclean http.HandlerFunc) {
	own := *r
	own.URL = &url.URL{Path: at, RawQuery: r.URL.RawQuery}
	if clean := path.Clean(at); clean != at && (clean == "/" || clean+"/" != at) {
		unclean(w, &own)
		return
	}
	mux.ServeHTTP(w, &own)
}
