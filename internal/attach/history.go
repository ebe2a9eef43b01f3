package attach

// What opencode's history says of prompts and turns.

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

// search looks in opencode's history for the current prompt, which an earlier process may have handed over.
func (a *attachment) search() error {
	p := a.current
	err := a.api.EachMessage(a.ctx, a.id, func(text json.RawMessage) error {
		var m message
		if json.Unmarshal(text, &m) != nil {
			return nil
		}
		for _, part := range m.Parts {
			if m.Info.Role == "user" && part.Metadata.Mooring.Request == p.Request {
				p.Message = m.Info.ID
			}
		}
		return nil
	})
	if a.lost = err != nil; err != nil || p.Message == "" {
		return err
	}
	a.lookAt = time.Now()
	return a.stage(handed)
}

// stop stops the turn that a request names, if that is running.
func (a *attachment) stop(req *client.Request, busy bool) error {
	running := false
	if busy {
		list, err := a.messages(recent)
		if err != nil {
			return err
		}
		running = isRunning(list, req.Message)
	}
	if running {
		if err := a.api.Post(a.ctx, opencodeapi.SessionPath(a.id, "abort"), nil); err != nil {
			return err
		}
	}
	b := a.cfg.Session.Batch()
	b.Answer(req.ID, client.AnswerOptions{Payload: map[string]bool{"stopped": running}})
	_, err := a.commit(a.ctx, b)
	return err
}

// isRunning reports whether a message is of the turn that the last of a list are of.
func isRunning(list []message, id string) bool {
	last := ""
	for _, m := range list {
		if m.Info.Role == "user" {
			last = m.Info.ID
		}
	}
	return slices.ContainsFunc(list, func(m message) bool { return m.Info.ID == id && (id == last || m.Info.Parent == last) })
}
