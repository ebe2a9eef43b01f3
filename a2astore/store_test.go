package a2astore_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2asrv/taskstore"

	"github.com/mooring-rpc/mooring/a2astore"
)

// workingTask is a task with all that a task may have.
func workingTask() *a2a.Task {
	at := time.Date(2026, 11, 30, 1, 2, 3, 4000, time.UTC)
	t := a2a.NewSubmittedTask(a2a.TaskInfo{ContextID: "context 1/ü"}, a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("Do it."), a2a.NewFileURLPart("https://example.org/a.png", "image/png")))
	t.Status = a2a.TaskStatus{State: a2a.TaskStateWorking, Timestamp: &at, Message: a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewTextPart("I do."))}
	t.Metadata = map[string]any{"deep": map[string]any{"list": []any{"x", 1.5, nil, true}}}
	t.History = append(t.History, a2a.NewMessage(a2a.MessageRoleAgent, a2a.NewDataPart(map[string]any{"n": 1.0})))
	for i := range 12 {
		t.Artifacts = append(t.Artifacts, &a2a.Artifact{ID: a2a.ArtifactID(fmt.Sprint("artifact ", i)), Name: "a", Description: "b", Parts: a2a.ContentParts{a2a.NewTextPart(fmt.Sprint(i)), a2a.NewRawPart([]byte{0, 255})}})
	}
	return t
}

func get(t *testing.T, s *a2astore.Store, id a2a.TaskID) *taskstore.StoredTask {
	t.Helper()
	got, err := s.Get(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// What is created and updated is read again whole, by others as well, at the version that the change gave.
func TestTasks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store, other := a2astore.New(r.session, a2astore.Config{}), r.elsewhere(nil)
	task := workingTask()
	v, err := store.Create(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	check := func() {
		t.Helper()
		for name, s := range map[string]*a2astore.Store{"here": store, "elsewhere": other} {
			if got := get(t, s, task.ID); got.Version != v || !reflect.DeepEqual(got.Task, task) {
				t.Errorf("%s it is %+v at %d, and not %+v at %d", name, got.Task, got.Version, task, v)
			}
		}
	}
	check()
	if _, err := other.Create(t.Context(), task); !errors.Is(err, taskstore.ErrTaskAlreadyExists) {
		t.Errorf("again: %v", err)
	}

	// It grows, by either, and shrinks.
	update := func(s *a2astore.Store, change func()) {
		t.Helper()
		change()
		before := v
		if v, err = s.Update(t.Context(), &taskstore.UpdateRequest{Task: task, PrevVersion: v}); err != nil {
			t.Fatal(err)
		}
		if !v.After(before) {
			t.Errorf("version %d comes after %d", v, before)
		}
		check()
	}
	update(store, func() { task.Artifacts[3].Parts = append(task.Artifacts[3].Parts, a2a.NewTextPart("more")) })
	update(other, func() {
		task.Status.State = a2a.TaskStateCompleted
		task.History = append(task.History, task.Status.Message)
	})
	update(store, func() { task.Artifacts = task.Artifacts[:2]; task.Artifacts[1].Parts = task.Artifacts[1].Parts[:1] })
	update(store, func() {}) // nothing but its version

	// On an earlier version nothing changes.
	for _, s := range []*a2astore.Store{store, other} {
		changed := *task
		changed.ContextID = "another"
		if _, err := s.Update(t.Context(), &taskstore.UpdateRequest{Task: &changed, PrevVersion: v - 1}); !errors.Is(err, taskstore.ErrConcurrentModification) {
			t.Errorf("on an earlier version: %v", err)
		}
		check()
	}
	if _, err := store.Get(t.Context(), "none"); !errors.Is(err, a2a.ErrTaskNotFound) {
		t.Errorf("none: %v", err)
	}
	if _, err := store.Update(t.Context(), &taskstore.UpdateRequest{Task: &a2a.Task{ID: "none"}}); !errors.Is(err, a2a.ErrTaskNotFound) {
		t.Errorf("updating none: %v", err)
	}
	if _, err := store.Create(t.Context(), &a2a.Task{}); !errors.Is(err, a2a.ErrInvalidRequest) {
		t.Errorf("without an id: %v", err)
	}
}

// An update costs what has changed: one more part of an artifact is two events, however large the task is.
func TestUpdatesAreSmall(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := a2astore.New(r.session, a2astore.Config{})
	task := workingTask()
	v, err := store.Create(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	before, err := r.session.Stat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	task.Artifacts[0].Parts = append(task.Artifacts[0].Parts, a2a.NewTextPart("more"))
	if _, err := store.Update(t.Context(), &taskstore.UpdateRequest{Task: task, PrevVersion: v}); err != nil {
		t.Fatal(err)
	}
	after, err := r.session.Stat(t.Context())
	if err != nil || after.Cursor-before.Cursor != 2 {
		t.Errorf("%d events: %v", after.Cursor-before.Cursor, err)
	}
}

// Of many updates of one version one applies; without a version all do.
func TestUpdatesAtOnce(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	stores := []*a2astore.Store{a2astore.New(r.session, a2astore.Config{}), r.elsewhere(nil)}
	task := &a2a.Task{ID: "task", ContextID: "start"}
	v, err := stores[0].Create(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	const each = 5
	at := func(v taskstore.TaskVersion) (applied, conflicts int) {
		var mu sync.Mutex
		var wg sync.WaitGroup
		for i := range 2 * each {
			wg.Go(func() {
				changed := &a2a.Task{ID: "task", ContextID: fmt.Sprint(i)}
				_, err := stores[i%2].Update(t.Context(), &taskstore.UpdateRequest{Task: changed, PrevVersion: v})
				mu.Lock()
				defer mu.Unlock()
				switch {
				case err == nil:
					applied++
				case errors.Is(err, taskstore.ErrConcurrentModification):
					conflicts++
				default:
					t.Error(err)
				}
			})
		}
		wg.Wait()
		return applied, conflicts
	}
	if applied, conflicts := at(v); applied != 1 || conflicts != 2*each-1 {
		t.Errorf("%d applied, %d did not", applied, conflicts)
	}
	if applied, _ := at(taskstore.TaskVersionMissing); applied != 2*each {
		t.Errorf("without a version %d applied", applied)
	}
}

// A task is its user's alone.
func TestTasksOfUsers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	store := a2astore.New(r.session, a2astore.Config{Authenticator: fromContext})
	ann, bob := as(t.Context(), "ann"), as(t.Context(), "bob")
	message := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("Do it."))
	task := a2a.NewSubmittedTask(a2a.TaskInfo{}, message)
	if _, err := store.Create(ann, task); err != nil {
		t.Fatal(err)
	}
	if _, err := store.Get(bob, task.ID); !errors.Is(err, a2a.ErrTaskNotFound) {
		t.Errorf("bob gets %v", err)
	}
	if _, err := store.Update(bob, &taskstore.UpdateRequest{Task: task}); !errors.Is(err, a2a.ErrTaskNotFound) {
		t.Errorf("bob updates: %v", err)
	}
	if l, err := store.List(bob, &a2a.ListTasksRequest{}); err != nil || len(l.Tasks) != 0 {
		t.Errorf("bob lists %v: %v", l, err)
	}
	if _, err := store.Create(bob, a2a.NewSubmittedTask(a2a.TaskInfo{}, message)); err != nil {
		t.Errorf("bob's message has the same id: %v", err)
	}
	if _, err := store.Create(ann, a2a.NewSubmittedTask(a2a.TaskInfo{}, message)); !errors.Is(err, a2astore.ErrRepeated) || !errors.Is(err, taskstore.ErrTaskAlreadyExists) {
		t.Errorf("ann's message again: %v", err)
	}
	task.History = append(task.History, &a2a.Message{ID: "msg 2", Role: a2a.MessageRoleUser})
	if _, err := store.Update(ann, &taskstore.UpdateRequest{Task: task}); err != nil {
		t.Errorf("another message: %v", err)
	}
	slices.Reverse(task.History)
	if _, err := store.Update(ann, &taskstore.UpdateRequest{Task: task}); err != nil {
		t.Errorf("in another order: %v", err)
	}
	task.History = append(task.History, &a2a.Message{ID: "msg 2", Role: a2a.MessageRoleUser})
	if _, err := store.Update(ann, &taskstore.UpdateRequest{Task: task}); !errors.Is(err, a2astore.ErrRepeated) {
		t.Errorf("that again: %v", err)
	}
	failing := a2astore.New(r.session, a2astore.Config{Authenticator: func(context.Context) (string, error) { return "", a2a.ErrUnauthenticated }})
	if _, err := failing.Get(t.Context(), task.ID); !errors.Is(err, a2a.ErrUnauthenticated) {
		t.Errorf("without a user: %v", err)
	}
}
