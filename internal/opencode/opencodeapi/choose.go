package opencodeapi

// Which of opencode's sessions is meant.

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/mooring-rpc/mooring/fault"
)

// Info is what is looked at of a session's info.
type Info struct {
	ID        string `json:"id"`
	Title     string `json:"title"`
	Parent    string `json:"parentID"`
	Directory string `json:"directory"`
	Time      struct {
		Updated  int64 `json:"updated"`
		Archived int64 `json:"archived"`
	} `json:"time"`
}

// Use has requests be for a folder, where Choose cannot ask.
func (a *API) Use(directory string) { a.dir = directory }

// maxListed bounds the sessions that an error lists.
const maxListed = 10

// Choose returns the session of an id or, for "", the one that was updated last. Requests are then for its folder.
func (a *API) Choose(ctx context.Context, id string) (*Info, error) {
	var health struct {
		Version string `json:"version"`
	}
	if err := a.Get(ctx, "/global/health", nil, &health); err != nil && !IsStatus(err, http.StatusNotFound) { // older ones have no such path
		return nil, err
	}
	if id == "" {
		list, err := a.sessions(ctx)
		if err != nil {
			return nil, err
		}
		list = slices.DeleteFunc(list, func(s Info) bool { return s.Parent != "" || s.Time.Archived != 0 })
		slices.SortStableFunc(list, func(x, y Info) int { return int(y.Time.Updated - x.Time.Updated) })
		switch {
		case len(list) == 0:
			return nil, fault.NotFound.With("opencode at %s has no session in its folder: begin one there, or name one of another folder with --opencode-session ses_…", a)
		case len(list) > 1 && list[0].Time.Updated == list[1].Time.Updated:
			return nil, fault.Ambiguous.With("opencode has %d sessions, and the newest two were updated at the same time: say which with --opencode-session: %s", len(list), listed(list))
		}
		a.dir = list[0].Directory
		return &list[0], nil
	}
	info := &Info{}
	err := a.Get(ctx, SessionPath(id), nil, info)
	if IsStatus(err, http.StatusNotFound) || IsStatus(err, http.StatusBadRequest) {
		list, err := a.sessions(ctx)
		if err != nil {
			return nil, err
		}
		return nil, fault.NotFound.With("opencode at %s has no session %s; it has %s", a, fault.Clip(id), listed(list))
	}
	a.dir = info.Directory
	return info, err
}

// sessions returns the sessions of opencode's folder.
func (a *API) sessions(ctx context.Context) (list []Info, err error) {
	err = a.Get(ctx, "/session", nil, &list)
	if IsStatus(err, http.StatusNotFound) {
		err = fault.Incompatible.Because(err, "what answers at %s is not opencode: it has no sessions", a)
	}
	return list, err
}

// listed returns a list of sessions for people, the newest first.
func listed(list []Info) string {
	var items []string
	for _, s := range list[:min(len(list), maxListed)] {
		title := strings.Map(func(c rune) rune {
			if unicode.IsPrint(c) {
				return c
			}
			return ' '
		}, fault.Clip(s.Title))
		items = append(items, fmt.Sprintf("%s (%s, %q)", s.ID, time.UnixMilli(s.Time.Updated).UTC().Format("2006-01-02T15:04:05Z"), title))
	}
	if n := len(list) - maxListed; n > 0 {
		items = append(items, fmt.Sprintf("and %d more", n))
	}
	if len(list) == 0 {
		return "none"
	}
	return strings.Join(items, ", ")
}
