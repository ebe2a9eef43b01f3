package acprun

// Permissions: an agent's question becomes a request, whose answer goes to that question alone.

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/acprecord"
)

// asked is a permission that the agent waits for.
type asked struct {
	id      json.RawMessage   // of the agent's question
	options map[string]string // the agent's ids, by the request's
	reject  string            // the agent's id of the option that refuses it this time; "" if it offers none
	digest  string            // of what is shown

	withdraw func()    // from the editor; nil if it was not asked, or has answered
	answered time.Time // by the editor, whose answer is on its way; zero: not
}

// Bounds of permissions.
const (
	maxAsks      = 16      // that an agent waits for at a time
	maxShown     = 1 << 20 // bytes of what is shown; more cannot be read before it is answered
	maxChoices   = 32
	maxChoiceID  = 64
	maxChoiceTxt = 200
)

// permission asks people what the agent asks.
func (r *runner) permission(m acp.Message) error {
	a, p := r.agent, r.current
	params, err := acp.Read[acp.PermissionParams](m.Params)
	if err != nil {
		r.send(acp.Refusal(m.ID, acp.CodeInvalidParams, err.Error()), nil)
		return nil
	}
	if !a.ready || params.ID != a.session || p == nil || r.rec.Turn() != p.Turn || !r.stopping.IsZero() {
		r.send(acp.Result(m.ID, acp.Cancelled()), nil) // no turn that anybody could answer for
		return nil
	}
	if err := r.heard(); err != nil {
		return err
	}
	ask, choices := &asked{id: m.ID, options: map[string]string{}}, []client.Choice{}
	for i, o := range params.Opts[:min(len(params.Opts), maxChoices)] {
		id := o.ID
		if id == "" || len(id) > maxChoiceID || ask.options[id] != "" || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
			id = fmt.Sprintf("option_%d", i+1)
		}
		ask.options[id] = o.ID
		choices = append(choices, client.Choice{ID: id, Label: clip(o.Name, maxChoiceTxt), Kind: clip(o.Kind, maxChoiceID)})
		if o.Kind == "reject_once" && ask.reject == "" {
			ask.reject = o.ID
		}
	}
	payload := r.rec.Shown(params.Tool)
	switch {
	case len(choices) == 0:
		r.send(acp.Refusal(m.ID, acp.CodeInvalidParams, "there are no options"), nil)
		return nil
	case len(payload) > maxShown || len(a.asks) >= maxAsks:
		r.refuseAsk(ask)
		return r.commit(r.rec.SetState(func(s *acprecord.State) {
			s.Note = fmt.Sprintf("a permission was refused: what it is for has %d bytes, and %d others wait", len(payload), len(a.asks))
		}))
	}
	b := r.cfg.Session.Batch()
	id, _ := b.Ask(client.KindPermission, payload, client.AskOptions{Message: p.Turn, Choices: choices, Expires: r.cfg.PermissionTimeout})
	a.asks[id] = ask
	ticket, err := b.Commit(r.work)
	if err != nil {
		return err
	}
	r.committed = time.Now()
	r.askEditor(id, ask, payload, m)
	go func() { // this ref may not be allowed to ask
		results, err := ticket.Wait(r.ctx)
		if err == nil {
			err = results.Err()
		}
		if err == nil || r.ctx.Err() != nil {
			return
		}
		r.post(func() error {
			if r.agent != a || a.asks[id] == nil {
				return nil
			}
			r.endAsk(id)
			r.refuseAsk(ask)
			r.cfg.Report("a permission could not be asked for, and was refused: " + err.Error())
			return r.commit(r.rec.SetState(func(s *acprecord.State) {
				s.Note = "a permission could not be asked for, and was refused: " + err.Error()
			}))
		})
	}()
	return nil
}

// decided takes what became of a permission.
func (r *runner) decided(req *client.Request) error {
	if r.agent == nil || !req.State.Ended() {
		return nil
	}
	ask := r.agent.asks[req.ID]
	if ask == nil {
		return nil
	}
	r.endAsk(req.ID)
	if option, ok := ask.options[req.Choice]; ok && req.State == client.RequestAnswered {
		r.send(acp.Result(ask.id, acp.Selected(option)), nil)
		return nil
	}
	r.refuseAsk(ask)
	return nil
}

// endAsk ends a permission that the agent waits for: it is about to be answered.
func (r *runner) endAsk(id string) {
	ask := r.agent.asks[id]
	delete(r.agent.asks, id)
	if ask.withdraw != nil {
		ask.withdraw()
	}
}

// refuseAsk tells the agent that it may not.
func (r *runner) refuseAsk(ask *asked) {
	if ask.reject != "" {
		r.send(acp.Result(ask.id, acp.Selected(ask.reject)), nil)
		return
	}
	r.send(acp.Result(ask.id, acp.Cancelled()), nil)
}

// cancelAsks ends the permissions that the agent waits for: its turn is over, or about to be.
func (r *runner) cancelAsks() error {
	b := r.cfg.Session.Batch()
	for id, ask := range r.agent.asks {
		r.endAsk(id)
		r.send(acp.Result(ask.id, acp.Cancelled()), nil)
		b.Withdraw(id, "the turn was stopped, or is over")
	}
	return r.commitBatch(b)
}

// clip returns the beginning of a text, of n bytes at most.
func clip(s string, n int) string {
	if len(s) > n {
		s = strings.ToValidUTF8(s[:n-len("…")], "") + "…"
	}
	return s
}
