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
	tied, err := r.tied(ctx, external)
	if err != nil {
		return nil, err
	}
	s, err := r.recent(external, tied)
	if s == nil && err == nil {
		s, err = r.make(ctx, external, tied)
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

// recent returns the share that a create repeats, of the tied session if there is one; nil if there is none. The error is Overloaded if there are too
// many shares for another.
func (r *Relay) recent(external string, tied *client.Session) (found *share, err error) {
	now, living := r.cfg.Now().UnixMilli(), 0
	for _, s := range r.all() {
		if s.living() != nil {
			continue
		}
		living++
		if tied != nil && s.session.ID() != tied.ID() {
			continue
		}
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

// make makes a share, durable in the outbox: with a session of its own, or of the tied one.
func (r *Relay) make(ctx context.Context, external string, tied *client.Session) (*share, error) {
	rec := record{External: external, Batch: outbox.NewBatchID(), Created: r.cfg.Now().UnixMilli()}
	kept, owner := tied, capability.Ref{}
	var b *client.Batch
	if tied != nil {
		if err := r.checkShare(ctx, tied); err != nil {
			return nil, err
		}
		owner, b = tied.Ref(), tied.Batch().SetID(rec.Batch)
		rec.Tied, rec.Session = true, tied.ID()
	} else {
		if err := r.checkSpace(ctx); err != nil {
			return nil, err
		}
		owner = r.cfg.Space.NewOwner()
		kept, b = r.cfg.Space.Create(client.CreateOptions{External: external, SharedExternal: true, ByTime: true, Label: "opencode session", Owner: owner, BatchID: rec.Batch})
	}
	reader, _ := b.Share(client.ShareOptions{Rights: capability.Read, Public: true, Label: "opencode readers"})
	id := capability.PublicID(reader.ID, reader.Secret.Hash())
	rec.ID, rec.Owner, rec.Reader, rec.URL = id, owner.Text(), reader.ID, owner.WebAddress()+"/share/"+id
	s := r.shareOf(kept, rec)
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
