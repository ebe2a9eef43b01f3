// Config: the settings of a Server, and the names by which clients call it.

package server

import (
	"log/slog"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/mcpserver"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
)

// Config configures a Server. Dir is required, and Address or Addrs; every other zero field
// takes its default.
type Config struct {
	// Dir is the data folder, which is made if needed. It holds owner.ref, the owner's ref
	// that the first start makes, and the SQLite database, unless DatabaseURL names another.
	Dir string
	// DatabaseURL names a Postgres database, postgres://…, which any number of servers may
	// share.
	DatabaseURL string
	// DatabaseConnections is the number of connections that are kept with Postgres, at least
	// 3. By default they are opened as they are needed: four for each processor and one, but
	// nine at least.
	DatabaseConnections int
	// AllowUnsafeDatabase accepts a Postgres that is set to lose commits (fsync or
	// synchronous_commit off).
	AllowUnsafeDatabase bool

	// Address is where clients reach the server, mooring[s]://HOST[:PORT][,HOST…][/PREFIX];
	// refs that it makes name it. The paths below PREFIX are those of the root, so that a
	// proxy, or the program's mux, may pass them on. By default it is the first of Addrs.
	Address string
	// Addrs are the addresses of the listeners. Clients may call the server by them too.
	Addrs []net.Addr
	// TLS says that the listeners are TLS's: the default of Address begins with moorings.
	TLS bool
	// Hosts are more names, HOST:PORT, by which clients call the server. Sealed refs are
	// redeemed under names in Address, Addrs and Hosts alone, and requests over loopback are
	// served under these and localhost.
	Hosts []string
	// Origins are the browser origins let in besides the server's own host: host, host:port,
	// *.host or https://host.
	Origins []string

	// Log gets no secrets. By default nothing is logged.
	Log *slog.Logger
	// Name is what the server calls itself, in hello and in its metrics: NAME/VERSION. By
	// default it is mooring.
	Name string

	// PollInterval is how often Postgres is looked at for other servers' commits: by default
	// every second. Below 0 notifications alone are relied on.
	PollInterval time.Duration
	// DrainTimeout is how long stopping may take: by default 10 seconds. Calls that run have
	// three quarters of it.
	DrainTimeout time.Duration
	// DrainDelay is for how long a server that is to stop goes on serving, with /readyz saying
	// 503, before it drains: time for a balancer to see that.
	DrainDelay time.Duration
	// TurnLease is how long a streaming turn may be silent before it counts as interrupted: by
	// default 30 seconds.
	TurnLease time.Duration
	// KeepLog is for how long events stay in the logs. By default they stay for good.
	KeepLog time.Duration
	// KeepDeleted is for how long the events, streams and refs of deleted sessions stay, whose
	// payloads are gone at once: by default 90 days. Below 0 they stay for good.
	KeepDeleted time.Duration
	// PageLife is how long a page that was opened by a ref's link stays open in a browser: by
	// default 12 hours.
	PageLife time.Duration

	// PublicURL begins the addresses of opencode's shares: https://HOST[/PREFIX]. By default
	// they begin with Address, or, without one, with the host that a request names.
	PublicURL string
	// ShareKey lets opencode share from anywhere, and lists all shares: at least 16 characters.
	// By default there is no such key.
	ShareKey string
	// ShareLoopback lets opencode on this machine share without a key. A proxy on this machine
	// makes everybody a caller from it.
	ShareLoopback bool

	// Webhooks lets the owners of sessions register webhooks, which the server calls. WebhooksAllowPrivate lets these be at addresses that
	// are not the internet's, such as this machine's and its network's, and take http.
	Webhooks, WebhooksAllowPrivate bool

	// AISDK serves sessions as chats at /api/ai/chat, which the AI SDK's useChat and DefaultChatTransport (npm package ai)
	// use as their api.
	AISDK bool
	// A2A serves the agents of sessions by A2A 1.0 at /a2a, in both of its forms over HTTP, with their card at
	// /.well-known/agent-card.json.
	A2A bool
	// MCP serves the Model Context Protocol at /mcp, to read sessions. MCPAllow names what models may do besides,
	// where their ref allows it: "append" (messages, and values of own kinds) and "ask" (prompts, questions and stops).
	MCP      bool
	MCPAllow []string

	// Limits bound the memory, the work and the storage that clients can make a server use.
	Limits Limits
}

// keepDeleted is the default of Config.KeepDeleted.
const keepDeleted = 90 * 24 * time.Hour

// DefaultConfig returns the defaults of durations and limits. A zero field means the same.
func DefaultConfig() Config {
	nodeCfg := node.DefaultConfig()
	return Config{PollInterval: nodeCfg.PollInterval, DrainTimeout: nodeCfg.DrainTimeout, TurnLease: nodeCfg.Session.Lease,
		KeepDeleted: keepDeleted, PageLife: 12 * time.Hour, Limits: DefaultLimits()}
}

// orDefault returns have, of which 0 means standard, and less means 0.
func orDefault(have, standard time.Duration) time.Duration {
	if have == 0 {
		return standard
	}
	return max(have, 0)
}

const (
	minConnections, maxConnections = 3, 10_000 // Config.DatabaseConnections

	minShareKey = 16 // bytes of Config.ShareKey
)

// Validate returns why a server cannot be configured like this, as a *fault.Error with code
// Usage that names the field. It looks at nothing but c.
func (c Config) Validate() error {
	switch {
	case c.Dir == "":
		return fault.Usage.With("Config.Dir is missing: name the data folder")
	case c.DatabaseConnections != 0 && (c.DatabaseConnections < minConnections || c.DatabaseConnections > maxConnections):
		return fault.Usage.With("Config.DatabaseConnections is a number from %d to %d", minConnections, maxConnections)
	case c.DatabaseConnections != 0 && c.DatabaseURL == "":
		return fault.Usage.With("Config.DatabaseConnections is for a Postgres: name it with Config.DatabaseURL")
	case c.WebhooksAllowPrivate && !c.Webhooks:
		return fault.Usage.With("Config.WebhooksAllowPrivate is for Config.Webhooks, which is not set")
	case len(c.MCPAllow) > 0 && !c.MCP:
		return fault.Usage.With("Config.MCPAllow is for Config.MCP, which is not set")
	case c.ShareKey != "" && len(c.ShareKey) < minShareKey:
		return fault.Usage.With("the key of Config.ShareKey is shorter than %d characters: make one with openssl rand -base64 24", minShareKey)
	}
	if err := mcpserver.CheckAllow(c.MCPAllow, mcpserver.AllowAppend, mcpserver.AllowAsk); err != nil {
		return fault.Usage.Because(err, "Config.MCPAllow: %v", err)
	}
	for _, origin := range c.Origins {
		if !isOrigin(origin) {
			return fault.Usage.With("Config.Origins %q is neither HOST[:PORT] nor SCHEME://HOST[:PORT], with * for any part of the host", origin)
		}
	}
	if c.Address != "" {
		if _, err := c.address(); err != nil {
			return err
		}
	}
	if at, err := url.Parse(c.PublicURL); c.PublicURL != "" && (err != nil || at.Host == "" || at.Scheme != "http" && at.Scheme != "https") {
		return fault.Usage.With("Config.PublicURL is not http://HOST or https://HOST with an optional path")
	}
	if err := postgres.CheckURL("Config.DatabaseURL", c.DatabaseURL); err != nil {
		return err
	}
	return c.Limits.Validate()
}

// isOrigin reports whether a pattern can match a page's origin.
func isOrigin(pattern string) bool {
	host := pattern
	if scheme, rest, ok := strings.Cut(pattern, "://"); ok {
		if host = rest; scheme == "" || strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789+-.*") != "" {
			return false
		}
	}
	_, err := path.Match(host, "")
	return err == nil && host != "" && !strings.ContainsFunc(host, func(r rune) bool {
		return r <= ' ' || r == '/' || r == '#' || r == '@' || r == 0x7f
	})
}

// address returns where clients reach the server.
func (c *Config) address() (capability.Ref, error) {
	switch {
	case c.Address != "":
		address, err := capability.ParseAddress(c.Address)
		if err != nil {
			return address, fault.Usage.Because(err, "Config.Address: %v", err)
		}
		if address.Prefix == "api" {
			return address, fault.Usage.With("Config.Address: a server cannot be below /api, where its own API is: use another path")
		}
		return address, nil
	case len(c.Addrs) == 0:
		return capability.Ref{}, fault.Usage.With("Config.Address and Config.Addrs are missing: give the address at which clients reach the server")
	}
	return capability.Ref{TLS: c.TLS, Hosts: []string{reachableAt(c.Addrs[0])}}, nil
}

// reachableAt returns a HOST:PORT at which this machine reaches a listener.
func reachableAt(addr net.Addr) string {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := ap.Addr().Unmap()
	if ip.IsUnspecified() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.AddrPortFrom(ip, ap.Port()).String()
}

// audiences returns the HOST:PORTs by which clients may address a server: those in its refs, those
// of Config.Hosts, and those it listens at.
func audiences(advertised, more []string, listening []net.Addr) []string {
	own := slices.Concat(advertised, more)
	for _, addr := range listening {
		at, err := netip.ParseAddrPort(reachableAt(addr))
		if err != nil { // a Unix socket: its clients use their ref's address
			continue
		}
		own = append(own, at.String())
		if at.Addr().IsLoopback() {
			own = append(own, net.JoinHostPort("localhost", strconv.Itoa(int(at.Port()))))
		}
	}
	return own
}

// ownHosts returns the hosts by which this machine's clients address the server: its audiences,
// and this machine's name, which may resolve to loopback.
func ownHosts(audiences []string) []string {
	own := slices.Clone(audiences)
	if name, err := os.Hostname(); err == nil && name != "" {
		own = append(own, name)
	}
	return own
}
