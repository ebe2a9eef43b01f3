package attach

// Claiming prompts, before they are handed over.

import (
	"fmt"
	"slices"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/client"
)

// claim claims the next prompt.
func (a *attachment) claim() error {
	req := a.queue[0]
	a.queue = a.queue[1:]
	a.current, a.payload = &prompt{Request: req.ID}, slices.Concat(req.Payload) // not nil
	if a.payload == nil {
		a.payload = []byte{}
	}
	if req.Claim != nil {
		a.lost = true
		a.current.Stage = claiming
		return a.claimed(req.Claim.Cursor)
	}
	if err := a.stage(claiming); err != nil {
		a.current, a.payload, a.queue = nil, nil, append([]*client.Request{req}, a.queue...)
		return err
	}
	b := a.cfg.Session.Batch()
	claim := b.ClaimRequest(req.ID, claimLease, worker)
	a.tasks.Go(func() {
		results, err := b.CommitWait(a.ctx)
		var result struct{ Claim uint64 }
		if err == nil {
			err = results.Decode(claim, &result)
		}
		a.post(func() error {
			return a.ask("take a prompt", func() error {
				switch p := a.current; {
				case p == nil || p.Request != req.ID || p.Stage != claiming:
					return nil
				case err != nil && a.ctx.Err() != nil:
					return nil
				case isFull(err):
					a.queue = append([]*client.Request{req}, a.queue...)
					err := a.drop()
					a.lookAt = time.Now().Add(lookEvery)
					return err
				case err != nil: // it is another's, or has ended, or this ref may not
					a.cfg.Report(fmt.Sprintf("prompt %s: %v", req.ID, err))
					a.done[req.ID] = true
					return a.drop()
				}
				return a.claimed(result.Claim)
			})
		})
	})
	return nil
}

// claimed takes the current prompt, which is claimed.
func (a *attachment) claimed(claim uint64) (err error) {
	p := a.current
	p.Claim, p.End, a.renewed, a.lookAt = claim, ulid.Make().String(), time.Now(), time.Now()
	if p.Parts, err = parts(a.payload); err != nil {
		p.Refused = err.Error()
	} else {
		p.Parts[0].Metadata = &partMetadata{partOrigin{p.Request}}
	}
	a.payload = nil
	return a.stage(taken)
}
