package attach

// Making durable what was recorded and asked.

import (
	"context"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// record makes a batch of what opencode did durable.
func (a *attachment) record(ctx context.Context, b *client.Batch) error {
	t, err := a.commit(ctx, b)
	if err != nil || t == nil {
		return err
	}
	select {
	case <-a.tickets: // the newest says it, too
	default:
	}
	a.tickets <- *t
	return nil
}

// watch waits for what becomes of what was recorded. What the server has refused once it will refuse again, so not every batch is waited for.
func (a *attachment) watch() {
	for {
		var t client.Ticket
		select {
		case t = <-a.tickets:
		case <-a.ctx.Done():
			return
		}
		results, err := t.Wait(a.ctx)
		if err == nil {
			err = results.Err()
		}
		if err != nil && a.ctx.Err() == nil {
			a.post(func() error {
				a.cfg.Report(fmt.Sprintf("the server does not take what is recorded: %v", err))
				a.rec.mirror.Forget()
				return nil
			})
		}
	}
}

// commit makes a batch durable. While the outbox has no room, it waits; what opencode does meanwhile is read from it afterwards.
func (a *attachment) commit(ctx context.Context, b *client.Batch) (*client.Ticket, error) {
	if b.Len() == 0 {
		return nil, nil
	}
	for reported := false; ; {
		t, err := b.Commit(a.work)
		switch {
		case err == nil:
			return &t, nil
		case fault.CodeOf(err) == fault.AlreadyExists: // an earlier process has committed another under this id
			return nil, nil
		case !isFull(err):
			return nil, err
		}
		if !reported {
			reported = true
			a.cfg.Report("waiting: " + err.Error())
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-a.ctx.Done():
			return nil, err
		}
	}
}

// isFull reports whether an error says that the outbox takes nothing at present.
func isFull(err error) bool {
	code := fault.CodeOf(err)
	return code == fault.OutboxFull || code == fault.Unavailable || code == fault.DiskFull
}
