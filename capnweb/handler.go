// Handler: WebSockets and batches at one URL.

package capnweb

import (
	"net/http"
	"strings"
)

// Handler serves WebSockets and HTTP batches at one URL, with CORS for the accepted origins. main is called for each
// connection, after its origin was accepted, and returns the peer's main object; it may be called from many goroutines.
func Handler(main func(r *http.Request) any, cfg Config, opts AcceptOptions) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isUpgrade(r) {
			serveBatch(w, r, func() Config { return withMain(cfg, main, r) }, opts)
			return
		}
		t, err := Accept(w, r, opts)
		if err != nil {
			return
		}
		_ = NewConn(t, withMain(cfg, main, r)).Run(r.Context()) // it is logged
	})
}

func withMain(cfg Config, main func(r *http.Request) any, r *http.Request) Config {
	cfg.Main = main(r)
	return cfg
}

// isUpgrade reports whether a request asks for a WebSocket, well-formed or not.
func isUpgrade(r *http.Request) bool {
	for _, v := range r.Header.Values("Upgrade") {
		for token := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(token), "websocket") {
				return true
			}
		}
	}
	return false
}
