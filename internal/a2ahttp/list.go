package a2ahttp

// Lists of tasks.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/a2aproject/a2a-go/v2/a2a"

	"github.com/mooring-rpc/mooring/internal/changelist"
	"github.com/mooring-rpc/mooring/internal/session"
)

// The sizes of a page.
const (
	defaultPage = 50
	maxPage     = 100
)

// isOwn reports whether an id can be that of a task of a ref.
func isOwn(ref, id string) bool { return strings.HasPrefix(id, prefixOf(ref)) }

// changed is when a task was changed last.
type changed struct {
	cursor uint64
	at     int64 // Unix ms
}

// ListTasks implements a2asrv.RequestHandler: the tasks of the call's ref, the one that was changed last first (package
// changelist). TotalSize counts those that the request is about.
func (s *server) ListTasks(ctx context.Context, req *a2a.ListTasksRequest) (*a2a.ListTasksResponse, error) {
	c := callOf(ctx)
	size := cmp.Or(req.PageSize, defaultPage)
	if size < 1 || size > maxPage {
		return nil, refusal(a2a.ErrInvalidParams, fmt.Sprintf("pageSize is 1 to %d", maxPage))
	}
	at, ok := changelist.Parse(req.PageToken)
	if !ok {
		return nil, refusal(a2a.ErrInvalidParams, "pageToken is none of this server's")
	}
	known, cursor, err := s.known(ctx, c)
	if err != nil {
		return nil, s.refuse(c, err)
	}
	var all []changelist.Item[a2a.TaskID]
	for id, last := range known {
		if req.StatusTimestampAfter != nil && last.at < req.StatusTimestampAfter.UnixMilli() || req.ContextID != "" && req.ContextID != c.live.Target() {
			continue
		}
		if req.Status != a2a.TaskStateUnspecified {
			t, err := s.readRequest(ctx, c, id)
			if errors.Is(err, a2a.ErrTaskNotFound) {
				continue
			}
			if err != nil {
				return nil, err
			}
			t.release()
			if statusOf(t.of, &t.Prompt).State != req.Status {
				continue
			}
		}
		all = append(all, changelist.Item[a2a.TaskID]{Cursor: last.cursor, ID: string(id), Of: id})
	}
	total := len(all)
	page, next := changelist.Page(at, cursor, all, size)
	res := &a2a.ListTasksResponse{Tasks: make([]*a2a.Task, 0, len(page)), TotalSize: total, PageSize: size, NextPageToken: next}
	read := s.readRequest
	if req.IncludeArtifacts {
		read = s.read
	}
	for _, i := range page {
		t, err := read(ctx, c, i.Of)
		if errors.Is(err, a2a.ErrTaskNotFound) { // somebody else has asked under its id
			continue
		}
		if err != nil {
			return nil, err
		}
		defer t.given()
		var a *artifacts
		if req.IncludeArtifacts {
			a = newArtifacts(t.of)
		}
		one, err := s.snapshot(ctx, t, a, req.HistoryLength)
		if err != nil {
			return nil, err
		}
		res.Tasks = append(res.Tasks, one)
	}
	return res, nil
}

// known returns when each task of the call's ref was changed last, as of a cursor.
func (s *server) known(ctx context.Context, c *call) (all map[a2a.TaskID]changed, cursor uint64, err error) {
	all = map[a2a.TaskID]changed{}
	prefix := session.RequestKey(prefixOf(c.live.Ref()))
	q := session.KeyQuery{From: prefix, Below: prefix + "g", Limit: session.MaxListKeys} // what follows is hexadecimal
	for {
		page, err := c.live.ListKeys(ctx, q)
		if err != nil {
			return nil, 0, err
		}
		cursor = cmp.Or(cursor, page.Row.Cursor)
		for _, e := range page.Entries {
			id, state, _ := session.RequestOf(e.Key)
			if by := e.Change.Ref; !state && by != "" && by != c.live.Ref() || state && all[a2a.TaskID(id)].cursor == 0 { // somebody else has asked under this id
				continue
			}
			if last := all[a2a.TaskID(id)]; e.Changed() > last.cursor {
				all[a2a.TaskID(id)] = changed{e.Changed(), e.Change.At}
			}
		}
		if !page.More {
			return all, cursor, nil
		}
		q.After = page.Next
	}
}
