package relay

// Creating a share.

import (
	"context"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/outbox"
)

// create makes a share of the session that opencode calls external. The same create within dedupeFor returns the same share, unless it has
// ended, with another secret; any other makes another share, as on a server.
func (r *Relay) create(ctx context.Context, external string) (*opencode.CreateReply, error) {
	if err := opencode.CheckSessionID(external); err != nil {
		return nil, err
	}
	r.creating.Lock()
	defer r.creating.Unlock()
	s, err := r.recent(external)
	if s == nil && err == nil {
		s, err = r.make(ctx, external)
	}
	if err != nil {
		return nil, err
	}
	secret, err := s.addSecret()
	if err != nil {
		return nil, err
	}
	return &opencode.CreateReply{ID: s.rec.ID, URL: s.rec.URL, Secret: secret}, nil
}

// recent returns the share that a create repeats; nil if there is none. The error is Overloaded if there are too many shares for another.
func (r *Relay) recent(external string) (found *share, err error) {
	now, living := r.cfg.Now().UnixMilli(), 0
	for _, s := range r.all() {
		if s.living() != nil {
			continue
		}
		living++
		if age := now - s.rec.Created; s.rec.External == external && age >= 0 && age < dedupeFor.Milliseconds() && (found == nil || s.rec.Created > found.rec.Created) {
			found = s
		}
	}
	if found == nil && living >= maxShares {
		return nil, fault.Overloaded.With("there are %d shares: unshare some sessions", living)
	}
	return found, nil
}

// checkSpace refuses a create under a ref that has ended, if the server has refused something and can be asked.
func (r *Relay) checkSpace(ctx context.Context) error {
	if !r.doubt.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	d, err := r.cfg.Space.Describe(ctx)
	switch {
	case err == nil && d.Grant.Dead != fault.None:
		return d.Grant.Dead.With("the ref that the relay creates shares under allows nothing any more")
	case err == nil && !d.Grant.Rights.Has(capability.Create):
		return fault.MissingRight.With("the ref that the relay creates shares under may not create sessions")
	case err == nil:
		r.doubt.Store(false)
	case fault.CodeOf(err).Authority():
		return err
	}
	return nil
}

// make makes a share's session, durable in the outbox.
func (r *Relay) make(ctx context.Context, external string) (*share, error) {
	if err := r.checkSpace(ctx); err != nil {
		return nil, err
	}
	owner := r.cfg.Space.NewOwner()
	made, b := r.cfg.Space.Create(client.CreateOptions{External: external, SharedExternal: true, ByTime: true, Label: "opencode session", Owner: owner, BatchID: outbox.NewBatchID()})
	reader, _ := b.Share(client.ShareOptions{Rights: capability.Read, Public: true, Label: "opencode readers"})
	id := capability.PublicID(reader.ID, reader.Secret.Hash())
	s := r.shareOf(made, record{ID: id, External: external, Owner: owner.Text(), Reader: reader.ID, URL: owner.WebAddress() + "/share/" + id, Batch: b.ID(), Created: r.cfg.Now().UnixMilli()})
	if err := s.save(); err != nil {
		return nil, err
	}
	t, err := b.Commit(ctx)
	if err != nil {
		_ = s.rec.remove(r.cfg.Dir) // else the next start does
		return nil, err
	}
	s.rec.Made = true // saved with its first secret; a start finds the batch otherwise
	r.mu.Lock()
	r.shares[id] = s
	r.mu.Unlock()
	s.watch(t)
	return s, nil
}
