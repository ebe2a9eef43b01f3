//go:build unix

package a2ahttp

// What the tests share: a server with the handlers, and the SDK's own clients of both forms.

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2aclient/agentcard"
	"go.uber.org/goleak"

	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpapi/apitest"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/until"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(pgtest.Reuse()), goleak.IgnoreTopFunction("database/sql.(*DB).connectionOpener"))
}

type obj = apitest.Obj

var op = apitest.Op

// sender is what the ref of a client allows.
var sender = obj{"rights": []string{"read", "ask"}, "ask": []string{"prompt", "stop"}}

// start runs a server until the test ends. change may be nil.
func start(t testing.TB, st *store.Store, change func(*node.Config, *httpapi.Config)) *apitest.Rig {
	t.Helper()
	return apitest.Start(t, st, apitest.Options{Change: change, Handlers: func(cfg httpapi.Config) map[string]http.Handler { return Handlers(cfg, "1") }})
}

// bearer adds a ref to requests.
type bearer struct {
	ref  string
	next http.RoundTripper
}

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+b.ref)
	return b.next.RoundTrip(r)
}

var forms = []a2a.TransportProtocol{a2a.TransportProtocolJSONRPC, a2a.TransportProtocolHTTPJSON}

func onForms(t *testing.T, f func(t *testing.T, form a2a.TransportProtocol)) {
	for _, form := range forms {
		t.Run(string(form), func(t *testing.T) {
			t.Parallel()
			f(t, form)
		})
	}
}

// connect returns the SDK's client of one form, as the server's card says.
func connect(t testing.TB, r *apitest.Rig, form a2a.TransportProtocol, ref string) *a2aclient.Client {
	t.Helper()
	card, err := agentcard.NewResolver(r.HTTP).Resolve(t.Context(), r.Base)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(card.SupportedInterfaces, func(i *a2a.AgentInterface) bool { return i.ProtocolBinding == form }) {
		t.Fatalf("the card has no %s", form)
	}
	own := &http.Client{Transport: bearer{ref, r.HTTP.Transport}}
	c, err := a2aclient.NewFromCard(t.Context(), card, a2aclient.WithJSONRPCTransport(own), a2aclient.WithRESTTransport(own),
		a2aclient.WithConfig(a2aclient.Config{PreferredTransports: []a2a.TransportProtocol{form}}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Destroy() })
	return c
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), apitest.Patience)
	t.Cleanup(cancel)
	return ctx
}

func say(id, text string) *a2a.SendMessageRequest {
	m := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart(text))
	m.ID = id
	return &a2a.SendMessageRequest{Message: m}
}

// atOnce has a request not wait for the task's end.
func atOnce(req *a2a.SendMessageRequest) *a2a.SendMessageRequest {
	req.Config = &a2a.SendMessageConfig{ReturnImmediately: true}
	return req
}

// reading is a stream that is read.
type reading struct {
	t      testing.TB
	next   func() (a2a.Event, error, bool)
	events []a2a.Event
}

// task returns the task as it is after what was read.
func (r *reading) task() *a2a.Task {
	r.t.Helper()
	if len(r.events) == 0 {
		r.t.Fatal("the stream has nothing")
	}
	begun, ok := r.events[0].(*a2a.Task)
	if !ok {
		r.t.Fatalf("the stream begins with %T", r.events[0])
	}
	now := *begun
	events := make([]a2a.Event, 0, len(r.events))
	for _, a := range begun.Artifacts {
		events = append(events, &a2a.TaskArtifactUpdateEvent{Artifact: a})
	}
	for _, e := range r.events[1:] {
		switch e := e.(type) {
		case *a2a.TaskStatusUpdateEvent:
			now.Status = e.Status
		case *a2a.TaskArtifactUpdateEvent:
			events = append(events, e)
		default:
			r.t.Fatalf("the stream has a %T", e)
		}
	}
	now.Artifacts = fold(events)
	return &now
}

// until reads up to where a condition holds.
func (r *reading) until(what string, holds func(*a2a.Task) bool) {
	r.t.Helper()
	for {
		e, err, ok := r.next()
		if err != nil || !ok {
			r.t.Fatalf("the stream ends (%v) before %s: %v", err, what, r.events)
		}
		r.events = append(r.events, e)
		if holds(r.task()) {
			return
		}
	}
}

// rest reads to the end.
func (r *reading) rest() *a2a.Task {
	r.t.Helper()
	for {
		e, err, ok := r.next()
		if err != nil {
			r.t.Fatal(err)
		}
		if !ok {
			return r.task()
		}
		r.events = append(r.events, e)
	}
}

// textOf returns the texts of a task's artifacts.
func textOf(t *a2a.Task) string {
	var b strings.Builder
	for _, a := range t.Artifacts {
		for _, p := range a.Parts {
			b.WriteString(p.Text())
		}
		b.WriteString("|")
	}
	return b.String()
}

// prompt returns the id of the newest open prompt, once there are n.
func prompt(s *apitest.Session, n int) (id string) {
	s.TB.Helper()
	until.True(s.TB, "it is asked", func() bool {
		list := s.Ask("GET", "sessions/"+s.ID+"/requests?kinds=prompt", s.Owner, nil)["requests"].([]any)
		if len(list) >= n {
			id = list[len(list)-1].(obj)["request"].(string)
		}
		return len(list) >= n
	})
	return id
}

// begin claims a prompt and begins its turn.
func begin(s *apitest.Session, id string) (turn string, claim float64) {
	s.TB.Helper()
	claim = s.Claim(id)
	turn = "turn_" + id
	s.Begin(turn, obj{"parentID": "user_" + id})
	return turn, claim
}
