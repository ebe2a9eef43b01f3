package relay

// The end of a share, which opencode, the server or opencode's own state brings about, and what Run has to finish of it.

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// end ends the share: nobody reads it by its public id once the server has the revoke. Ending it again changes nothing. It returns once the
// share's file says so; if there is no room for that, the share takes nothing any more all the same, and Run tries again, as it does with a
// revoke that finds no room in the outbox. The caller has the share's turn.
func (s *share) end(ctx context.Context) error {
	s.mu.Lock()
	if s.rec.Ended == 0 {
		s.rec.Ended, s.rec.EndBatch, s.unsaved = s.relay.cfg.Now().UnixMilli(), outbox.NewBatchID(), true
	}
	s.mu.Unlock()
	s.mirror.Unload()
	err := s.settle(ctx)
	if err == nil {
		return nil
	}
	s.relay.noteUnsettled()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rec.EndSent || !s.unsaved {
		s.relay.cfg.Log.Warn("the end of a share waits in its file", "opencode", s.rec.External, "error", err)
		return nil
	}
	return err
}

// settle saves what the share's file lacks, and then commits the end of a share that has one which is not in the outbox. Doing it twice at once does no harm, as
// the batch's id is the same.
func (s *share) settle(ctx context.Context) error {
	s.mu.Lock()
	var err error
	if s.unsaved {
		err = s.save()
	}
	due := s.rec.Ended != 0 && !s.rec.EndSent
	s.mu.Unlock()
	if err != nil || !due {
		return err
	}
	b := s.session.Batch().SetID(s.rec.EndBatch)
	b.Revoke(s.rec.Reader)
	t, err := b.Commit(ctx)
	if err != nil {
		return err
	}
	s.watch(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rec.EndSent = true
	return s.save()
}

// unsettled reports whether there is something for settle to do.
func (s *share) unsettled() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.unsaved || s.rec.Ended != 0 && !s.rec.EndSent
}

// settleAll settles all shares, and reports whether nothing is left.
func (r *Relay) settleAll(ctx context.Context) (done bool) {
	var failed error
	for _, s := range r.all() {
		if s.unsettled() {
			if err := s.settle(ctx); err != nil {
				failed = fmt.Errorf("the share of %s: %w", s.rec.External, err)
			}
		}
	}
	code := fault.CodeOf(failed)
	if failed != nil && code != r.lastUnsettled && ctx.Err() == nil {
		r.cfg.Log.Warn("what is left of some share could not be kept; it is tried again", "error", failed)
	}
	r.lastUnsettled = code
	return failed == nil
}

// refused says what the server has refused, and for which reason. A share that takes nothing any more ends.
func (s *share) refused(code fault.Code, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if code.Authority() {
		s.relay.doubt.Store(true)
	}
	if over := code.Authority() || code == fault.SessionDeleted || code == fault.NotFound; !over || s.rec.Ended != 0 {
		s.relay.cfg.Log.Warn("the server has refused something of a share", "opencode", s.rec.External, "error", err)
		return
	}
	s.rec.Ended, s.rec.EndSent = s.relay.cfg.Now().UnixMilli(), true
	if e := s.save(); e != nil {
		err = fmt.Errorf("%w (and %w)", err, e)
		s.relay.noteUnsettled()
	}
	s.relay.cfg.Log.Error("a share is over: the server takes nothing for it any more", "opencode", s.rec.External, "error", err)
}

// forgetEnded forgets the shares that have ended long ago, with their files.
func (r *Relay) forgetEnded() {
	var failed error
	for _, s := range r.all() {
		s.mu.Lock()
		old := s.rec.Ended != 0 && s.rec.EndSent && r.cfg.Now().Sub(time.UnixMilli(s.rec.Ended)) > keepEnded
		s.mu.Unlock()
		if !old {
			continue
		}
		r.mu.Lock()
		delete(r.shares, s.rec.ID)
		r.mu.Unlock()
		failed = errors.Join(failed, s.rec.remove(r.cfg.Dir))
	}
	if failed != nil {
		r.cfg.Log.Warn("the files of shares that ended long ago could not be removed", "error", failed)
	}
}
