package capability

// Parsing of a sturdy ref's text. No error repeats any part of the text, since it may be a secret
// in the wrong position.

import (
	"net"
	"net/netip"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// DefaultPort is a server's port where a ref has none.
const DefaultPort = "7600"

// Bounds of a ref's text.
const (
	maxRefText = 4096
	maxHosts   = 16
	maxPrefix  = 256
)

// ParseRef parses a sturdy ref's text. The resulting hosts have ports. The error is BadRefText,
// describes the flaw, and repeats nothing of the text.
func ParseRef(text string) (Ref, error) {
	if len(text) > maxRefText {
		return Ref{}, fault.BadRefText.With("the ref is longer than %d bytes", maxRefText)
	}
	r, rest, err := parseScheme(text)
	if err != nil {
		return Ref{}, err
	}
	open, secret, ok := strings.Cut(rest, "#")
	if !ok {
		return Ref{}, fault.BadRefText.With("the ref has no #SECRET: quote it in a shell, where # begins a comment")
	}
	hosts, path, ok := strings.Cut(open, "/")
	if !ok {
		return Ref{}, fault.BadRefText.With("the ref has no /ID after its hosts")
	}
	if r.Hosts, err = parseHosts(hosts, DefaultPort); err != nil {
		return Ref{}, err
	}
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		r.Prefix, path = path[:i], path[i+1:]
		if err := checkPrefix(r.Prefix); err != nil {
			return Ref{}, err
		}
	}
	if Target(path) == "" {
		return Ref{}, fault.BadRefText.With("the ref's id is not ses_… or spc_… with its tail: was the ref cut off or mistyped?")
	}
	r.ID = path
	if r.Secret, err = ParseSecret(secret); err != nil {
		return Ref{}, err
	}
	return r, nil
}

// ParseAddress parses the address of a server, without id and secret, as --advertise takes it:
// mooring(s)://HOST[:PORT][,HOST…][/PREFIX], or the same with http(s) or ws(s) and their ports. The
// error is BadRefText.
func ParseAddress(text string) (Ref, error) {
	if len(text) > maxRefText {
		return Ref{}, fault.BadRefText.With("the address is longer than %d bytes", maxRefText)
	}
	if strings.ContainsAny(text, "#?@") {
		return Ref{}, fault.BadRefText.With("an address has no user, query or fragment")
	}
	port := DefaultPort
	for _, alias := range []struct{ scheme, as, port string }{
		{"http://", "mooring://", "80"}, {"ws://", "mooring://", "80"},
		{"https://", "moorings://", "443"}, {"wss://", "moorings://", "443"},
	} {
		if rest, ok := strings.CutPrefix(text, alias.scheme); ok {
			text, port = alias.as+rest, alias.port
		}
	}
	r, rest, err := parseScheme(text)
	if err != nil {
		return Ref{}, err
	}
	hosts, prefix, _ := strings.Cut(rest, "/")
	if r.Hosts, err = parseHosts(hosts, port); err != nil {
		return Ref{}, err
	}
	if r.Prefix = strings.TrimSuffix(prefix, "/"); r.Prefix != "" {
		if err := checkPrefix(r.Prefix); err != nil {
			return Ref{}, err
		}
	}
	return r, nil
}

func parseScheme(text string) (r Ref, rest string, _ error) {
	if rest, ok := strings.CutPrefix(text, "moorings://"); ok {
		return Ref{TLS: true}, rest, nil
	}
	if rest, ok := strings.CutPrefix(text, "mooring://"); ok {
		return Ref{}, rest, nil
	}
	return Ref{}, "", fault.BadRefText.With("it does not start with mooring:// or moorings://")
}

func parseHosts(list, port string) ([]string, error) {
	parts := strings.Split(list, ",")
	if len(parts) > maxHosts {
		return nil, fault.BadRefText.With("more than %d hosts", maxHosts)
	}
	hosts := make([]string, len(parts))
	for i, p := range parts {
		h, ok := parseHost(p, port)
		if !ok {
			return nil, fault.BadRefText.With("host %d is not HOST, HOST:PORT or [IPv6]:PORT", i+1)
		}
		hosts[i] = h
	}
	return hosts, nil
}

// parseHost returns HOST:PORT in its canonical spelling.
func parseHost(text, port string) (string, bool) {
	host := text
	if inner, ok := strings.CutPrefix(text, "["); ok {
		var after string
		if host, after, ok = strings.Cut(inner, "]"); !ok {
			return "", false
		}
		ip, err := netip.ParseAddr(host)
		if err != nil || !ip.Is6() || ip.Zone() != "" {
			return "", false
		}
		host = ip.String()
		if after != "" {
			if port, ok = strings.CutPrefix(after, ":"); !ok {
				return "", false
			}
		}
	} else {
		if name, p, ok := strings.Cut(text, ":"); ok {
			host, port = name, p
		}
		if !hostName(host) {
			return "", false
		}
		host = strings.ToLower(host)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != port {
		return "", false
	}
	return net.JoinHostPort(host, port), true
}

// hostName reports whether s can be a DNS name or an IPv4 address.
func hostName(s string) bool {
	if len(s) > 253 {
		return false
	}
	for _, label := range strings.Split(s, ".") {
		if label == "" || len(label) > 63 {
			return false
		}
		for _, c := range []byte(label) {
			if !alphanumeric(c) && c != '-' && c != '_' {
				return false
			}
		}
	}
	return true
}

func checkPrefix(p string) error {
	if len(p) > maxPrefix {
		return fault.BadRefText.With("the path before the id is longer than %d bytes", maxPrefix)
	}
	for _, seg := range strings.Split(p, "/") {
		if seg == "" || seg == "." || seg == ".." {
			return fault.BadRefText.With("the path before the id has an empty or dotted segment")
		}
		for _, c := range []byte(seg) {
			if !alphanumeric(c) && !strings.ContainsRune("-_.~", rune(c)) {
				return fault.BadRefText.With("the path before the id has a character other than letters, digits, - _ . ~")
			}
		}
	}
	return nil
}

func alphanumeric(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}
