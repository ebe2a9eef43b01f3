//go:build unix

// What the tests share: a running server on a real database behind a real socket,
// sessions in it, and a browser's ways.

package web

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/breach"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/share"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse()), goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"), highlightersClock)
}

// highlightersClock is a goroutine of the library that highlights code, which ends more than a second after its last use.
var highlightersClock = goleak.IgnoreAnyFunction("github.com/dlclark/regexp2/v2.runClock")

// patience is how long a test waits for what must come.
const patience = time.Minute

// rig is a server that comes and goes, at one address.
type rig struct {
	t      testing.TB
	st     *store.Store
	dir    string
	config func(*node.Config, *Config)
	log    lockbuf.Buffer

	host   string // HOST:PORT
	owner  capability.Ref
	server *node.Server
	shares *share.Service
	stop   func() // drains; nil while it does not run
}

// start runs a server on st. change may be nil.
func start(t testing.TB, st *store.Store, change func(*node.Config, *Config)) *rig {
	t.Helper()
	r := &rig{t: t, st: st, dir: t.TempDir(), config: change, host: "127.0.0.1:0"}
	r.run()
	t.Cleanup(func() {
		if r.stop != nil {
			r.stop()
		}
	})
	return r
}

// run starts the server, again where it was.
func (r *rig) run() {
	r.t.Helper()
	ln, err := net.Listen("tcp", r.host)
	if err != nil {
		r.t.Fatal(err)
	}
	r.host = ln.Addr().String()
	if r.owner.ID == "" {
		owner, err := operator.Bootstrap(r.t.Context(), r.st, r.dir, capability.Ref{Hosts: []string{r.host}}, false)
		if err != nil {
			r.t.Fatal(err)
		}
		r.owner = readRef(r.t, owner.Path)
	}
	cfg, pages := node.DefaultConfig(), Config{Hosts: []string{r.host}}
	cfg.Store, cfg.PollInterval = r.st, 0
	cfg.Log = slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	if r.config != nil {
		r.config(&cfg, &pages)
	}
	pages.Log, cfg.Hosts = cfg.Log, append(cfg.Hosts, pages.Hosts...)
	r.server = node.New(cfg)
	r.shares = share.New(share.Config{Store: r.st, Server: r.server, Log: cfg.Log, StallTimeout: 2 * patience, PingInterval: 2 * patience})
	New(pages, r.server, r.st, r.shares).Mount()
	r.shares.Mount()
	r.server.Mount(httpapi.Path, httpapi.New(httpapi.Config{Server: r.server, Log: cfg.Log, StallTimeout: 2 * patience}))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx, ln) }()
	r.stop = func() {
		r.stop = nil
		cancel()
		select {
		case err := <-done:
			if err != nil {
				r.t.Errorf("the server ended with %v", err)
			}
		case <-time.After(patience):
			r.t.Error("the server does not end")
		}
	}
}

// me is the machine's own caller, for what tests do to sessions.
func (r *rig) me() *objects.Caller { return r.server.Caller(r.t.Context(), "127.0.0.1:1") }

// made is a session and its owner.
type made struct {
	r     *rig
	id    string
	owner capability.Ref
}

// create makes a session.
func (r *rig) create() *made {
	r.t.Helper()
	m := &made{r: r, id: capability.SessionPrefix + ulid.Make().String()}
	m.owner = r.owner.New(m.id)
	space, err := r.me().Restore(r.owner, "")
	if err != nil {
		r.t.Fatal(err)
	}
	if err := space.Create(r.t.Context(), m.id, m.owner.ID, nil, arg("ref", quoted(m.owner.ID)), arg("hash", quoted(hashText(m.owner.Secret)))); err != nil {
		r.t.Fatal(err)
	}
	return m
}

func hashText(s capability.Secret) string {
	hash := s.Hash()
	return b64(hash[:])
}

func quoted(s string) string { return fmt.Sprintf("%q", s) }

func arg(name, json string) ledger.Arg { return ledger.Arg{Name: name, JSON: []byte(json)} }

func op(method string, args ...ledger.Arg) ledger.Intent {
	return ledger.Intent{OpID: ulid.Make().String(), BatchID: ulid.Make().String(), Method: method, Args: args}
}

func put(key, payload string) ledger.Intent {
	return op(session.MethodPut, arg("key", quoted(key)), arg("payload", payload))
}

// do applies ops as the owner and gives the session's cursor.
func (m *made) do(ops ...ledger.Intent) uint64 {
	m.r.t.Helper()
	live, err := m.r.me().Restore(m.owner, "test")
	if err != nil {
		m.r.t.Fatal(err)
	}
	cursor, err := live.ApplyDirect(m.r.t.Context(), ops...)
	if err != nil {
		m.r.t.Fatal(err)
	}
	return cursor
}

// writer is an outbox's stream in the session, for what takes one.
type writer struct {
	m      *made
	stream *objects.Stream
	seq    uint64
}

// write opens a stream of a new outbox.
func (m *made) write() *writer {
	m.r.t.Helper()
	live, err := m.r.me().Restore(m.owner, "test")
	if err != nil {
		m.r.t.Fatal(err)
	}
	secret := capability.NewSecret()
	stream, err := live.OpenStream(m.r.t.Context(), "obx_"+ulid.Make().String(), secret.Reveal(), 1)
	if err != nil {
		m.r.t.Fatal(err)
	}
	return &writer{m: m, stream: stream}
}

// do applies ops as one batch and gives the session's cursor.
func (w *writer) do(ops ...ledger.Intent) uint64 {
	w.m.r.t.Helper()
	b := ledger.Batch{BatchID: ulid.Make().String(), Ops: ops}
	for i := range b.Ops {
		w.seq++
		b.Ops[i].Seq = w.seq
	}
	a, err := w.stream.Apply(w.m.r.t.Context(), b)
	if err != nil {
		w.m.r.t.Fatal(err)
	}
	for i, o := range a.Outcomes {
		if o.Status != ledger.Applied {
			w.m.r.t.Fatalf("op %d: %+v", i, o)
		}
	}
	return a.Cursor
}

// share mints a ref below the owner's.
func (m *made) share(mint capability.MintRequest) capability.Ref {
	m.r.t.Helper()
	return m.shareUnder(m.owner.ID, mint)
}

func (m *made) shareUnder(parent string, mint capability.MintRequest) capability.Ref {
	m.r.t.Helper()
	ref := m.owner.New(m.id)
	mint.ID, mint.Hash = ref.ID, ref.Secret.Hash()
	if mint.Rights == 0 {
		mint.Rights = capability.Read
	}
	if err := m.r.me().Assume(parent).Share(m.r.t.Context(), mint); err != nil {
		m.r.t.Fatal(err)
	}
	return ref
}

// publish makes a public share of the session.
func (m *made) publish() capability.PublicShare {
	m.r.t.Helper()
	top := m.share(capability.MintRequest{Rights: capability.SessionRights})
	p := capability.PublicShare{ID: b64(capability.NewSecret().Reveal()[:16]), Session: m.id, Owner: m.owner.ID, Share: top.ID,
		Reader: m.owner.New(m.id).ID, Created: time.Now().UnixMilli()}
	reader := m.shareUnder(top.ID, capability.MintRequest{})
	p.Reader = reader.ID
	if standing, err := m.r.st.PublishShare(m.r.t.Context(), p, capability.ShareRequest{Space: capability.Target(m.r.owner.ID), Fingerprint: sha256.Sum256([]byte(p.ID))}); err != nil || standing != nil && standing.ID != p.ID {
		m.r.t.Fatal(standing, err)
	}
	return p
}

// revoke ends a ref and all below it.
func (m *made) revoke(ref string) {
	m.r.t.Helper()
	if _, err := m.r.me().Assume(m.owner.ID).Revoke(m.r.t.Context(), ref, false); err != nil {
		m.r.t.Fatal(err)
	}
}

// url is where a path is.
func (r *rig) url(path string) string { return "http://" + r.host + path }

// answer is what a request got.
type answer struct {
	*http.Response
	body string
}

// browser sends requests as a browser would, of one person: what it was given a token
// for it shows it for.
type browser struct {
	t      testing.TB
	client *http.Client
	id     string            // its redemption id
	tokens map[string]string // by the page's URL
}

func newBrowser(t testing.TB) *browser {
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{t: t, id: capability.NewSecret().RevealText(), tokens: map[string]string{}, client: &http.Client{Transport: transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
}

// token is what it shows to a URL; "" for nothing.
func (b *browser) token(url string) string {
	url, _, _ = strings.Cut(url, "?")
	for page, token := range b.tokens {
		if url == page || strings.HasPrefix(url, page+"/") {
			return token
		}
	}
	return ""
}

// send sends a request with header lines "Name: value".
func (b *browser) send(method, url, body string, headers ...string) *answer {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	if token := b.token(url); token != "" {
		req.Header.Set(tokenHeader, token)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		if name == "Host" {
			req.Host = value
			continue
		}
		req.Header.Set(name, value)
	}
	res, err := b.client.Do(req)
	if err != nil {
		b.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	if len(res.Header.Values("Set-Cookie")) > 0 && req.Header.Get("Cookie") == "" {
		b.t.Errorf("%s %s sets a cookie", method, url)
	}
	breach.Check(b.t, res, string(text), slices.Collect(maps.Values(b.tokens))...)
	return &answer{res, string(text)}
}

// get asks for a page.
func (b *browser) get(url string) *answer {
	b.t.Helper()
	return b.send(http.MethodGet, url, "", "Accept: text/html,*/*;q=0.8")
}

// open opens a page by what its script would send, with this browser's redemption id.
func (b *browser) open(page, body string, headers ...string) *answer {
	b.t.Helper()
	var sent, given map[string]string
	if json.Unmarshal([]byte(body), &sent) == nil {
		sent["redemption"] = b.id
		if with, err := json.Marshal(sent); err == nil {
			body = string(with)
		}
	}
	got := b.post(page+"/open", body, headers...)
	if got.StatusCode == http.StatusOK {
		if err := json.Unmarshal([]byte(got.body), &given); err != nil || given["token"] == "" {
			b.t.Fatal(got.body, err)
		}
		b.tokens[page] = given["token"]
	}
	return got
}

// post sends what a page's own script would.
func (b *browser) post(url, body string, headers ...string) *answer {
	b.t.Helper()
	return b.send(http.MethodPost, url, body, append([]string{"Sec-Fetch-Site: same-origin", "X-Mooring: 1", "Content-Type: application/json"}, headers...)...)
}

// recordings is where opencode's traffic is.
var recordings = filepath.Join("..", "..", "testdata", "opencode")

// within is a context that ends when the test's patience does.
func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// metric is a value of the server's metrics.
func (r *rig) metric(series string) string {
	r.t.Helper()
	w := httptest.NewRecorder()
	r.server.Metrics().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	for line := range strings.Lines(w.Body.String()) {
		if value, ok := strings.CutPrefix(line, series+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	r.t.Fatalf("no metric %s", series)
	return ""
}
