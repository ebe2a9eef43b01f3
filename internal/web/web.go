package web

// The site: its configuration, its routes, and what all pages look up.

import (
	"context"
	"log/slog"
	"net/http"
	"path"
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
	ListReads     int           // of 5,000 sessions each, that a search makes for one page (20); beyond: the page has a note
	EventBytes    int           // rendered events cached for other followers (16 MiB)
	Heartbeat     time.Duration // interval on a silent stream (15 s)
	WriteTimeout  time.Duration // a reader's time to take a piece of 32 KiB (30 s)
	Lease         time.Duration // how long a working agent may be silent (30 s)
	TokenLife     time.Duration // how long a page of a ref stays open in a browser (12 h)
	TokensPerRef  int           // tokens at once; beyond: the oldest is ended (1000)
}

func (c Config) withDefaults() Config {
	defaults.Fill(&c, Config{Log: slog.New(slog.DiscardHandler), PageBytes: 256 << 10, PageBlocks: 1 << 18, Paints: 256, PaintsPerAddr: 64, Renders: 8, ListReads: 20,
		EventBytes: 16 << 20, TokensPerRef: 1000, Lease: 30 * time.Second, Heartbeat: 15 * time.Second, WriteTimeout: 30 * time.Second, TokenLife: 12 * time.Hour})
	return c
}

// Site serves the pages. It is safe for concurrent use.
type Site struct {
	cfg          Config
	server       *node.Server
	tokens       Tokens
	shares       Shares
	assets       http.Handler
	mux          *http.ServeMux
	paintLimiter *connlimit.Limiter
	renderSlots  chan struct{}
	renderCache  *renderCache
}

// New returns the pages of a server; Mount registers them. shares may be nil: then there are no
// public shares.
func New(cfg Config, srv *node.Server, tokens Tokens, shares Shares) *Site {
	cfg = cfg.withDefaults()
	s := &Site{cfg: cfg, server: srv, tokens: tokens, shares: shares, assets: page.Assets(), renderSlots: make(chan struct{}, cfg.Renders),
		paintLimiter: connlimit.New(cfg.Paints, cfg.PaintsPerAddr),
		renderCache:  newRenderCache(cfg.EventBytes)}
	s.mux = s.newMux()
	return s
}

// Mount registers the pages with the server, before it runs.
func (s *Site) Mount() {
	for _, path := range []string{"/share/", "/s/", "/sessions", "/sessions/"} {
		s.server.Mount(path, s)
	}
	s.server.Mount("/assets/", http.HandlerFunc(s.serveAssets))
}

// newMux routes each path to its page, or to what is below a page.
func (s *Site) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, serve := range map[string]func(*request) error{
		"/sessions":       read((*request).serveSessions),
		"/sessions/open":  post((*request).openSpace),
		"/sessions/close": post((*request).dropToken),

		"/sessions/access": read((*request).serveAccess),
		"/sessions/do":     post((*request).serveAction),

		"/sessions/{session}/access": read((*request).serveAccess),

		"/sessions/{session}":       read((*request).serveSession),
		"/sessions/{session}/live":  read((*request).serveLive),
		"/sessions/{session}/block": read((*request).serveBlock),
		"/sessions/{session}/do":    post((*request).serveAction),

		"/share/{id}":      read((*request).serveSession),
		"/share/{id}/live": read((*request).serveLive),
		"/s/{id}":          read((*request).serveSession),
		"/s/{id}/live":     read((*request).serveLive),
		"/s/{id}/open":     post((*request).openSession),
		"/s/{id}/close":    post((*request).dropToken),
		"/s/{id}/public":   post((*request).servePublicShare),
		"/s/{id}/do":       post((*request).serveAction),
		"/s/{id}/access":   read((*request).serveAccess),

		"/share/{id}/more":         read((*request).serveMore),
		"/s/{id}/more":             read((*request).serveMore),
		"/s/{id}/{session}/more":   read((*request).serveMore),
		"/sessions/{session}/more": read((*request).serveMore),

		"/share/{id}/block": read((*request).serveBlock),
		"/s/{id}/block":     read((*request).serveBlock),

		"/s/{id}/{session}":       read((*request).serveSession),
		"/s/{id}/{session}/live":  read((*request).serveLive),
		"/s/{id}/{session}/block": read((*request).serveBlock),
		"/s/{id}/{session}/do":    post((*request).serveAction),
	} {
		kind, _, _ := strings.Cut(pattern[1:], "/")
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			q := s.newRequest(w, r)
			if err := q.serve(kind, serve); err != nil {
				q.refuse(err)
			}
		})
	}
	mux.HandleFunc("/", s.serveUnknown)
	return mux
}

// ServeHTTP implements http.Handler. The path is without the server's prefix.
func (s *Site) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.setSecurityHeaders(w, r)
	httpkit.Route(s.mux, w, r, r.URL.Path, s.serveUnknown)
}

// serveAssets serves what the pages load.
func (s *Site) serveAssets(w http.ResponseWriter, r *http.Request) {
	s.setSecurityHeaders(w, r)
	if s.newRequest(w, r).allowMethods(http.MethodGet, http.MethodHead) {
		s.assets.ServeHTTP(w, r)
	}
}

// serveUnknown serves a path that no page has.
func (s *Site) serveUnknown(w http.ResponseWriter, r *http.Request) {
	s.newRequest(w, r).refuse(errNoPage)
}

// request is one request in progress.
type request struct {
	site *Site
	w    http.ResponseWriter
	r    *http.Request
	base string // the prefix below which the browser sees the server, "" or "/prefix"
	path string // of the page, below base: /share/ID, /s/REF, /s/REF/ID, /sessions or /sessions/ID
	id   string // of the share or the ref; "" for /sessions and below

	session string // of /sessions/ID, which is managed, and of /s/REF/ID, which is reached; else ""

	resolve func(*objects.Caller) (*objects.Capability, error) // returns the session of a page

	token       string    // presented; "" for none
	tokenExpiry time.Time // set when the token was looked up
}

func (s *Site) newRequest(w http.ResponseWriter, r *http.Request) *request {
	return &request{site: s, w: w, r: r, base: s.base(r), token: r.Header.Get(tokenHeader)}
}

// serve serves a request for a page, or below one, of a kind: "sessions", "share" or "s".
func (q *request) serve(kind string, serve func(*request) error) error {
	q.id, q.session = q.r.PathValue("id"), q.r.PathValue("session")
	if kind == "share" && !isPublicID(q.id) || kind == "s" && !capability.IsSession(capability.Target(q.id)) || q.session != "" && !capability.IsSession(q.session) {
		return errNoPage
	}
	q.path = path.Join("/", kind, q.id, q.session)
	switch q.resolve = q.fromToken; {
	case kind == "share":
		q.resolve = q.publicSession
	case q.managed():
		q.resolve = q.managedSession
	case q.reached():
		q.resolve = q.reachedSession
	}
	if !q.isShare() {
		q.clearOldCookies()
	}
	return serve(q)
}

// managed reports whether the page is that of a space's session, by the right manage.
func (q *request) managed() bool { return q.session != "" && q.id == "" }

// reached reports whether the page is that of a session below the ref's own.
func (q *request) reached() bool { return q.session != "" && q.id != "" }

// isShare reports whether the page is a public share's.
func (q *request) isShare() bool { return strings.HasPrefix(q.path, "/share/") }

// serveSession writes the page of a session, or what a search of it finds; of a ref's session without
// a token the page that asks for it.
func (q *request) serveSession() error {
	switch {
	case q.token == "" && q.managed():
		return q.serveSignIn()
	case q.token == "" && !q.isShare():
		return q.serveUnlock()
	case q.r.URL.Query().Has("q"):
		return q.serveSearch()
	}
	return q.paint()
}

// read serves a GET, which takes no body. A handler's error is the answer.
func read(serve func(*request) error) func(*request) error {
	return func(q *request) error {
		if !q.allowMethods(http.MethodGet, http.MethodHead) {
			return nil
		}
		if refused := httpkit.RefuseBody(q.w, q.r); refused != nil {
			return refused
		}
		return serve(q)
	}
}

// post serves a POST: it refuses other sites' pages.
func post(serve func(*request) error) func(*request) error {
	return func(q *request) error {
		if !q.allowMethods(http.MethodPost) {
			return nil
		}
		if refused := q.checkSameOrigin(); refused != nil {
			return refused
		}
		return serve(q)
	}
}

// caller returns the request's caller.
func (q *request) caller() *objects.Caller {
	return q.site.server.Caller(q.r.Context(), q.r.RemoteAddr)
}

// managedSession returns a session of the space whose ref the token is for, by the right manage.
func (q *request) managedSession(c *objects.Caller) (*objects.Capability, error) {
	space, err := q.fromToken(c)
	if err != nil {
		return nil, err
	}
	return space.Open(q.r.Context(), q.session)
}

// reachedSession returns a session below that of the page's ref, which reaches it.
func (q *request) reachedSession(c *objects.Caller) (*objects.Capability, error) {
	above, err := q.fromToken(c)
	if err != nil {
		return nil, err
	}
	return above.OpenChild(q.r.Context(), q.session)
}

// publicSession returns the session that a public share shows.
func (q *request) publicSession(c *objects.Caller) (*objects.Capability, error) {
	if q.site.shares == nil {
		return nil, fault.NotFound.With("there is no such share")
	}
	return q.site.shares.Public(q.r.Context(), c, q.id)
}

// maxPublicID bounds a public share's id.
const maxPublicID = 128

// isPublicID reports whether text can be a public share's id: [A-Za-z0-9_-]+.
func isPublicID(text string) bool {
	return text != "" && len(text) <= maxPublicID && !strings.ContainsFunc(text, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '_' && r != '-'
	})
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
