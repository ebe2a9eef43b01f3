package a2astore_test

import (
	"context"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"

	"github.com/mooring-rpc/mooring/a2astore"
	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/server"
)

// rig is a server with a session for tasks.
type rig struct {
	t       *testing.T
	owner   capability.Ref
	session *client.Session
}

func newRig(t *testing.T) *rig {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv, err := server.New(t.Context(), server.Config{Dir: filepath.Join(t.TempDir(), "server"), Address: "mooring://" + ln.Addr().String()})
	if err != nil {
		t.Fatal(err)
	}
	web := &http.Server{Handler: srv.Handler()}
	go web.Serve(ln)
	t.Cleanup(func() { srv.Close(); web.Close() })
	text, err := os.ReadFile(srv.Owner().Path)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{t: t}
	if r.owner, err = capability.ParseRef(strings.TrimSpace(string(text))); err != nil {
		t.Fatal(err)
	}
	space, err := r.client().Space(t.Context(), r.owner)
	if err != nil {
		t.Fatal(err)
	}
	s, b := space.Create(client.CreateOptions{})
	if _, err := b.CommitWait(t.Context()); err != nil {
		t.Fatal(err)
	}
	r.session = s
	return r
}

// client returns a client with an outbox of its own.
func (r *rig) client() *client.Client {
	c, err := client.Open(r.t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(r.t.TempDir())})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// elsewhere returns a store of the same tasks, as another process would have it.
func (r *rig) elsewhere(auth taskstore.Authenticator) *a2astore.Store {
	s, err := r.client().Session(r.t.Context(), r.session.Ref())
	if err != nil {
		r.t.Fatal(err)
	}
	return a2astore.New(s, a2astore.Config{Authenticator: auth})
}

// userKey is the context's key of the user who calls.
type userKey struct{}

func as(ctx context.Context, user string) context.Context {
	return context.WithValue(ctx, userKey{}, user)
}

// fromContext is an authenticator.
func fromContext(ctx context.Context) (string, error) {
	user, _ := ctx.Value(userKey{}).(string)
	return user, nil
}
