package acprun

// The fence: a session has one runner at a time, on whatever machines. The runner claims the key of the agent's state, and its
// puts of that name the claim: one that was cut off for longer than its lease is refused, and ends if another has come.

import (
	"context"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/acprecord"
)

const (
	fenceLease = 5 * time.Minute
	fenceEvery = 2 * time.Minute // the claim is renewed
	fenceWait  = 3 * time.Second // for a server that can be reached, before the agent starts
)

// fence is the claim of the session's agent.
type fence struct {
	claim    any       // what ops name: its cursor, or the *client.Promise of the newest that was asked for; nil: there is none
	asked    time.Time // when that was
	watching bool      // the outcome of a put is waited for
}

// takeFence claims the agent, and waits for the answer while the server can be reached. Without a server the agent starts all the
// same: it gets no prompt before the server is back, and has answered.
func (r *runner) takeFence() error {
	answer, err := r.claimAgent(r.journal.records == 0 && !r.hasState())
	if err != nil {
		return err
	}
	limit := time.NewTimer(fenceWait)
	defer limit.Stop()
	look := time.NewTicker(fenceWait / 20)
	defer look.Stop()
	for {
		select {
		case f := <-answer:
			return f()
		case <-look.C:
			if r.cfg.Client.ConnErr() == nil {
				continue
			}
		case <-limit.C:
		case <-r.ctx.Done():
		}
		go r.postWhen(answer)
		return nil
	}
}

// postWhen has the loop take an answer when it comes.
func (r *runner) postWhen(answer <-chan func() error) {
	select {
	case f := <-answer:
		r.post(f)
	case <-r.ctx.Done():
	}
}

// hasState reports whether the session is known to have a state of an agent.
func (r *runner) hasState() bool {
	ctx, stop := context.WithTimeout(r.ctx, fenceWait)
	defer stop()
	page, err := r.cfg.Session.Get(ctx, acprecord.StateKey)
	return err == nil && len(page.Entries) > 0
}

// claimAgent claims the agent, or renews the claim. What is to be done with the answer comes on the channel. Where the
// session has no state yet, it puts one.
func (r *runner) claimAgent(first bool) (<-chan func() error, error) {
	b := r.cfg.Session.Batch()
	if first {
		for _, o := range r.rec.SetState(func(s *acprecord.State) { s.State = "starting" }) {
			addOp(b, o, nil)
		}
	}
	claim := b.Claim(acprecord.StateKey, fenceLease, worker)
	ticket, err := r.commitTicket(b)
	if err != nil {
		return nil, err
	}
	r.fence.claim, r.fence.asked = claim, time.Now()
	answer := make(chan func() error, 1)
	go func() {
		if results, err := ticket.Wait(r.ctx); len(results) > 0 {
			answer <- func() error { return r.fenced(claim, results) }
		} else if r.ctx.Err() == nil {
			answer <- func() error { return fmt.Errorf("claim the session's agent: %w", err) }
		}
	}()
	return answer, nil
}

// fenced takes the answer to a claim.
func (r *runner) fenced(claim *client.Promise, results client.Results) error {
	var result struct{ Claim uint64 }
	err := results.Decode(claim, &result)
	switch fault.CodeOf(err) {
	case fault.None:
		if r.fence.claim == any(claim) {
			r.fence.claim = result.Claim
		}
		return nil
	case fault.Conflict:
		r.fence = fence{}
		return r.inUse()
	case fault.NotFound: // somebody has removed the state
		return r.renewFence(true)
	}
	r.fence = fence{}
	return fmt.Errorf("this ref cannot record what an agent does: %w", err)
}

// renewFence claims the agent again.
func (r *runner) renewFence(first bool) error {
	answer, err := r.claimAgent(first)
	if err == nil {
		go r.postWhen(answer)
	}
	return err
}

// inUse returns an error that says who has the agent.
func (r *runner) inUse() error {
	ctx, stop := context.WithTimeout(r.work, fenceWait)
	defer stop()
	who := ""
	if page, err := r.cfg.Session.Get(ctx, acprecord.StateKey); err == nil && len(page.Entries) > 0 && page.Entries[0].Claim != nil {
		c := page.Entries[0].Claim
		who = fmt.Sprintf(" (%s, with the outbox %s, until %s if it does not renew that)", c.Actor, c.Outbox, c.Until.Local().Format(time.TimeOnly))
	}
	return fault.InUse.With("another runner works in this session%s: end that, or wait", who)
}

// watchFence looks whether a batch with a put of the agent's state applies, unless an earlier one is being waited for: if it
// does not, neither do those after it.
func (r *runner) watchFence(ticket client.Ticket) {
	if r.fence.claim == nil || r.fence.watching {
		return
	}
	r.fence.watching = true
	go func() {
		results, _ := ticket.Wait(r.ctx)
		if r.ctx.Err() != nil {
			return
		}
		r.post(func() error {
			r.fence.watching = false
			code := fault.CodeOf(results.Err())
			if r.fence.claim == nil || code != fault.Conflict && code != fault.Skipped {
				return nil
			}
			if err := r.renewFence(false); err != nil { // it has lapsed, and may be another's
				return err
			}
			return r.commit(r.rec.SetState(func(*acprecord.State) {}))
		})
	}()
}

// releaseFence lets another runner come.
func (r *runner) releaseFence() error {
	if r.fence.claim == nil {
		return nil
	}
	b := r.cfg.Session.Batch()
	b.Release(acprecord.StateKey, r.fence.claim)
	return r.commitBatch(b)
}
