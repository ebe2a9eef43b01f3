package a2astore

// Lists of tasks.

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/changelist"
)

// The sizes of a page, and the messages of each task's history, where a request says nothing.
const (
	defaultPage    = 50
	maxPage        = 100
	defaultHistory = 100
)

// List implements taskstore.Store: the tasks of the caller, the one that was changed last first. A page's token has the session's cursor when the first page was
// read. Tasks that have changed since then come last, the earliest change first, as they are now: so none is missed, and some may come again. It reads the tasks'
// own values, however many there are, at each page. TotalSize counts the tasks that the request is about.
func (s *Store) List(ctx context.Context, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	user, err := s.caller(ctx)
	if err != nil {
		return nil, err
	}
	size := cmp.Or(req.PageSize, defaultPage)
	if size < 1 || size > maxPage {
		return nil, fmt.Errorf("page size must be between 1 and %d inclusive, got %d: %w", maxPage, size, a2a.ErrInvalidRequest)
	}
	at, ok := changelist.Parse(req.PageToken)
	if !ok {
		return nil, a2a.ErrParseError
	}
	var all []changelist.Item[*a2a.Task] // without history and artifacts
	after, cursor := "", uint64(0)
	for {
		page, err := s.session.ListPage(ctx, client.KeyOptions{Prefix: kindTask + "/", Values: true}, after, 0)
		if err != nil {
			return nil, fmt.Errorf("list tasks: %w", err)
		}
		for _, e := range page.Entries {
			t, err := ownTask(e.Payload, user)
			if err != nil {
				return nil, fmt.Errorf("the value of %s: %w", e.Key, err)
			}
			if t != nil && matches(t, req) {
				all = append(all, changelist.Item[*a2a.Task]{Cursor: e.Cursor, ID: string(t.ID), Of: t})
			}
		}
		cursor = cmp.Or(cursor, page.Cursor)
		if after = page.Next; after == "" {
			break
		}
	}
	page, next := changelist.Page(at, cursor, all, size)
	res := &a2a.ListTasksResponse{Tasks: make([]*a2a.Task, 0, len(page)), TotalSize: len(all), PageSize: size, NextPageToken: next}
	for _, l := range page {
		t, err := s.fill(ctx, l.Of, req)
		if err != nil {
			return nil, err
		}
		res.Tasks = append(res.Tasks, t)
	}
	return res, nil
}

// ownTask returns the task of a value, if it is the user's. What others have written is not looked at: it may be what the SDK cannot read.
func ownTask(value []byte, user string) (*a2a.Task, error) {
	if gjson.GetBytes(value, "user").Str != user {
		return nil, nil
	}
	var t taskRow
	err := json.Unmarshal(value, &t)
	return t.Task, err
}

// matches reports whether a request is about a task.
func matches(t *a2a.Task, req *a2a.ListTasksRequest) bool {
	return (req.ContextID == "" || t.ContextID == req.ContextID) &&
		(req.Status == a2a.TaskStateUnspecified || t.Status.State == req.Status) &&
		(req.StatusTimestampAfter == nil || t.Status.Timestamp == nil || !t.Status.Timestamp.Before(*req.StatusTimestampAfter))
}

// fill gives a task as much of its history, and its artifacts, as a request asks for.
func (s *Store) fill(ctx context.Context, t *a2a.Task, req *a2a.ListTasksRequest) (*a2a.Task, error) {
	history := defaultHistory
	if req.HistoryLength != nil {
		history = *req.HistoryLength
	}
	if history == 0 && !req.IncludeArtifacts {
		return t, nil
	}
	whole, _, err := s.read(ctx, t.ID)
	if err != nil {
		return nil, err
	}
	if history >= 0 && len(whole.History) > history {
		whole.History = whole.History[len(whole.History)-history:]
	}
	if !req.IncludeArtifacts {
		whole.Artifacts = nil
	}
	return whole, nil
}
