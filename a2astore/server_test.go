package a2astore_test

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/http/httptest"
	"reflect"
	"sync/atomic"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/a2aproject/a2a-go/v2/a2asrv"

	"github.com/mooring-rpc/mooring/a2astore"
)

// agent works on a task in three steps, until it is let go on with the last one.
type agent struct {
	started atomic.Int32
	goOn    chan struct{}
}

func (a *agent) Execute(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		a.started.Add(1)
		task := a2a.NewSubmittedTask(c, c.Message)
		if c.StoredTask == nil && !yield(task, nil) {
			return
		}
		artifact := a2a.NewArtifactEvent(c, a2a.NewTextPart("Hello"))
		if !yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateWorking, nil), nil) || !yield(artifact, nil) ||
			!yield(a2a.NewArtifactUpdateEvent(c, artifact.Artifact.ID, a2a.NewTextPart(", world!")), nil) {
			return
		}
		<-a.goOn
		yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateCompleted, a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("Done."))), nil)
	}
}

func (a *agent) Cancel(_ context.Context, c *a2asrv.ExecutorContext) iter.Seq2[a2a.Event, error] {
	return func(yield func(a2a.Event, error) bool) {
		yield(a2a.NewStatusUpdateEvent(c, a2a.TaskStateCanceled, nil), nil)
	}
}

// serve starts an A2A server with its tasks in a store, and returns clients by transport.
func serve(t *testing.T, a *agent, store *a2astore.Store) map[string]*a2aclient.Client {
	handler := a2asrv.NewHandler(a, a2asrv.WithTaskStore(store), a2asrv.WithCallInterceptors(store.Repeats()))
	mux := http.NewServeMux()
	mux.Handle("/rpc", a2asrv.NewJSONRPCHandler(handler))
	mux.Handle("/", a2asrv.NewRESTHandler(handler))
	web := httptest.NewServer(mux)
	t.Cleanup(web.Close)
	clients := map[string]*a2aclient.Client{}
	for name, at := range map[string]*a2a.AgentInterface{
		"JSON-RPC": a2a.NewAgentInterface(web.URL+"/rpc", a2a.TransportProtocolJSONRPC), "REST": a2a.NewAgentInterface(web.URL, a2a.TransportProtocolHTTPJSON),
	} {
		c, err := a2aclient.NewFromCard(t.Context(), &a2a.AgentCard{SupportedInterfaces: []*a2a.AgentInterface{at}, Capabilities: a2a.AgentCapabilities{Streaming: true}})
		if err != nil {
			t.Fatal(err)
		}
		clients[name] = c
	}
	return clients
}

// The SDK's server keeps its tasks in a session, and its clients find them at another server later. A message that is sent again is the same task, while the
// agent works and afterwards, and the agent works on it once.
func TestServer(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := &agent{goOn: make(chan struct{})}
	clients := serve(t, a, a2astore.New(r.session, a2astore.Config{}))
	ids := map[string]a2a.TaskID{}
	for name, c := range clients {
		req := &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("Work."))}
		kinds, artifacts := "", 0
		for e, err := range c.SendStreamingMessage(t.Context(), req) {
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			kinds += fmt.Sprintf("%T ", e)
			if _, ok := e.(*a2a.TaskArtifactUpdateEvent); ok {
				artifacts++
			}
			if artifacts == 2 { // and the agent waits
				artifacts = 0
				again, err := c.SendMessage(t.Context(), req)
				if task, ok := again.(*a2a.Task); err != nil || !ok || task.ID != e.TaskInfo().TaskID || task.Status.State != a2a.TaskStateWorking {
					t.Errorf("%s: sent again, it is %+v: %v", name, again, err)
				}
				a.goOn <- struct{}{}
			}
			ids[name] = e.TaskInfo().TaskID
		}
		if want := "*a2a.Task *a2a.TaskStatusUpdateEvent *a2a.TaskArtifactUpdateEvent *a2a.TaskArtifactUpdateEvent *a2a.TaskStatusUpdateEvent "; kinds != want {
			t.Errorf("%s: it streams %s", name, kinds)
		}
		done, err := c.SendMessage(t.Context(), req)
		if task, ok := done.(*a2a.Task); err != nil || !ok || task.ID != ids[name] || task.Status.State != a2a.TaskStateCompleted {
			t.Errorf("%s: sent once more, it is %+v: %v", name, done, err)
		}
	}
	if n := a.started.Load(); n != 2 {
		t.Errorf("the agent has begun %d times", n)
	}

	// At another server, with a client of its own.
	for name, c := range serve(t, a, r.elsewhere(nil)) {
		task, err := c.GetTask(t.Context(), &a2a.GetTaskRequest{ID: ids[name]})
		if err != nil {
			t.Fatal(err)
		}
		if len(task.Artifacts) != 1 || !reflect.DeepEqual(task.Artifacts[0].Parts, a2a.ContentParts{a2a.NewTextPart("Hello"), a2a.NewTextPart(", world!")}) {
			t.Errorf("%s: the artifacts are %+v", name, task.Artifacts)
		}
		if len(task.History) != 1 || task.Status.Message == nil || task.Status.Message.Parts[0].Text() != "Done." {
			t.Errorf("%s: the task is %+v", name, task)
		}
		all, err := c.ListTasks(t.Context(), &a2a.ListTasksRequest{})
		if err != nil || all.TotalSize != 2 {
			t.Errorf("%s: there are %+v: %v", name, all, err)
		}
	}
	if _, err := r.session.Verify(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// A task that one server works on is canceled at another.
func TestCancelElsewhere(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	a := &agent{goOn: make(chan struct{})}
	defer close(a.goOn)
	here := serve(t, a, a2astore.New(r.session, a2astore.Config{}))["JSON-RPC"]
	there := serve(t, a, r.elsewhere(nil))["REST"]
	res, err := here.SendMessage(t.Context(), &a2a.SendMessageRequest{Message: a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("Work.")), Config: &a2a.SendMessageConfig{ReturnImmediately: true}})
	if err != nil {
		t.Fatal(err)
	}
	id := res.(*a2a.Task).ID
	if task, err := there.CancelTask(t.Context(), &a2a.CancelTaskRequest{ID: id}); err != nil || task.Status.State != a2a.TaskStateCanceled {
		t.Fatalf("canceled, it is %+v: %v", task, err)
	}
	a.goOn <- struct{}{}
	if task, err := here.GetTask(t.Context(), &a2a.GetTaskRequest{ID: id}); err != nil || task.Status.State != a2a.TaskStateCanceled {
		t.Errorf("here it is %+v: %v", task, err)
	}
}
