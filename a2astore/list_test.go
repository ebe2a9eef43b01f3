package a2astore_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"

	"github.com/mooring-rpc/mooring/a2astore"
)

// list returns the ids of all pages.
func list(t *testing.T, s *a2astore.Store, req a2a.ListTasksRequest, between func(page int)) (ids []string) {
	t.Helper()
	for page := 1; ; page++ {
		res, err := s.List(t.Context(), &req)
		if err != nil {
			t.Fatal(err)
		}
		for _, task := range res.Tasks {
			ids = append(ids, string(task.ID))
		}
		if req.PageToken = res.NextPageToken; req.PageToken == "" {
			return ids
		}
		if between != nil {
			between(page)
		}
	}
}

func TestList(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := a2astore.New(r.session, a2astore.Config{})
	if res, err := store.List(t.Context(), &a2a.ListTasksRequest{}); err != nil || res.Tasks == nil || len(res.Tasks) != 0 || res.PageSize != 50 || res.NextPageToken != "" {
		t.Errorf("of none: %+v, %v", res, err)
	}
	day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	create := func(id string, n int) {
		at := day.AddDate(0, 0, n)
		task := &a2a.Task{ID: a2a.TaskID(id), ContextID: fmt.Sprint("context ", n%2), Status: a2a.TaskStatus{State: []a2a.TaskState{a2a.TaskStateWorking, a2a.TaskStateCompleted, a2a.TaskStateFailed}[n%3], Timestamp: &at}}
		for i := range 3 {
			task.History = append(task.History, &a2a.Message{ID: fmt.Sprintf("%s %d", id, i), Role: a2a.MessageRoleUser})
		}
		task.Artifacts = []*a2a.Artifact{{ID: "a"}}
		if _, err := store.Create(t.Context(), task); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 6 {
		create(fmt.Sprint("task", n), n)
	}
	touch := func(id string) {
		task := get(t, store, a2a.TaskID(id)).Task
		if _, err := store.Update(t.Context(), &taskstore.UpdateRequest{Task: task}); err != nil {
			t.Fatal(err)
		}
	}
	touch("task1")
	want := func(what string, got []string, ids ...string) {
		t.Helper()
		for i := range ids {
			ids[i] = "task" + ids[i]
		}
		if !slices.Equal(got, ids) {
			t.Errorf("%s: %v, and not %v", what, got, ids)
		}
	}
	third := day.AddDate(0, 0, 3)
	want("all", list(t, store, a2a.ListTasksRequest{}, nil), "1", "5", "4", "3", "2", "0")
	for size := 1; size <= 7; size++ {
		want(fmt.Sprint("by ", size), list(t, store, a2a.ListTasksRequest{PageSize: size}, nil), "1", "5", "4", "3", "2", "0")
	}
	want("of a context", list(t, store, a2a.ListTasksRequest{ContextID: "context 1"}, nil), "1", "5", "3")
	want("of a state", list(t, store, a2a.ListTasksRequest{Status: a2a.TaskStateWorking}, nil), "3", "0")
	want("since", list(t, store, a2a.ListTasksRequest{StatusTimestampAfter: &third}, nil), "5", "4", "3")

	// What changes between pages is not missed, and what was there comes as it is.
	want("changing", list(t, store, a2a.ListTasksRequest{PageSize: 2}, func(page int) {
		switch page {
		case 1:
			touch("task2")
			create("task7", 1)
		case 2:
			touch("task0")
		}
	}), "1", "5", "4", "3", "2", "7", "0")

	// What somebody else's is does not matter, though no SDK of Go's can read it.
	b := r.session.Batch()
	b.Put("a2a_task/other", json.RawMessage(`{"user":"bob","revision":1,"task":{"status":{"timestamp":"yesterday"}}}`))
	if _, err := b.CommitWait(t.Context()); err != nil {
		t.Fatal(err)
	}

	// As much of each as is asked for.
	two := 2
	for _, c := range []struct {
		req       a2a.ListTasksRequest
		history   int
		artifacts int
	}{{a2a.ListTasksRequest{}, 3, 0}, {a2a.ListTasksRequest{HistoryLength: new(int)}, 0, 0}, {a2a.ListTasksRequest{HistoryLength: &two, IncludeArtifacts: true}, 2, 1}} {
		res, err := store.List(t.Context(), &c.req)
		if err != nil || res.TotalSize != 7 {
			t.Fatal(res, err)
		}
		for _, task := range res.Tasks {
			if len(task.History) != c.history || len(task.Artifacts) != c.artifacts {
				t.Errorf("%+v has %+v", c.req, task)
			}
			if c.history == 2 && task.History[1].ID != string(task.ID)+" 2" {
				t.Errorf("its history ends with %+v", task.History[1])
			}
		}
	}
	for _, req := range []a2a.ListTasksRequest{{PageSize: 101}, {PageSize: -1}} {
		if _, err := store.List(t.Context(), &req); !errors.Is(err, a2a.ErrInvalidRequest) {
			t.Errorf("%+v: %v", req, err)
		}
	}
	for _, token := range []string{"x", "t.1", "t.x.1", "u.1.1", "t.0.0", "t.1.-1", "t.1.1", "t.0.0.x", "t.1.-1.x"} {
		if _, err := store.List(t.Context(), &a2a.ListTasksRequest{PageToken: token}); !errors.Is(err, a2a.ErrParseError) {
			t.Errorf("%s: %v", token, err)
		}
	}
}
