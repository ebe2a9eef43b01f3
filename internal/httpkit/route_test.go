package httpkit

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
)

// TestRoute asks for paths: none is redirected, and the request keeps the server's pattern.
func TestRoute(t *testing.T) {
	t.Parallel()
	mux := http.NewServeMux()
	mux.HandleFunc("/s/{id}", func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.PathValue("id"), r.URL.RawQuery) })
	mux.HandleFunc("/dir/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "dir") })
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "nothing") })
	for path, want := range map[string]string{
		"/s/a b": "a bx=1", "/s/a/": "nothing", "/dir/": "dir", "/dir/x/": "dir", "/": "nothing",
		"/s//a": "unclean", "/s/../dir/": "unclean", "//": "unclean", "/s/.": "unclean",
	} {
		r, w := httptest.NewRequest("GET", "/?x=1", nil), httptest.NewRecorder()
		r.Pattern = "/server/"
		Route(mux, w, r, path, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "unclean") })
		if w.Body.String() != want || w.Code != 200 || r.Pattern != "/server/" {
			t.Errorf("%s: %d %q by %s", path, w.Code, w.Body, r.Pattern)
		}
	}
}
