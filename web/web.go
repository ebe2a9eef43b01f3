// Package web serves people's pages over HTTP: /share/ID (a public share),
// /s/REF (a session under a ref), /sessions (what a space's ref may list) and what
// belongs to them. What stands in the pages is
// package page's; what may be seen is decided by package server at every read.
//
//	GET  …/          the page, as far as it is there (paint.go)
//	GET  …/live      what changes, as server-sent events (live.go) or over a WebSocket (socket.go)
//	GET  …/block     one block's HTML (block.go)
//	POST …/open      a token for a ref's secret (open.go, token.go)
//	POST …/close     the token's end
//	POST …/public    which public share a ref's session has
//
// /s/REF and /sessions are the same empty pages for everybody; who asks for them again with
// a token gets what the ref shows.
//
// Pages are for strangers: their time, their size and how many are made at once
// are bounded, their headers let nothing in from outside (guard.go), and neither
// ids nor secrets get into the log.
package web

import (
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/connlimit"
	"github.com/mooring-rpc/mooring/internal/hostguard"
	"github.com/mooring-rpc/mooring/page"
	"github.com/mooring-rpc/mooring/server"
)

// Shares are the public shares.
type Shares interface {
	// Public is the session that a public share shows, as its read-only ref does;
	// NotFound if there is no such share. Whether it is alive, its use says.
	Public(ctx context.Context, c *server.Caller, id string) (*server.Capability, error)
	// PublicIDs gives the ids of the living public shares of sessions, by session.
	PublicIDs(ctx context.Context, sessions []string) (map[string]string, error)
	// LeftOut says what was synced to a session and is not in it.
	LeftOut(ctx context.Context, session string) ([]capability.ShareRefusal, error)
}

// Config says what the pages are told from outside. Zero times and counts take
// their defaults.
type Config struct {
	Log    *slog.Logger // nil discards; never gets an id or a secret
	Prefix string       // server.Config's: the path below which a proxy may serve everything
	Hosts  []string     // HOST:PORTs at which people reach the server, where they are known (--advertise)
	TLS    bool         // they do so over TLS

	PageBytes     int           // state that is read and rendered at a time (256 KiB)
	PageBlocks    int           // messages and parts of a page (262,144): they are put in order without their values; beyond: it says so
	Paints        int           // sessions' pages on their way at once (256); beyond: 429
	PaintsPerAddr int           // of those to one address, an IPv6 /64 (64); behind a proxy all readers have the proxy's
	Renders       int           // pieces that are read and rendered at once (8)
	EventBytes    int           // rendered events that are kept for others who follow (16 MiB)
	Heartbeat     time.Duration // of a silent stream (15 s)
	WriteTimeout  time.Duration // a reader's time to take a piece of 32 KiB (30 s)
	Lease         time.Duration // so long may an agent that is at work be silent (30 s)
	TokenLife     time.Duration // how long a page of a ref stays open in a browser (12 h)
	TokensPerRef  int           // how often at once; beyond: the oldest is ended (1000)
}

func (c Config) withDefaults() Config {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	for _, f := range []struct {
		have *int
		want int
	}{{&c.PageBytes, 256 << 10}, {&c.PageBlocks, 1 << 18}, {&c.Paints, 256}, {&c.PaintsPerAddr, 64}, {&c.Renders, 8}, {&c.EventBytes, 16 << 20}, {&c.TokensPerRef, 1000}} {
		if *f.have <= 0 {
			*f.have = f.want
		}
	}
	for _, f := range []struct {
		have *time.Duration
		want time.Duration
	}{{&c.Lease, 30 * time.Second}, {&c.Heartbeat, 15 * time.Second}, {&c.WriteTimeout, 30 * time.Second}, {&c.TokenLife, 12 * time.Hour}} {
		if *f.have <= 0 {
			*f.have = f.want
		}
	}
	return c
}

// Site serves the pages. It is safe for concurrent use.
type Site struct {
	cfg          Config
	server       *server.Server
	tokens       Tokens
	shares       Shares
	assets       http.Handler
	paintLimiter *connlimit.Limiter
	renderSlots  chan struct{}
	renderCache  *renderCache
}

// New makes the pages of a server; Mount puts them there. shares may be nil: then
// there are none.
func New(cfg Config, srv *server.Server, tokens Tokens, shares Shares) *Site {
	cfg = cfg.withDefaults()
	return &Site{cfg: cfg, server: srv, tokens: tokens, shares: shares, assets: page.Assets(), renderSlots: make(chan struct{}, cfg.Renders),
		paintLimiter: connlimit.New(cfg.Paints, cfg.PaintsPerAddr),
		renderCache:  newRenderCache(cfg.EventBytes)}
}

// Mount puts the pages into the server, before it runs.
func (s *Site) Mount() {
	for _, path := range []string{"/share/", "/s/", "/sessions", "/sessions/", "/assets/"} {
		s.server.Mount(path, s)
	}
}

// ServeHTTP implements http.Handler. The path is without the server's prefix.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.setSecurityHeaders(w, r)
	q := &request{site: s, w: w, r: r, base: s.base(r), token: r.Header.Get(tokenHeader)}
	q.route()
}

// request is one request on its way.
type request struct {
	site *Site
	w    http.ResponseWriter
	r    *http.Request
	base string // the prefix below which the browser sees the server, "" or "/prefix"
	path string // of the page, below base: /share/ID, /s/REF or /sessions

	token       string    // that is shown
	tokenExpiry time.Time // when it ends, once it was looked up
}

// route finds what is asked for.
func (q *request) route() {
	kind, rest, _ := strings.Cut(strings.TrimPrefix(q.r.URL.Path, "/"), "/")
	switch kind {
	case "assets":
		if q.allowMethods(http.MethodGet, http.MethodHead) {
			q.site.assets.ServeHTTP(q.w, q.r)
		}
	case "sessions":
		q.path = "/sessions"
		q.clearOldCookies()
		if q.r.URL.Path == "/sessions" {
			q.serveRead(q.serveSessions)
			return
		}
		q.routeBelow(rest, q.openSpace, nil)
	case "share":
		id, below, deeper := strings.Cut(rest, "/")
		if !isPublicID(id) {
			q.notFound()
			return
		}
		q.path = "/share/" + id
		q.routeSession(below, deeper, nil, func(c *server.Caller) (*server.Capability, error) { return q.publicSession(c, id) })
	case "s":
		id, below, deeper := strings.Cut(rest, "/")
		if !capability.IsSession(capability.Target(id)) {
			q.notFound()
			return
		}
		q.path = "/s/" + id
		q.clearOldCookies()
		if !deeper && q.token == "" {
			q.serveRead(q.serveUnlock)
			return
		}
		q.routeSession(below, deeper, func() { q.openSession(id) }, func(c *server.Caller) (*server.Capability, error) { return q.fromToken(c, id) })
	default:
		q.notFound()
	}
}

// resolver gives what a page shows.
type resolver func(*server.Caller) (*server.Capability, error)

// routeSession serves a session's page and what is below it; open is nil for one without
// a secret.
func (q *request) routeSession(below string, deeper bool, open func(), held resolver) {
	if !deeper {
		q.serveRead(func() { q.paint(held) })
		return
	}
	q.routeBelow(below, open, held)
}

// routeBelow serves what is below a page.
func (q *request) routeBelow(name string, open func(), held resolver) {
	switch {
	case name == "live" && held != nil:
		q.serveRead(func() { q.serveLive(held) })
	case name == "block" && held != nil:
		q.serveRead(func() { q.serveBlock(held) })
	case name == "open" && open != nil:
		q.servePost(open)
	case name == "public" && open != nil && held != nil:
		q.servePost(q.servePublicShare)
	case name == "close" && open != nil:
		q.servePost(q.dropToken)
	default:
		q.notFound()
	}
}

// serveRead is for what is only looked at. It takes no body: net/http would wait for
// that before it answers, without an end where the answer has no time limit.
func (q *request) serveRead(serve func()) {
	if !q.allowMethods(http.MethodGet, http.MethodHead) {
		return
	}
	if q.r.ContentLength != 0 {
		q.w.Header().Set("Connection", "close")
		q.refuse(fault.BadArgument.With("what is read takes no body"))
		return
	}
	serve()
}

// servePost is for what changes something: other sites' pages are not let in.
func (q *request) servePost(serve func()) {
	if !q.allowMethods(http.MethodPost) {
		return
	}
	if refused := q.checkSameOrigin(); refused != nil {
		q.refuse(refused)
		return
	}
	serve()
}

// caller is who asks.
func (q *request) caller() *server.Caller {
	return q.site.server.Caller(q.r.Context(), q.r.RemoteAddr)
}

// publicSession is what a public share shows.
func (q *request) publicSession(c *server.Caller, id string) (*server.Capability, error) {
	if q.site.shares == nil {
		return nil, fault.NotFound.With("there is no such share")
	}
	return q.site.shares.Public(q.r.Context(), c, id)
}

// maxPublicID bounds a public share's id.
const maxPublicID = 128

// isPublicID says whether text can be a public share's id: [A-Za-z0-9_-]+.
func isPublicID(text string) bool {
	if text == "" || len(text) > maxPublicID {
		return false
	}
	for _, c := range []byte(text) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' && c != '-' {
			return false
		}
	}
	return true
}

// base is the prefix below which the browser sees the server. A proxy hands it on
// as it is, or takes it off: then the name that the browser asked for tells.
func (s *Site) base(r *http.Request) string {
	if s.cfg.Prefix == "" {
		return ""
	}
	prefix := "/" + s.cfg.Prefix
	if strings.HasPrefix(r.RequestURI, prefix+"/") || hostguard.Named(r.Host, s.cfg.Hosts) {
		return prefix
	}
	return ""
}
