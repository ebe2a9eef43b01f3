// Package web serves HTML pages over HTTP: /share/ID (a public share), /s/REF (a session under a
// ref), /sessions (the sessions a space's ref may list) and the addresses below them. Package
// page renders the content; package objects decides at every read whether it may be seen.
//
//	GET  …/          the page as of now (paint.go)
//	GET  …/live      changes, as server-sent events (live.go) or over a WebSocket (socket.go)
//	GET  …/block     one block's HTML (block.go)
//	POST …/open      a token for a ref's secret (open.go, token.go)
//	POST …/close     the token's end
//	POST …/public    which public share a ref's session has
//
// /s/REF and /sessions are the same empty pages for every visitor; requested again with a token
// they show the ref's content.
//
// Readers are untrusted: the time, size and number of pages in progress are bounded, response
// headers allow nothing from outside (guard.go), and neither ids nor secrets get into the log.
//
// Words:
//
//	page       a document of a session or of a space's list, as HTML
//	paint      to render and send a session's present state
//	block      one element of a page: a message, a part, the session's info, a diff, a model
//	piece      bytes written to a reader under one deadline, at most 32 KiB of a document
//	token      what a browser presents for an opened page; ends after Config.TokenLife
//	opening    the request that exchanges a ref's secret for a token
//	position   a cursor with its event's hash, from which a stream resumes
//
// # Lock order
//
// stream.mu, then a slot of Config.Renders, then renderCache.mu. A paint takes its slot of
// Config.Paints first, then for each piece one of Config.Renders, which it returns while the
// piece is sent.
//
// # Bounds
//
//	paints in progress            Config.Paints, and Config.PaintsPerAddr of one address
//	pieces rendered at once       Config.Renders
//	a piece of state read         Config.PageBytes and 512 entries
//	messages and parts of a page  Config.PageBlocks
//	rendered events cached        Config.EventBytes
//	a slow reader                 Config.WriteTimeout a piece; a document also needs 16 KiB/s overall
//	tokens of a ref               Config.TokensPerRef
//	live streams                  the server's connections
package web

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/connlimit"
	"github.com/mooring-rpc/mooring/internal/defaults"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/origin"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// Shares looks up the public shares.
type Shares interface {
	// Public returns the session that a public share shows, under its read-only ref; NotFound if
	// there is no such share. Whether the ref is alive shows when it is used.
	Public(ctx context.Context, c *objects.Caller, id string) (*objects.Capability, error)
	// PublicIDs returns the ids of the living public shares of sessions, by session.
	PublicIDs(ctx context.Context, sessions []string) (map[string]string, error)
	// LeftOut returns the synced items that a session lacks.
	LeftOut(ctx context.Context, session string) ([]capability.ShareRefusal, error)
}

// Config configures a Site. Zero times and counts take their defaults.
type Config struct {
	Log    *slog.Logger // nil discards; never gets an id or a secret
	Prefix string       // node.Config's: the path below which a proxy may serve the server
	Hosts  []string     // HOST:PORTs at which browsers reach the server, where known (--advertise)
	TLS    bool         // browsers reach it over TLS

	PageBytes     int           // state read and rendered at a time (256 KiB)
	PageBlocks    int           // messages and parts of a page (262,144), sorted by keys without values; beyond: the page has a note
	Paints        int           // paints in progress at once (256); beyond: 429
	PaintsPerAddr int           // of those to one address, an IPv6 /64 (64); behind a proxy all readers share its address
	Renders       int           // pieces read and rendered at once (8)
	EventBytes    int           // rendered events cached for other followers (16 MiB)
	Heartbeat     time.Duration // interval on a silent stream (15 s)
	WriteTimeout  time.Duration // a reader's time to take a piece of 32 KiB (30 s)
	Lease         time.Duration // how long a working agent may be silent (30 s)
	TokenLife     time.Duration // how long a page of a ref stays open in a browser (12 h)
	TokensPerRef  int           // tokens at once; beyond: the oldest is ended (1000)
}

func (c Config) withDefaults() Config {
	c.Log = cmp.Or(c.Log, slog.New(slog.DiscardHandler))
	defaults.Set(&c.PageBytes, 256<<10)
	defaults.Set(&c.PageBlocks, 1<<18)
	defaults.Set(&c.Paints, 256)
	defaults.Set(&c.PaintsPerAddr, 64)
	defaults.Set(&c.Renders, 8)
	defaults.Set(&c.EventBytes, 16<<20)
	defaults.Set(&c.TokensPerRef, 1000)
	defaults.Set(&c.Lease, 30*time.Second)
	defaults.Set(&c.Heartbeat, 15*time.Second)
	defaults.Set(&c.WriteTimeout, 30*time.Second)
	defaults.Set(&c.TokenLife, 12*time.Hour)
	return c
}

// Site serves the pages. It is safe for concurrent use.
type Site struct {
	cfg          Config
	server       *node.Server
	tokens       Tokens
	shares       Shares
	assets       http.Handler
	paintLimiter *connlimit.Limiter
	renderSlots  chan struct{}
	renderCache  *renderCache
}

// New returns the pages of a server; Mount registers them. shares may be nil: then there are no
// public shares.
func New(cfg Config, srv *node.Server, tokens Tokens, shares Shares) *Site {
	cfg = cfg.withDefaults()
	return &Site{cfg: cfg, server: srv, tokens: tokens, shares: shares, assets: page.Assets(), renderSlots: make(chan struct{}, cfg.Renders),
		paintLimiter: connlimit.New(cfg.Paints, cfg.PaintsPerAddr),
		renderCache:  newRenderCache(cfg.EventBytes)}
}

// Mount registers the pages with the server, before it runs.
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

// request is one request in progress.
type request struct {
	site *Site
	w    http.ResponseWriter
	r    *http.Request
	base string // the prefix below which the browser sees the server, "" or "/prefix"
	path string // of the page, below base: /share/ID, /s/REF or /sessions

	token       string    // presented; "" for none
	tokenExpiry time.Time // set when the token was looked up
}

// route dispatches the request by path.
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
		q.routeSession(below, deeper, nil, func(c *objects.Caller) (*objects.Capability, error) { return q.publicSession(c, id) })
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
		q.routeSession(below, deeper, func() { q.openSession(id) }, func(c *objects.Caller) (*objects.Capability, error) { return q.fromToken(c, id) })
	default:
		q.notFound()
	}
}

// resolver returns the session or space that a page shows.
type resolver func(*objects.Caller) (*objects.Capability, error)

// routeSession serves a session's page and the paths below it; open is nil for one without a
// secret.
func (q *request) routeSession(below string, deeper bool, open func(), held resolver) {
	if !deeper {
		q.serveRead(func() { q.paint(held) })
		return
	}
	q.routeBelow(below, open, held)
}

// routeBelow serves a path below a page.
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

// serveRead serves a GET, which takes no body.
func (q *request) serveRead(serve func()) {
	if !q.allowMethods(http.MethodGet, http.MethodHead) {
		return
	}
	if refused := httpkit.RefuseBody(q.w, q.r); refused != nil {
		q.refuse(refused)
		return
	}
	serve()
}

// servePost serves a POST: it refuses other sites' pages.
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

// caller returns the request's caller.
func (q *request) caller() *objects.Caller {
	return q.site.server.Caller(q.r.Context(), q.r.RemoteAddr)
}

// publicSession returns the session that a public share shows.
func (q *request) publicSession(c *objects.Caller, id string) (*objects.Capability, error) {
	if q.site.shares == nil {
		return nil, fault.NotFound.With("there is no such share")
	}
	return q.site.shares.Public(q.r.Context(), c, id)
}

// maxPublicID bounds a public share's id.
const maxPublicID = 128

// isPublicID reports whether text can be a public share's id: [A-Za-z0-9_-]+.
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

// base returns the prefix below which the browser sees the server. A proxy forwards it, or strips
// it: then the requested host name tells.
func (s *Site) base(r *http.Request) string {
	if s.cfg.Prefix == "" {
		return ""
	}
	prefix := "/" + s.cfg.Prefix
	if strings.HasPrefix(r.RequestURI, prefix+"/") || origin.Named(r.Host, s.cfg.Hosts) {
		return prefix
	}
	return ""
}
