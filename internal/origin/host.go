// Hosts by which a server may be called: none of somebody else's whose name leads to this machine (DNS rebinding).

package origin

import (
	"net"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/loopback"
)

// Hosts are the names by which a server is called besides those of loopback.
type Hosts struct {
	Names    []string // HOST or HOST:PORT; any port will do
	Patterns []string // of browser origins that are let in, which a proxy may serve with the server under one name
}

// unknownHost is the answer to a request for another's host.
const unknownHost = "this server does not know the name it was called by, and a page of somebody else's could have made that name lead here:\n" +
	"call the server localhost, or set its address to the name that people use (mooring serve --advertise, or server.Config.Address)\n"

// Guard refuses what was sent over loopback to a host that is none of the server's, before next sees anything of it. A
// browser sends that for a page of somebody else's whose name was made to lead here (DNS rebinding): to the browser that page
// is of the server's own origin, so no other check holds it. What came from another machine is let through: a server on a
// network cannot know all its names, and who reaches it there needs no browser's help.
func (h Hosts) Guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !h.allows(r) {
			w.Header().Set("X-Content-Type-Options", "nosniff")
			httpkit.WriteText(w, http.StatusMisdirectedRequest, unknownHost)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// allows says whether a request may have been meant for the server. Browsers always name a host.
func (h Hosts) allows(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if local == nil || !loopback.Is(local.String()) || r.Host == "" || loopback.Is(r.Host) || Named(r.Host, h.Names) {
		return true
	}
	for _, pattern := range h.Patterns {
		_, host, schemed := strings.Cut(pattern, "://")
		if !schemed {
			host = pattern
		}
		if matches(host, r.Host) || matches(host, hostOf(r.Host)) {
			return true
		}
	}
	return false
}

func matches(pattern, host string) bool {
	ok, err := path.Match(strings.ToLower(pattern), strings.ToLower(host))
	return ok && err == nil
}

// Named says whether HOST or HOST:PORT names the host, with any port, of one of names.
func Named(host string, names []string) bool {
	host = hostOf(host)
	return slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(hostOf(name), host) })
}

// hostOf returns HOST or HOST:PORT without its port, an address's brackets, or a dot at a name's end.
func hostOf(hostport string) string {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.TrimSuffix(strings.TrimPrefix(hostport, "["), "]")
	}
	return strings.TrimSuffix(host, ".")
}
