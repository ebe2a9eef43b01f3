package a2astore_test

import (
	"encoding/json"
	"os"
	"reflect"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/mooring-rpc/mooring/a2astore"
	"github.com/mooring-rpc/mooring/client"
)

// sharedTask is testdata/a2a/task.json: a task of a user, and the values that the stores in Go and in JavaScript (clients/js/src/a2a-task-store.ts) make of it.
type sharedTask struct {
	User   string                     `json:"user"`
	Task   *a2a.Task                  `json:"task"`
	Values map[string]json.RawMessage `json:"values"`
}

// same reports whether two values have the same JSON, in whatever order.
func same(t *testing.T, a, b any) bool {
	t.Helper()
	var parsed [2]any
	for i, v := range []any{a, b} {
		text, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(text, &parsed[i]); err != nil {
			t.Fatal(err)
		}
	}
	return reflect.DeepEqual(parsed[0], parsed[1])
}

// The stores in Go and in JavaScript write the same values, and read them as the same task: e2e/a2a has the other half.
func TestSharedWithJavaScript(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../testdata/a2a/task.json")
	if err != nil {
		t.Fatal(err)
	}
	var shared sharedTask
	if err := json.Unmarshal(text, &shared); err != nil {
		t.Fatal(err)
	}
	ctx := as(t.Context(), shared.User)

	r := newRig(t)
	if _, err := a2astore.New(r.session, a2astore.Config{Authenticator: fromContext}).Create(ctx, shared.Task); err != nil {
		t.Fatal(err)
	}
	written := map[string]json.RawMessage{}
	page, err := r.session.ListPage(ctx, client.KeyOptions{Values: true}, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Entries {
		written[e.Key] = e.Payload
	}
	if !same(t, written, shared.Values) {
		text, _ := json.MarshalIndent(written, "", "  ")
		t.Errorf("it writes %s", text)
	}

	r = newRig(t)
	b := r.session.Batch()
	for key, value := range shared.Values {
		b.Put(key, value)
	}
	if results, err := b.CommitWait(ctx); err != nil || results.Err() != nil {
		t.Fatal(err, results.Err())
	}
	store := a2astore.New(r.session, a2astore.Config{Authenticator: fromContext})
	got, err := store.Get(ctx, shared.Task.ID)
	if err != nil {
		t.Fatal(err)
	}
	if !same(t, got.Task, shared.Task) {
		text, _ := json.MarshalIndent(got.Task, "", "  ")
		t.Errorf("it is read as %s", text)
	}
	if l, err := store.List(ctx, &a2a.ListTasksRequest{IncludeArtifacts: true}); err != nil || len(l.Tasks) != 1 || !same(t, l.Tasks[0], shared.Task) {
		t.Errorf("it is listed as %+v: %v", l, err)
	}
}
