package capability

// Sturdy refs in the form that people and files have:
//
//	mooring://HOST[:PORT][,HOST…][/PREFIX]/ID#SECRET
//
// and moorings:// over TLS. The text is a bearer secret: only Text returns it, all other formatting
// of a Ref leaves the secret out.

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/loopback"
)

// Ref is a sturdy ref with the addresses of its servers. A Ref without ID and Secret is only an
// address (ParseAddress).
type Ref struct {
	TLS    bool
	Hosts  []string // HOST:PORT each, IPv6 in brackets; tried in turn
	Prefix string   // path below which the server is mounted, without slashes at its ends
	ID     string   // TARGET.TAIL
	Secret Secret
}

// New returns a new ref for target at r's address. It needs no server.
func (r Ref) New(target string) Ref {
	s := NewSecret()
	return r.With(DeriveID(target, s), s)
}

// NewSealed is New for a ref that will be bound to a key.
func (r Ref) NewSealed(target string) Ref {
	s := NewSecret()
	return r.With(DeriveSealedID(target, s), s)
}

// With returns r with another id and secret.
func (r Ref) With(id string, s Secret) Ref {
	r.Hosts = append([]string(nil), r.Hosts...)
	r.ID, r.Secret = id, s
	return r
}

// Target returns the session or space the ref is for; "" for an address.
func (r Ref) Target() string { return Target(r.ID) }

// Text returns the ref's whole text, including the secret. Its holder has the capability: write it
// only to files of mode 0600 and to the user who asked for it.
func (r Ref) Text() string { return r.public() + "#" + r.Secret.RevealText() }

// WebAddress returns the address for browsers, of the first host: http[s]://HOST[:PORT][/PREFIX].
func (r Ref) WebAddress() string {
	scheme, standard := "http://", "80"
	if r.TLS {
		scheme, standard = "https://", "443"
	}
	host := r.Hosts[0]
	if name, port, err := net.SplitHostPort(host); err == nil && port == standard {
		if host = name; strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	if r.Prefix != "" {
		host += "/" + r.Prefix
	}
	return scheme + host
}

// Address returns the text without id and secret: mooring://HOST[,HOST…][/PREFIX].
func (r Ref) Address() string {
	var b strings.Builder
	b.WriteString("mooring")
	if r.TLS {
		b.WriteByte('s')
	}
	b.WriteString("://")
	for i, h := range r.Hosts {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strings.TrimSuffix(h, ":"+DefaultPort))
	}
	if r.Prefix != "" {
		b.WriteByte('/')
		b.WriteString(r.Prefix)
	}
	return b.String()
}

// public returns the text without the secret.
func (r Ref) public() string { return r.Address() + "/" + r.ID }

// URLs returns the WebSocket endpoints to dial, one for each host, in order.
func (r Ref) URLs() []string {
	scheme, path := "ws://", "/capnp"
	if r.TLS {
		scheme = "wss://"
	}
	if r.Prefix != "" {
		path = "/" + r.Prefix + path
	}
	urls := make([]string, len(r.Hosts))
	for i, h := range r.Hosts {
		urls[i] = scheme + h + path
	}
	return urls
}

// ClearTextHost returns the first host that would get the secret unencrypted over a network: one
// that is not loopback, without TLS. "" if there is none.
func (r Ref) ClearTextHost() string {
	if r.TLS {
		return ""
	}
	for _, h := range r.Hosts {
		if !loopback.Is(h) {
			return h
		}
	}
	return ""
}

// CheckPlaintext returns a Plaintext fault if the secret would be sent unencrypted to any host
// except loopback, unless allowed. Clients call it before they dial.
func (r Ref) CheckPlaintext(allowed bool) error {
	if h := r.ClearTextHost(); h != "" && !allowed {
		return fault.Plaintext.With("this would send a secret in clear to %s: use a moorings:// ref, or say that plain text is allowed", h)
	}
	return nil
}

// String returns the text with a placeholder for the secret, like all methods below.
func (r Ref) String() string {
	if r.ID == "" {
		return r.Address()
	}
	return r.public() + "#" + redacted
}

// GoString returns String.
func (r Ref) GoString() string { return r.String() }

// Format prints String for every verb.
func (r Ref) Format(f fmt.State, _ rune) { _, _ = f.Write([]byte(r.String())) }

// LogValue returns String.
func (r Ref) LogValue() slog.Value { return slog.StringValue(r.String()) }

// MarshalText returns String, which ParseRef refuses: a ref is stored by its Text.
func (r Ref) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// MarshalJSON returns String, which ParseRef refuses: a ref is stored by its Text.
func (r Ref) MarshalJSON() ([]byte, error) { return json.Marshal(r.String()) }
