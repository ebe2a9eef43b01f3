package relay

// A share: its batches, and what becomes of them.

import (
	"context"
	"crypto/subtle"
	"errors"
	"slices"
	"sync"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/opencode/mirror"
	"github.com/mooring-rpc/mooring/outbox"
)

// share is a share, whether it has ended or not.
type share struct {
	relay   *Relay
	session *client.Session
	mirror  *mirror.Mirror // of who has the share's turn, as the next two
	models  *mirror.Mirror // of a tied session, for models alone
	dropped bool           // something that an attach records
	said    string         // the last error of catching up that was logged; of Run

	mu        sync.Mutex // guards the rest
	rec       record
	unsaved   bool     // rec has what the file has not
	behind    bool     // it may have missed something
	misses    int      // how often that was noted: what is missed while it catches up counts
	unwatched []string // batches that nobody waits for yet
	watching  bool     // a goroutine waits for batches
}

// newShare returns the share of a record.
func (r *Relay) newShare(ctx context.Context, rec record) (*share, error) {
	if rec.Tied && r.cfg.Ties == nil {
		return nil, fault.Usage.With("the session is one that mooring attach records, and this relay knows of no ties")
	}
	kept, err := rec.open(ctx, r.cfg.Client)
	if err != nil {
		return nil, err
	}
	return r.shareOf(kept, rec), nil
}

// shareOf returns the share of a record, which is kept in a session.
func (r *Relay) shareOf(kept *client.Session, rec record) *share {
	s := &share{relay: r, session: kept, rec: rec}
	own := mirror.New(kept, keysOf(r.cfg.Dir, rec.ID), s.commit)
	if s.mirror = own; rec.Tied {
		s.mirror, s.models = mirror.New(kept, r.cfg.Ties.KeysName(rec.External), s.commit), own
	}
	return s
}

// committed reports whether a batch is in the outbox.
func (r *Relay) committed(ctx context.Context, batch string) (bool, error) {
	rows, err := r.cfg.Client.Outbox().List(ctx, outbox.Filter{Batch: batch, Limit: 1})
	return len(rows) > 0, err
}

// save writes the share's file. The caller has s.mu, or is the only one that knows s.
func (s *share) save() error {
	err := newfile.Fault(s.rec.write(s.relay.cfg.Dir), "the relay's files")
	s.unsaved = err != nil
	return err
}

// living returns why the share takes nothing any more; nil if it does.
func (s *share) living() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.Ended != 0 {
		return fault.Revoked.With("the share has ended")
	}
	return nil
}

// isBehind reports whether the share goes on and may have missed something.
func (s *share) isBehind() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.behind && s.rec.Ended == 0
}

// checkSecret refuses what is no secret of the share (UnknownRef).
func (s *share) checkSecret(text string) error {
	secret, err := capability.ParseSecret(text)
	if err == nil {
		hash := secret.HashText()
		s.mu.Lock()
		defer s.mu.Unlock()
		known := 0
		for _, one := range s.rec.Secrets {
			known |= subtle.ConstantTimeCompare([]byte(one), []byte(hash))
		}
		if known == 1 {
			return nil
		}
	}
	return fault.UnknownRef.With("the secret is not one of this share")
}

// addSecret makes another secret of the share, and returns it once its hash is durable.
func (s *share) addSecret() (string, error) {
	secret := capability.NewSecret()
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.rec.Secrets
	s.rec.Secrets = append(slices.Clone(was[max(0, len(was)-maxSecrets+1):]), secret.HashText())
	if err := s.save(); err != nil {
		s.rec.Secrets = was
		return "", err
	}
	return secret.RevealText(), nil
}

// commit makes a batch durable.
func (s *share) commit(ctx context.Context, b *client.Batch) error {
	t, err := b.Commit(ctx)
	if err == nil {
		s.watch(t)
	}
	return err
}

// watch has a goroutine wait for a batch, after those before it.
func (s *share) watch(t client.Ticket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unwatched = append(s.unwatched, t.Batch)
	if s.watching {
		return
	}
	s.watching = true
	s.relay.tasks.Go(func() {
		for {
			s.mu.Lock()
			list := s.unwatched
			s.unwatched = nil
			s.watching = len(list) > 0
			s.mu.Unlock()
			if len(list) == 0 {
				return
			}
			s.waitFor(list)
		}
	})
}

// waitFor waits for batches and says what the server has refused of them, each refusal that follows another of the same reason left out. A stream
// that has stopped sends none of them.
func (s *share) waitFor(list []string) {
	said := fault.None
	for _, batch := range list {
		results, err := s.relay.cfg.Client.Ticket(batch).Wait(s.relay.ctx)
		if err != nil {
			if s.relay.ctx.Err() == nil {
				s.relay.cfg.Log.Error("a share is not sent any more", "opencode", s.rec.External, "error", err)
			}
			if stopped := (*outbox.StreamStoppedError)(nil); errors.As(err, &stopped) || s.relay.ctx.Err() != nil {
				return
			}
			continue
		}
		at := slices.IndexFunc(results, func(o client.Outcome) bool { return o.Err() != nil })
		if at >= 0 && results[at].Reason != said {
			said = results[at].Reason
			s.refused(said, results[at].Err())
		}
	}
}
