package share

// What the tests share: a running server on a real database and a real socket, with
// the API on it, and clients that talk to it as opencode does.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/breach"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse()), goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

var _ Store = (*store.Store)(nil)

// patience is how long a test waits for what must come, megabytes under -race too.
const patience = time.Minute

// fullStore is what both the server and the API need.
type fullStore interface {
	node.Store
	operator.SessionRescueStore
	Store
}

// rig is a running server with the API.
type rig struct {
	t       *testing.T
	store   fullStore
	server  *node.Server
	service *Service
	owner   capability.Ref
	addr    string // HOST:PORT
	log     *lockbuf.Buffer
	stop    func() // drains; further calls do nothing
}

// settings may be changed before a rig starts.
type settings struct {
	share  Config
	server node.Config
}

const testKey = "a key for the tests, quite long"

// start runs a server until the test ends. change may be nil.
func start(t *testing.T, st fullStore, change func(*settings)) *rig {
	t.Helper()
	dir := t.TempDir()
	if _, err := operator.Bootstrap(t.Context(), st, dir, capability.Ref{Hosts: []string{"127.0.0.1:7600"}}, false); err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t, store: st, log: &lockbuf.Buffer{}}
	if text, err := os.ReadFile(filepath.Join(dir, operator.OwnerFile)); err == nil { // a second replica has none
		if r.owner, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
			t.Fatal(err)
		}
	}
	log := slog.New(slog.NewTextHandler(r.log, &slog.HandlerOptions{Level: slog.LevelDebug}))
	c := settings{share: DefaultConfig(), server: node.DefaultConfig()}
	c.server.Store, c.server.PollInterval, c.server.Log = st, 50*time.Millisecond, log
	c.share.Store, c.share.Log, c.share.Key = st, log, testKey
	if change != nil {
		change(&c)
	}
	r.server = node.New(c.server)
	c.share.Server = r.server
	r.service = New(c.share)
	r.service.Mount()
	ln, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r.addr = ln.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- r.server.Run(ctx, ln) }()
	var once sync.Once
	r.stop = func() {
		once.Do(func() {
			cancel()
			select {
			case err := <-done:
				if err != nil {
					t.Errorf("the server ended with %v", err)
				}
			case <-time.After(patience):
				t.Error("the server does not end")
			}
		})
	}
	t.Cleanup(r.stop)
	return r
}

// reply is an HTTP answer.
type reply struct {
	status int
	header http.Header
	body   string
}

// client does not keep connections, so that nothing of it is left.
var client = &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}

// request sends one; headers are names and values in turn. A header Host is the request's.
func (r *rig) request(method, path, body string, headers ...string) reply {
	r.t.Helper()
	got, err := r.try(method, path, body, headers...)
	if err != nil {
		r.t.Fatalf("%s %s: %v", method, path, err)
	}
	return got
}

func (r *rig) try(method, path, body string, headers ...string) (reply, error) {
	req, err := http.NewRequestWithContext(r.t.Context(), method, "http://"+r.addr+path, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "opencode/1.18.33")
	for i := 0; i < len(headers); i += 2 {
		if headers[i] == "Host" {
			req.Host = headers[i+1]
		} else {
			req.Header.Set(headers[i], headers[i+1])
		}
	}
	res, err := client.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	data, err := io.ReadAll(res.Body)
	breach.Check(r.t, res, string(data))
	return reply{res.StatusCode, res.Header, string(data)}, err
}

// want checks a reply's status.
func (r *rig) want(status int, got reply) reply {
	r.t.Helper()
	if got.status != status {
		r.t.Fatalf("status %d, want %d: %s", got.status, status, got.body)
	}
	return got
}

// create creates a share over HTTP.
func (r *rig) create(session string, headers ...string) opencode.CreateReply {
	r.t.Helper()
	got := r.want(200, r.request("POST", "/api/share", fmt.Sprintf(`{"sessionID":%q}`, session), headers...))
	var c opencode.CreateReply
	if err := json.Unmarshal([]byte(got.body), &c); err != nil || c.ID == "" || c.Secret == "" || !strings.HasSuffix(c.URL, "/share/"+c.ID) {
		r.t.Fatalf("create gave %s", got.body)
	}
	return c
}

// sync syncs items, which are JSON texts.
func (r *rig) sync(c opencode.CreateReply, items ...string) reply {
	r.t.Helper()
	return r.request("POST", "/api/share/"+c.ID+"/sync", syncBody(c.Secret, items...))
}

func syncBody(secret string, items ...string) string {
	return fmt.Sprintf(`{"secret":%q,"data":[%s]}`, secret, strings.Join(items, ","))
}

// message is an item of a message.
func message(id, text string) string {
	return fmt.Sprintf(`{"type":"message","data":{"id":%q,"text":%q}}`, id, text)
}

// data is what a share gives out, item by item.
func (r *rig) data(c opencode.CreateReply) []string {
	r.t.Helper()
	got := r.want(200, r.request("GET", "/api/share/"+c.ID+"/data", ""))
	var items []json.RawMessage
	if err := json.Unmarshal([]byte(got.body), &items); err != nil {
		r.t.Fatalf("data is %s: %v", got.body, err)
	}
	texts := make([]string, len(items))
	for i, item := range items {
		texts[i] = string(item)
	}
	return texts
}

// cursor is that of a share's session.
func (r *rig) cursor(c opencode.CreateReply) uint64 {
	r.t.Helper()
	p, err := r.store.FindShare(r.t.Context(), c.ID)
	if err != nil {
		r.t.Fatal(err)
	}
	access, err := r.store.ReadAccess(r.t.Context(), p.Session, nil)
	if err != nil || access.Row == nil {
		r.t.Fatal(access, err)
	}
	return access.Row.Cursor
}

// sessions are those of the space that were made, by their external ids.
func (r *rig) sessions() map[string]int {
	r.t.Helper()
	list, err := r.store.ListSessions(r.t.Context(), r.owner.Target(), session.ListQuery{Limit: 1000, Deleted: true}, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	made := map[string]int{}
	for _, l := range list.Sessions {
		made[l.External]++
	}
	return made
}

// held is the owner's space, or another ref, within the process.
func (r *rig) held(ref capability.Ref) *objects.Capability {
	r.t.Helper()
	live, err := r.server.Caller(r.t.Context(), "127.0.0.9:1").Restore(ref, "test")
	if err != nil {
		r.t.Fatal(err)
	}
	return live
}

// spaceRef mints a ref of the owner's space.
func (r *rig) spaceRef(rights capability.Rights) capability.Ref {
	r.t.Helper()
	ref := r.owner.New(r.owner.Target())
	_, err := r.store.MintUnderRoot(r.t.Context(), capability.MintRequest{ID: ref.ID, Hash: ref.Secret.Hash(), Rights: rights})
	if err != nil {
		r.t.Fatal(err)
	}
	return ref
}
