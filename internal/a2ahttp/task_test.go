//go:build unix

package a2ahttp

import (
	"errors"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/httpapi/apitest"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/internal/until"
)

// read begins to read a stream.
func read(t testing.TB, of iter.Seq2[a2a.Event, error]) *reading {
	next, stop := iter.Pull2(of)
	t.Cleanup(stop)
	return &reading{t: t, next: next}
}

func first(r *reading) *reading {
	r.t.Helper()
	r.until("its beginning", func(*a2a.Task) bool { return true })
	return r
}

// A message is one task however often it is sent, and all that read it, from whenever, have the same.
func TestOneMessageOneTask(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		onForms(t, func(t *testing.T, form a2a.TransportProtocol) {
			s := r.Session()
			c := connect(t, r, form, s.Share(sender))
			sent := first(read(t, c.SendStreamingMessage(within(t), say("m1", "do it"))))
			id := sent.task().ID
			if got := sent.task(); got.Status.State != a2a.TaskStateSubmitted || got.ContextID != s.ID || len(got.History) != 1 || got.History[0].ID != "m1" || got.History[0].Parts[0].Text() != "do it" {
				t.Fatalf("the task is %+v", got)
			}
			twice := first(read(t, c.SendStreamingMessage(within(t), say("m1", "do it"))))
			asked := prompt(s, 1)
			if string(id) != asked || twice.task().ID != id {
				t.Errorf("the task is %s and %s, the request %s", id, twice.task().ID, asked)
			}
			turn, claim := begin(s, asked)
			sent.until("an agent works", func(t *a2a.Task) bool { return t.Status.State == a2a.TaskStateWorking })
			s.PutText(turn, "p1", "It is")
			sent.until("its text", func(t *a2a.Task) bool { return textOf(t) == "It is|" })
			cut := first(read(t, c.SubscribeToTask(within(t), &a2a.SubscribeToTaskRequest{ID: id}))) // as after a cut
			if got := textOf(cut.task()); got != "It is|" {
				t.Errorf("it goes on from %q", got)
			}
			s.Apply(op("appendText", "key", session.PartKey(turn, "p1"), "offset", 5, "text", " blue."))
			s.Apply(op("put", "key", session.PartKey(turn, "p2"), "payload", obj{"type": "tool", "tool": "bash", "callID": "c", "state": obj{"status": "running", "title": "ls", "input": obj{}}}))
			s.Apply(op("put", "key", session.PartKey(turn, "p3"), "payload", obj{"type": "reasoning", "text": "why"}))
			s.Apply(op("put", "key", session.PartKey(turn, "p4"), "payload", obj{"type": "file", "mime": "text/plain", "filename": "a.txt", "url": "data:text/plain;base64,aGk="}))
			waited := make(chan *a2a.Task, 1)
			go func() {
				res, err := c.SendMessage(within(t), say("m1", "do it"))
				if err != nil {
					t.Error(err)
				}
				task, _ := res.(*a2a.Task)
				waited <- task
			}()
			s.Finish(turn, asked, claim, obj{"message": turn, "stopReason": "end_turn"})
			want := sent.rest()
			if want.Status.State != a2a.TaskStateCompleted || textOf(want) != "It is blue.||" || string(want.Artifacts[1].Parts[0].Raw()) != "hi" || want.Artifacts[1].Parts[0].Filename != "a.txt" {
				t.Errorf("it ends as %+v, %s", want.Status, textOf(want))
			}
			if !slices.ContainsFunc(sent.events, func(e a2a.Event) bool {
				u, ok := e.(*a2a.TaskStatusUpdateEvent)
				return ok && u.Status.Message != nil && reflect.DeepEqual(u.Status.Message.Parts[0].Data(), map[string]any{"tool": "bash", "status": "running", "title": "ls"})
			}) {
				t.Error("nothing tells of the tool")
			}
			got, err := c.GetTask(within(t), &a2a.GetTaskRequest{ID: id})
			if err != nil {
				t.Fatal(err)
			}
			after := read(t, c.SendStreamingMessage(within(t), say("m1", "do it"))).rest()
			for name, other := range map[string]*a2a.Task{"sent twice": twice.rest(), "after a cut": cut.rest(), "got": got, "waited for": <-waited, "sent after its end": after} {
				if other == nil || !reflect.DeepEqual(other.Artifacts, want.Artifacts) || !reflect.DeepEqual(other.Status, want.Status) || !reflect.DeepEqual(other.History, want.History) {
					t.Errorf("%s: it is %+v", name, other)
				}
			}
			_, err = c.SendMessage(within(t), say("m1", "do something else"))
			if !errors.Is(err, a2a.ErrInvalidParams) || !strings.Contains(err.Error(), "already_exists") {
				t.Errorf("with another text: %v", err)
			}
			for _, err := range c.SubscribeToTask(within(t), &a2a.SubscribeToTaskRequest{ID: id}) {
				if !errors.Is(err, a2a.ErrUnsupportedOperation) {
					t.Errorf("of a task that has ended: %v", err)
				}
			}
		})
	})
}

// A text that was changed is given as a whole, to who follows and to who comes later.
func TestTextsThatChange(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	s := r.Session()
	c := connect(t, r, a2a.TransportProtocolJSONRPC, s.Share(sender))
	sent := first(read(t, c.SendStreamingMessage(within(t), say("m", "do it"))))
	turn, claim := begin(s, prompt(s, 1))
	s.PutText(turn, "p", "one two")
	sent.until("its text", func(t *a2a.Task) bool { return textOf(t) == "one two|" })
	s.PutText(turn, "p", "three")
	sent.until("the new text", func(t *a2a.Task) bool { return textOf(t) == "three|" })
	s.PutText(turn, "q", "gone")
	sent.until("another", func(t *a2a.Task) bool { return textOf(t) == "three|gone|" })
	s.Apply(op("remove", "key", session.PartKey(turn, "q")))
	sent.until("it is empty", func(t *a2a.Task) bool { return textOf(t) == "three||" })
	s.Finish(turn, string(sent.task().ID), claim, obj{"stopReason": "max_tokens"})
	if end := sent.rest(); textOf(end) != "three||" || end.Status.State != a2a.TaskStateCompleted || !strings.Contains(end.Status.Message.Parts[0].Text(), "max_tokens") {
		t.Errorf("it ends as %s %+v", textOf(end), end.Status)
	}
	got, err := c.GetTask(within(t), &a2a.GetTaskRequest{ID: sent.task().ID})
	if err != nil || textOf(got) != "three|" {
		t.Errorf("it is %v %v", got, err)
	}
}

// What is sent comes to the agent as content blocks, and comes back as it was.
func TestEveryPart(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	onForms(t, func(t *testing.T, form a2a.TransportProtocol) {
		s := r.Session()
		c := connect(t, r, form, s.Share(sender))
		raw := func(media, name, text string) *a2a.Part {
			return &a2a.Part{Content: a2a.Raw(text), MediaType: media, Filename: name}
		}
		m := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("look"), raw("text/markdown", "a.md", "# a"), raw("application/json", "b.json", "{}"),
			raw("image/png", "", "\x00\xff"), &a2a.Part{Content: a2a.URL("https://example.org/c"), MediaType: "text/html", Filename: "c"},
			&a2a.Part{Content: a2a.Data{Value: map[string]any{"d": []any{1.0, nil}}}, MediaType: "application/json"})
		m.Metadata, m.Extensions, m.ReferenceTasks = map[string]any{"k": "v"}, []string{"https://example.org/e"}, []a2a.TaskID{"t"}
		res, err := c.SendMessage(within(t), atOnce(&a2a.SendMessageRequest{Message: m}))
		if err != nil {
			t.Fatal(err)
		}
		task := res.(*a2a.Task)
		want := *m
		want.TaskID, want.ContextID = task.ID, s.ID
		if !reflect.DeepEqual(task.History, []*a2a.Message{&want}) {
			t.Errorf("it comes back as %+v", task.History[0])
			for _, p := range task.History[0].Parts {
				t.Logf("%+v", p)
			}
		}
		asked := s.Ask("GET", "sessions/"+s.ID+"/state?prefix=request/&values=true", s.Owner, nil)["entries"].([]any)[0].(obj)["payload"].(obj)["payload"].(obj)
		kinds := []string{}
		for _, b := range asked["content"].([]any) {
			kinds = append(kinds, b.(obj)["type"].(string))
		}
		if !slices.Equal(kinds, []string{"text", "resource", "resource", "image", "resource_link", "resource"}) {
			t.Errorf("the agent gets %v", kinds)
		}
	})
}

// A task ends as its request does.
func TestEnds(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	s := r.Session()
	c := connect(t, r, a2a.TransportProtocolJSONRPC, s.Share(sender))
	for answer, want := range map[string]a2a.TaskState{
		`{"stopReason":"end_turn"}`: a2a.TaskStateCompleted, `{"stopReason":"cancelled"}`: a2a.TaskStateCanceled,
		`{"stopReason":"refusal"}`: a2a.TaskStateRejected, `{"error":"out of ideas"}`: a2a.TaskStateFailed,
	} {
		res, err := c.SendMessage(within(t), atOnce(say(answer, "do it")))
		if err != nil {
			t.Fatal(err)
		}
		id := res.(*a2a.Task).ID
		turn, claim := begin(s, string(id))
		s.Apply(op("finalize", "message", turn, "status", "completed"), op("answer", "request", string(id), "claim", claim, "payload", rawJSON(answer)))
		got, err := c.GetTask(within(t), &a2a.GetTaskRequest{ID: id})
		if err != nil || got.Status.State != want || got.Status.Timestamp == nil || (got.Status.Message == nil) != (want == a2a.TaskStateCompleted) {
			t.Errorf("%s: %+v %v", answer, got, err)
		}
	}
}

// rawJSON is a value by its text.
type rawJSON string

func (r rawJSON) MarshalJSON() ([]byte, error) { return []byte(r), nil }

// What waits is withdrawn, what an agent works on is asked to stop, and what has ended cannot be cancelled.
func TestCancel(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	onForms(t, func(t *testing.T, form a2a.TransportProtocol) {
		s := r.Session()
		ref := s.Share(sender)
		c := connect(t, r, form, ref)
		waits, err := c.SendMessage(within(t), atOnce(say("waits", "do it")))
		if err != nil {
			t.Fatal(err)
		}
		cancel := &a2a.CancelTaskRequest{ID: waits.(*a2a.Task).ID}
		if got, err := c.CancelTask(within(t), cancel); err != nil || got.Status.State != a2a.TaskStateCanceled {
			t.Errorf("it is %+v %v", got, err)
		}
		if _, err := c.CancelTask(within(t), cancel); !errors.Is(err, a2a.ErrTaskNotCancelable) {
			t.Errorf("again: %v", err)
		}
		runs, err := c.SendMessage(within(t), atOnce(say("runs", "do it")))
		if err != nil {
			t.Fatal(err)
		}
		id := string(runs.(*a2a.Task).ID)
		claim := s.Claim(id)
		done := make(chan *a2a.Task, 1)
		go func() { // before the turn begins
			got, err := c.CancelTask(within(t), &a2a.CancelTaskRequest{ID: a2a.TaskID(id)})
			if err != nil {
				t.Error(err)
			}
			done <- got
		}()
		turn := "turn_" + id
		s.Apply(op("ask", "request", stopID(refID(ref), turn), "kind", "question", "payload", "made up")) // somebody else, under the stop's id
		s.Begin(turn, obj{"parentID": "user_" + id})
		until.True(t, "the agent is asked to stop", func() bool {
			list := s.Ask("GET", "sessions/"+s.ID+"/requests?kinds=stop", s.Owner, nil)["requests"].([]any)
			return len(list) == 1 && list[0].(obj)["asked"].(obj)["message"] == turn
		})
		s.Finish(turn, id, claim, obj{"message": turn, "stopReason": "cancelled"})
		if got := <-done; got == nil || got.Status.State != a2a.TaskStateCanceled {
			t.Errorf("it is %+v", got)
		}
	})
}

// A list has the tasks of its own ref, the one that was changed last first, however many there are.
func TestLists(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		s := r.Session()
		ref := s.Share(sender)
		c := connect(t, r, a2a.TransportProtocolHTTPJSON, ref)
		if list, err := c.ListTasks(within(t), &a2a.ListTasksRequest{}); err != nil || len(list.Tasks) != 0 || list.TotalSize != 0 {
			t.Errorf("at first: %+v %v", list, err)
		}
		var ids []a2a.TaskID
		for _, id := range []string{"a", "b", "c", "d", "e"} {
			res, err := c.SendMessage(within(t), atOnce(say(id, "do "+id)))
			if err != nil {
				t.Fatal(err)
			}
			ids = append(ids, res.(*a2a.Task).ID)
		}
		s.Apply(op("ask", "request", prefixOf(refID(ref))+"ff", "kind", "prompt", "payload", "made up")) // by another, under an id that is this ref's
		if _, err := c.GetTask(within(t), &a2a.GetTaskRequest{ID: a2a.TaskID(prefixOf(refID(ref)) + "ff")}); !errors.Is(err, a2a.ErrTaskNotFound) {
			t.Errorf("what another has asked is a task: %v", err)
		}
		turn, claim := begin(s, string(ids[1]))
		s.PutText(turn, "p", "done")
		s.Finish(turn, string(ids[1]), claim, obj{"stopReason": "end_turn"})
		want := []a2a.TaskID{ids[1], ids[4], ids[3], ids[2], ids[0]}
		var got []a2a.TaskID
		for token, pages := "", 0; ; pages++ {
			list, err := c.ListTasks(within(t), &a2a.ListTasksRequest{PageSize: 2, PageToken: token, IncludeArtifacts: true})
			if err != nil || len(list.Tasks) > 2 || pages > 3 {
				t.Fatalf("%+v %v", list, err)
			}
			for _, task := range list.Tasks {
				got = append(got, task.ID)
				if (task.ID == ids[1]) != (textOf(task) == "done|") || len(task.History) != 1 {
					t.Errorf("%s has %s", task.ID, textOf(task))
				}
			}
			if token = list.NextPageToken; token == "" {
				break
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("the list is %v, want %v", got, want)
		}
		rpc := connect(t, r, a2a.TransportProtocolJSONRPC, ref)
		none := 0
		future := time.Now().Add(time.Hour)
		for name, tc := range map[string]struct {
			req  a2a.ListTasksRequest
			want int
		}{
			"by state":            {a2a.ListTasksRequest{Status: a2a.TaskStateSubmitted}, 4},
			"by another state":    {a2a.ListTasksRequest{Status: a2a.TaskStateCompleted}, 1},
			"of the context":      {a2a.ListTasksRequest{ContextID: s.ID}, 5},
			"of another context":  {a2a.ListTasksRequest{ContextID: "x"}, 0},
			"of later":            {a2a.ListTasksRequest{StatusTimestampAfter: &future}, 0},
			"without the history": {a2a.ListTasksRequest{HistoryLength: &none}, 5},
		} {
			list, err := c.ListTasks(within(t), &tc.req)
			if err != nil || len(list.Tasks) != tc.want || list.TotalSize != tc.want {
				t.Errorf("%s: %+v %v", name, list, err)
				continue
			}
			if other, err := rpc.ListTasks(within(t), &tc.req); err != nil || !reflect.DeepEqual(other, list) {
				t.Errorf("%s: by JSON-RPC it is %+v %v", name, other, err)
			}
			for _, task := range list.Tasks {
				if len(task.Artifacts) > 0 || (len(task.History) == 0) != (tc.req.HistoryLength != nil) {
					t.Errorf("%s: %+v", name, task)
				}
			}
		}
		for name, req := range map[string]*a2a.ListTasksRequest{"a page of 101": {PageSize: 101}, "a token of nobody": {PageToken: "x"}} {
			if _, err := c.ListTasks(within(t), req); !errors.Is(err, a2a.ErrInvalidParams) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// refID returns the id of a ref.
func refID(text string) string {
	id, _, _ := strings.Cut(text[strings.LastIndex(text, "/")+1:], "#")
	return id
}

// A revoke ends what is followed and waited for, and nothing more is answered.
func TestRevoked(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	onForms(t, func(t *testing.T, form a2a.TransportProtocol) {
		s := r.Session()
		ref := s.Share(sender)
		c := connect(t, r, form, ref)
		sent := first(read(t, c.SendStreamingMessage(within(t), say("m", "do it"))))
		waited := make(chan error, 1)
		go func() {
			_, err := c.SendMessage(within(t), say("m", "do it"))
			waited <- err
		}()
		begin(s, string(sent.task().ID))
		sent.until("an agent works", func(t *a2a.Task) bool { return t.Status.State == a2a.TaskStateWorking })
		s.Ask("DELETE", "sessions/"+s.ID+"/refs/"+refID(ref), s.Owner, nil)
		for {
			e, err, ok := sent.next()
			if err == nil && ok {
				sent.events = append(sent.events, e)
				continue
			}
			if !ok || !errors.Is(err, a2a.ErrUnauthorized) || !strings.Contains(err.Error(), "revoked") {
				t.Errorf("the stream ends with %v", err)
			}
			break
		}
		if err := <-waited; err == nil || !strings.Contains(err.Error(), "revoked") && !strings.Contains(err.Error(), "403") {
			t.Errorf("the wait ends with %v", err)
		}
		if _, err := c.GetTask(within(t), &a2a.GetTaskRequest{ID: sent.task().ID}); err == nil {
			t.Error("the task is got")
		}
	})
}

// Who waits for a task's end, or follows it, may do so for longer than a request may take.
func TestLongWaits(t *testing.T) {
	t.Parallel()
	r := apitest.Start(t, teststore.SQLite(t), apitest.Options{Handlers: func(cfg httpapi.Config) map[string]http.Handler {
		cfg.Timeout = 3 * time.Second // long enough for what is to be answered, and not that of the agent's own requests
		return Handlers(cfg, "1")
	}})
	onForms(t, func(t *testing.T, form a2a.TransportProtocol) {
		s := r.Session()
		c := connect(t, r, form, s.Share(sender))
		sent := first(read(t, c.SendStreamingMessage(within(t), say("m", "do it"))))
		waited := make(chan error, 1)
		go func() {
			_, err := c.SendMessage(within(t), say("m", "do it"))
			waited <- err
		}()
		id := string(sent.task().ID)
		claim := s.Claim(id)
		// Who cancels what is not begun waits, and no longer than a request may take: those before have then taken longer.
		if _, err := c.CancelTask(within(t), &a2a.CancelTaskRequest{ID: a2a.TaskID(id)}); err == nil {
			t.Error("a cancel is answered")
		}
		turn := "turn_" + id
		s.Begin(turn, obj{"parentID": "user_" + id})
		s.Finish(turn, string(sent.task().ID), claim, obj{"stopReason": "end_turn"})
		if end := sent.rest(); end.Status.State != a2a.TaskStateCompleted {
			t.Errorf("it ends as %+v", end.Status)
		}
		if err := <-waited; err != nil {
			t.Error(err)
		}
	})
}

// A server that stops ends what is followed with a code that says to try again, and loses no task.
func TestDrain(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	s := r.Session()
	c := connect(t, r, a2a.TransportProtocolJSONRPC, s.Share(sender))
	sent := first(read(t, c.SendStreamingMessage(within(t), say("m", "do it"))))
	go r.Stop()
	for {
		_, err, ok := sent.next()
		if !ok {
			t.Error("the stream ends as if the task had")
		}
		if err != nil {
			if !strings.Contains(err.Error(), "draining") {
				t.Errorf("the stream ends with %v", err)
			}
			return
		}
	}
}

// The card says nothing of sessions; with a ref there is one that does.
func TestCards(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	s := r.Session()
	s.Apply(op("put", "key", "session", "payload", obj{"title": "Paint the shed"}))
	onForms(t, func(t *testing.T, form a2a.TransportProtocol) {
		c := connect(t, r, form, s.Share(sender))
		card, err := c.GetExtendedAgentCard(within(t), &a2a.GetExtendedAgentCardRequest{})
		if err != nil || card.Name != "Paint the shed" || !strings.Contains(card.Description, s.ID) {
			t.Errorf("%+v %v", card, err)
		}
	})
	status, text := r.Text("GET", CardPath, "", nil)
	if status != http.StatusOK || strings.Contains(text, "shed") || strings.Contains(text, s.ID) || !strings.Contains(text, `"scheme":"Bearer"`) || !strings.Contains(text, r.Base+"/a2a/v1") {
		t.Errorf("%d %s", status, text)
	}
}
