// Request checks, and the response headers that restrict browsers.

package web

import (
	"mime"
	"net/http"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/origin"
)

// contentPolicy is the pages' Content-Security-Policy: nothing inline, nothing from outside,
// never in a frame.
const contentPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; " +
	"connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"

// permissionsPolicy switches off features that no page uses.
const permissionsPolicy = "accelerometer=(), autoplay=(), camera=(), display-capture=(), fullscreen=(), geolocation=(), gyroscope=(), " +
	"magnetometer=(), microphone=(), midi=(), payment=(), publickey-credentials-get=(), screen-wake-lock=(), usb=(), xr-spatial-tracking=()"

// setSecurityHeaders sets the headers that every answer has.
func (s *Site) setSecurityHeaders(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", permissionsPolicy)
	h.Set("Cache-Control", "private, no-store") // assets set their own
	if s.secure(r) {
		h.Set("Strict-Transport-Security", "max-age=31536000")
	}
}

// secure reports whether the browser uses TLS, to this server or to a proxy.
func (s *Site) secure(r *http.Request) bool { return r.TLS != nil || s.cfg.TLS }

// checkSameOrigin refuses a POST that is not from this server's own page: browsers send the
// page's origin, and for another site's page they send neither the header nor the content type
// without a preflight, which is never granted.
func (q *request) checkSameOrigin() *fault.Error {
	h := q.r.Header
	own := false
	switch site := h.Get("Sec-Fetch-Site"); {
	case site != "":
		own = site == "same-origin"
	default: // browsers that send no such header, and http from another machine
		own = origin.IsOwn(q.r, h.Get("Origin"))
	}
	if !own {
		return fault.Denied.With("only this server's own pages may do this: open the page itself and try there")
	}
	if h.Get("X-Mooring") != "1" {
		return fault.Denied.With("the header X-Mooring: 1 is missing")
	}
	if kind, _, err := mime.ParseMediaType(h.Get("Content-Type")); err != nil || kind != "application/json" {
		return fault.BadArgument.With("the content type must be application/json")
	}
	return nil
}

// allowMethods refuses a method that is not among methods, and reports whether it is.
func (q *request) allowMethods(methods ...string) bool {
	if slices.Contains(methods, q.r.Method) {
		return true
	}
	q.w.Header().Set("Allow", strings.Join(methods, ", "))
	q.writeFault(http.StatusMethodNotAllowed, fault.BadArgument.With("this address takes %s only", strings.Join(methods, " and ")))
	return false
}
