package acprecord

// The agent's state: a value of an own kind, so that whoever reads the session sees how the agent is.

import (
	"encoding/json"
	"math"
	"slices"

	"github.com/mooring-rpc/mooring/internal/acp"
)

// StateKey is the key of the State.
const StateKey = "agent"

// State is what the session says of the agent.
type State struct {
	State    string          `json:"state"`           // starting, ready, working, ended or failed
	Error    string          `json:"error,omitempty"` // why it ended or failed
	Note     string          `json:"note,omitempty"`  // what people should know of it
	Name     string          `json:"name,omitempty"`
	Version  string          `json:"version,omitempty"`
	Mode     string          `json:"mode,omitempty"`
	Modes    []acp.Mode      `json:"modes,omitempty"`
	Commands json.RawMessage `json:"commands,omitempty"`
	Options  json.RawMessage `json:"options,omitempty"`
	Usage    *usage          `json:"usage,omitempty"`
}

type usage struct {
	Used json.Number `json:"used,omitempty"` // tokens of the context
	Size json.Number `json:"size,omitempty"`
	Cost *acp.Cost   `json:"cost,omitempty"` // of the session
}

// SetState changes the state; the op is made at once.
func (r *Recorder) SetState(change func(*State)) []Op {
	change(&r.state)
	r.state.Error, r.state.Note = clip(r.state.Error, 4000), clip(r.state.Note, 4000)
	r.state.Name, r.state.Version, r.state.Mode = clip(r.state.Name, 200), clip(r.state.Version, 200), clip(r.state.Mode, 200)
	r.state.Modes = slices.Clone(r.state.Modes[:min(len(r.state.Modes), 50)])
	for i, m := range r.state.Modes {
		r.state.Modes[i] = acp.Mode{ID: clip(m.ID, 200), Name: clip(m.Name, 200), Description: clip(m.Description, 1000)}
	}
	r.stale = true
	return r.flushState()
}

// note takes over an update of the state.
func (r *Recorder) note(ms int64, u *acp.Update) {
	switch u.Kind {
	case acp.ModeUpdate:
		r.state.Mode = clip(u.Mode, 200)
	case acp.CommandsUpdate:
		r.state.Commands = short(u.Commands)
	case acp.OptionsUpdate:
		r.state.Options = short(u.Options)
	case acp.UsageUpdate:
		r.state.Usage = &usage{Used: short(u.Used), Size: short(u.Size), Cost: u.Cost}
		if u.Cost != nil && !math.IsInf(u.Cost.Amount, 0) {
			u.Cost.Currency = clip(u.Cost.Currency, 10)
			r.cost = u.Cost.Amount
		}
	default:
		return
	}
	r.stale = true
	r.wait(ms, r.cfg.Gather)
}

// short returns JSON text, or nothing if it is long: it is shown whole or not at all.
func short[T ~string | ~[]byte](text T) T {
	if len(text) > shownBytes {
		return text[:0]
	}
	return text
}

// flushState returns the op that puts the state, if it has changed.
func (r *Recorder) flushState() []Op {
	if !r.stale {
		return nil
	}
	r.stale = false
	return []Op{put(StateKey, r.state)}
}
