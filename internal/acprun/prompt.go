package acprun

// Prompts and stops: from the request to its end.

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/acp"
	"github.com/mooring-rpc/mooring/internal/acprecord"
	"github.com/mooring-rpc/mooring/internal/crashpoint"
)

// follow hands over the session's requests as they change.
func (r *runner) follow() {
	kinds := []string{client.KindPrompt, client.KindStop, client.KindPermission}
	for req, err := range r.cfg.Session.FollowRequests(r.ctx, client.RequestOptions{Kinds: kinds, Ended: true}) {
		if err != nil {
			if r.ctx.Err() == nil {
				r.post(func() error { return fmt.Errorf("follow the session's requests: %w", err) })
			}
			return
		}
		r.post(func() error { return r.request(req) })
	}
}

// request takes a request that is there, or has changed.
func (r *runner) request(req *client.Request) error {
	switch req.Kind {
	case client.KindPermission:
		return r.decided(req)
	case client.KindStop:
		if req.State == client.RequestOpen {
			return r.stop(req)
		}
		return nil
	}
	r.queue = slices.DeleteFunc(r.queue, func(q *client.Request) bool { return q.ID == req.ID })
	mine := req.Claim != nil && req.Claim.Outbox == r.cfg.Client.Outbox().ID() && req.Claim.Worker == worker
	if own := r.own[req.ID]; own != nil && req.State.Ended() {
		r.endedElsewhere(req)
	}
	switch {
	case req.State.Ended(), r.done[req.ID], r.current != nil && r.current.Request == req.ID:
		return nil
	case slices.ContainsFunc(r.leftOver, func(p *prompt) bool { return p.Request == req.ID }):
		return nil // it ends when the agent is ready
	case req.State == client.RequestOpen:
		r.queue = append(r.queue, req)
	case mine && r.journal.prompts[req.ID] == nil:
		b := r.cfg.Session.Batch()
		b.EndUnknown(req.ID, req.Claim.Cursor, "an earlier run had claimed it, and its journal is not there any more")
		return r.commitBatch(b)
	case mine:
		r.queue = slices.Insert(r.queue, 0, req)
	}
	return r.next()
}

// next begins with the next prompt, if there is one and nothing else is worked on.
func (r *runner) next() error {
	if r.current != nil || len(r.queue) == 0 || len(r.leftOver) > 0 || r.held || r.ctx.Err() != nil {
		return nil
	}
	req := r.queue[0]
	r.queue = r.queue[1:]
	r.payload, r.asker, r.stopping = req.Payload, req.AskedBy, time.Time{}
	if p := r.journal.prompts[req.ID]; p != nil && req.Claim != nil { // an earlier run has claimed it
		now := *p
		r.current = &now
		return r.claimed(req.Claim.Cursor)
	}
	r.current = &prompt{Request: req.ID, Stage: Claiming}
	if err := r.stage(Claiming); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.RunClaimBefore)
	b := r.cfg.Session.Batch()
	claim := b.ClaimRequest(req.ID, claimLease, worker)
	go func() {
		results, err := b.CommitWait(r.ctx)
		var result struct{ Claim uint64 }
		if err == nil {
			err = results.Decode(claim, &result)
		}
		r.post(func() error {
			if r.current == nil || r.current.Request != req.ID {
				return nil
			}
			if err != nil { // it is another's, or has ended, or this ref may not
				r.cfg.Report(fmt.Sprintf("prompt %s: %v", req.ID, err))
				if fault.CodeOf(err) != fault.Conflict { // another's answer is the editor's, too
					r.settle(req.ID, nil, err)
				}
				return errors.Join(r.drop(), r.next())
			}
			return r.claimed(result.Claim)
		})
	}()
	return nil
}

// drop forgets the current prompt, which is another's.
func (r *runner) drop() error {
	err := r.stage(Done)
	r.current, r.payload = nil, nil
	return err
}

// stage writes down how far the current prompt has come.
func (r *runner) stage(s Stage) error {
	r.current.Stage = s
	p := *r.current
	return r.journal.write(record{Prompt: &p})
}

// claimed goes on with a prompt that is claimed.
func (r *runner) claimed(claim uint64) error {
	p := r.current
	crashpoint.Hit(crashpoint.RunClaimAfter)
	p.Claim, r.renewed = claim, time.Now()
	if p.Stage == Claiming {
		p.fresh = true
		p.User, p.Turn, p.UUID = "user_"+p.Request, "turn_"+p.Request, uuidOf(r.cfg.Session.ID()+"/"+p.Request)
		if own := r.own[p.Request]; own != nil && own.message != "" {
			p.UUID = own.message
		}
		p.Begin, p.End = ulid.Make().String(), ulid.Make().String()
		p.At, p.First = time.Now().UnixMilli(), r.rec.Begun() == 0
		if err := r.stage(Taken); err != nil {
			return err
		}
	}
	switch {
	case r.agent == nil:
		return r.startAgent()
	case r.agent.ready:
		return r.hand()
	}
	return nil // isReady goes on
}

// isReady goes on when the agent is ready.
func (r *runner) isReady() error {
	for _, p := range r.leftOver {
		if err := r.endLeftOver(p, r.agent.found[p.UUID]); err != nil {
			return err
		}
	}
	r.leftOver = nil
	if r.current != nil && r.current.Stage == Taken {
		return r.hand()
	}
	return r.next()
}

// blocks returns a prompt's payload as content blocks.
func blocks(payload []byte) ([]json.RawMessage, error) {
	var p struct {
		Text    string            `json:"text"`
		Content []json.RawMessage `json:"content"`
	}
	if err := json.Unmarshal(payload, &p); err != nil || p.Text == "" && len(p.Content) == 0 {
		return nil, errors.New(`a prompt's payload is {"text": TEXT} or {"content": [blocks of the Agent Client Protocol]}`)
	}
	if p.Text != "" {
		text, err := json.Marshal(map[string]string{"type": "text", "text": p.Text})
		return append([]json.RawMessage{text}, p.Content...), err
	}
	return p.Content, nil
}

// record records the current prompt, and that its turn begins. It is the same again after a restart.
func (r *runner) record(content []json.RawMessage) error {
	p := r.current
	if r.rec.Turn() == p.Turn {
		return nil
	}
	if err := r.commit(r.rec.CloseUnasked(time.Now())); err != nil {
		return err
	}
	b := r.cfg.Session.Batch().SetID(p.Begin)
	for _, o := range r.rec.Prompt(time.UnixMilli(p.At), p.User, p.Turn, content) {
		addOp(b, o, r.fence.claim)
	}
	if err := r.commitBatch(b); err != nil {
		return err
	}
	if p.First {
		return r.journal.write(record{Begun: r.rec.Begun()})
	}
	return nil
}

// hand hands the current prompt to the agent.
func (r *runner) hand() error {
	p, a := r.current, r.agent
	content, err := blocks(r.payload)
	if err != nil {
		return r.refuse(err.Error())
	}
	if err := r.record(content); err != nil {
		return err
	}
	if !r.stopping.IsZero() {
		p.failed = errors.New("stopped before the agent got it")
		return r.finish(r.rec.Fail(time.Now(), true, "Stopped", "stopped before the agent got it"), map[string]any{"message": p.Turn, "stopReason": acp.StopCancelled})
	}
	r.showPrompt(content)
	crashpoint.Hit(crashpoint.RunHandBefore)
	if err := r.stage(Handing); err != nil {
		return err
	}
	r.payload = nil
	crashpoint.Hit(crashpoint.RunHanding)
	r.call(acp.MethodPrompt, acp.PromptParams{ID: a.session, MessageID: p.UUID, Prompt: content}, r.written(a, p))
	return r.commit(r.rec.SetState(func(s *acprecord.State) { s.State = "working" }))
}

// written returns what is called when all of a prompt was written to an agent, or could not be.
func (r *runner) written(a *agent, p *prompt) func(error) {
	return func(err error) {
		r.postFrom(a, func() error {
			switch {
			case r.agent != a || r.current != p:
			case err != nil:
				return r.failAgent("the prompt could not be sent: " + err.Error())
			case p.Stage == Handing:
				crashpoint.Hit(crashpoint.RunHanded)
				return r.stage(Handed)
			}
			return nil
		})
	}
}

// heard notes that the agent has said something about its turn.
func (r *runner) heard() error {
	if p := r.current; p != nil && (p.Stage == Handing || p.Stage == Handed) {
		if err := r.stage(Heard); err != nil {
			return err
		}
		crashpoint.Hit(crashpoint.RunHeard)
	}
	return nil
}

// prompted takes the agent's answer to the prompt: the turn is over.
func (r *runner) prompted(m acp.Message) error {
	p, now := r.current, time.Now()
	if p == nil {
		return nil
	}
	if err := r.heard(); err != nil {
		return err
	}
	answer := map[string]any{"message": p.Turn}
	if text := r.rec.Answer(); text != "" {
		answer["text"] = text
	}
	var ops []acprecord.Op
	result, err := acp.Read[acp.PromptResult](m.Result)
	switch {
	case m.Error != nil:
		answer["error"], p.failed = m.Error.Error(), m.Error
		ops = r.rec.Fail(now, !r.stopping.IsZero(), "AgentError", m.Error.Error())
	case err != nil:
		answer["error"], p.failed = err.Error(), fmt.Errorf("the agent's answer to the prompt is %w", err)
		ops = r.rec.Fail(now, !r.stopping.IsZero(), "AgentError", "the agent's answer to the prompt is "+err.Error())
	default:
		answer["stopReason"], p.result = result.StopReason, m.Result
		ops = r.rec.Result(now, &result)
	}
	if err := r.cancelAsks(); err != nil {
		return err
	}
	if err := r.finish(ops, answer); err != nil {
		return err
	}
	if err := r.commit(r.rec.SetState(func(s *acprecord.State) { s.State = "ready" })); err != nil {
		return err
	}
	return r.next()
}

// finish ends the current prompt: its turn by ops, its request by an answer.
func (r *runner) finish(ops []acprecord.Op, answer map[string]any) error {
	p := r.current
	return r.end(p, ops, func(b *client.Batch) { b.Answer(p.Request, client.AnswerOptions{Payload: answer, Claim: p.Claim}) })
}

// end ends a prompt, in one batch that has the turn's end and the request's: an earlier run may have committed it.
func (r *runner) end(p *prompt, ops []acprecord.Op, request func(b *client.Batch)) error {
	last := slices.IndexFunc(ops, func(o acprecord.Op) bool { return o.Status != "" })
	if err := r.commit(ops[:max(last, 0)]); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.RunEndBefore)
	b := r.cfg.Session.Batch().SetID(p.End)
	if last >= 0 {
		addOp(b, ops[last], r.fence.claim)
	}
	request(b)
	if err := r.commitBatch(b); err != nil {
		return err
	}
	crashpoint.Hit(crashpoint.RunEndAfter)
	p.Stage = Done
	if err := r.journal.write(record{Prompt: p}); err != nil {
		return err
	}
	r.done[p.Request] = true
	r.settle(p.Request, p.result, p.failed)
	if r.current == p {
		r.current, r.payload, r.stopping = nil, nil, time.Time{}
	}
	return r.commit(ops[last+1:])
}

// refuse ends the current prompt, which the agent did not get.
func (r *runner) refuse(why string) error {
	p := r.current
	p.failed = errors.New("the agent did not get it: " + why)
	content, err := blocks(r.payload)
	if err != nil {
		content = []json.RawMessage{}
	}
	if err := r.record(content); err != nil {
		return err
	}
	err = r.finish(r.rec.Fail(time.Now(), !r.stopping.IsZero(), "NotHanded", why), map[string]any{"message": p.Turn, "error": p.failed.Error()})
	if err != nil || !r.everReady {
		return err
	}
	return r.next()
}

// giveBack gives the current prompt back, which the agent did not get, and of which nothing is recorded: it is open again.
// One of which something may be recorded stays claimed, and the next run goes on with it.
func (r *runner) giveBack() error {
	p := r.current
	if !p.fresh || r.rec.Turn() == p.Turn {
		return nil
	}
	b := r.cfg.Session.Batch()
	b.ReleaseRequest(p.Request, p.Claim)
	return errors.Join(r.commitBatch(b), r.drop())
}

// endUnknown ends a prompt of which nobody knows whether the agent has got it.
func (r *runner) endUnknown(p *prompt, why string) error {
	const text = "nobody knows whether the agent got it: "
	p.failed = errors.New(text + why)
	ops := []acprecord.Op{r.rec.Abandoned(p.Turn, false, "Unknown", text+why)}
	if r.rec.Turn() == p.Turn {
		ops = r.rec.Fail(time.Now(), false, "Unknown", text+why)
	}
	return r.end(p, ops, func(b *client.Batch) { b.EndUnknown(p.Request, p.Claim, text+short(why)) })
}

// interrupted ends a prompt that the agent has got and not finished.
func (r *runner) interrupted(p *prompt, why string) error {
	stopped := r.current == p && !r.stopping.IsZero()
	p.failed = errors.New(why)
	ops := []acprecord.Op{r.rec.Abandoned(p.Turn, stopped, "Interrupted", why)}
	if r.rec.Turn() == p.Turn {
		ops = r.rec.Fail(time.Now(), stopped, "Interrupted", why)
	}
	return r.end(p, ops, func(b *client.Batch) {
		b.Answer(p.Request, client.AnswerOptions{Payload: map[string]any{"message": p.Turn, "error": why}, Claim: p.Claim})
	})
}

// endLeftOver ends a prompt of an earlier run.
func (r *runner) endLeftOver(p *prompt, found bool) error {
	if FateOf(p.Stage, found) == Interrupted {
		return r.interrupted(p, "the runner was ended while the agent worked on it")
	}
	return r.endUnknown(p, "the runner was ended while it was handed over")
}

// short returns a reason as a request may have it.
func short(why string) string {
	if len(why) > 200 {
		return fault.Clip(why)
	}
	return why
}

// stop stops the turn that a request names, if that is running.
func (r *runner) stop(req *client.Request) error {
	p := r.current
	running := p != nil && p.Turn != "" && p.Turn == req.Message
	b := r.cfg.Session.Batch()
	b.Answer(req.ID, client.AnswerOptions{Payload: map[string]bool{"stopped": running}})
	if err := r.commitBatch(b); err != nil || !running {
		return err
	}
	return r.stopTurn()
}

// stopTurn stops what is worked on.
func (r *runner) stopTurn() error {
	switch p := r.current; {
	case p == nil || !r.stopping.IsZero():
		return nil
	case p.Stage == Claiming || p.Stage == Taken:
		r.stopping = time.Now()
		return nil
	}
	return r.cancelTurn()
}

// cancelTurn asks the agent to end its turn.
func (r *runner) cancelTurn() error {
	r.stopping = time.Now()
	r.send(acp.Notify(acp.MethodCancel, acp.CancelParams{ID: r.agent.session}), nil)
	return r.cancelAsks()
}
