// A share's refusals: synced items that could not be stored. opencode does not send them again,
// so the share's page lists them.

package share

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// refusal is a synced item that a share lacks.
type refusal = capability.ShareRefusal

// maxRefusals bounds the refusals of a share; beyond it, only that there are more is recorded.
const maxRefusals = 64

// recordTimeout bounds the write of a refusal. The refused caller waits for it.
const recordTimeout = 5 * time.Second

// recordRefusals records the items that a sync has left out, or that it was not applied whole,
// once for each key, and drops refusals of keys stored by now. A sync under a secret minted after
// a refused sync contains the whole session, since opencode then shares it again; it drops the
// refusal without a key.
func (s *Service) recordRefusals(sync *syncRun, whole bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), recordTimeout)
	defer cancel()
	of := sync.writer.share.Session
	known, failed := s.cfg.Store.Refusals(ctx, of)
	if failed != nil {
		s.cfg.Log.Warn("what a share lacks is not known", "session", of, "error", failed)
		return
	}
	add := sync.leftOut
	if !whole && !refEnded(err) && !errors.Is(err, fault.SessionDeleted) {
		var f *fault.Error
		why := "the server failed"
		if errors.As(err, &f) {
			why = f.Message
		}
		add = append(add, refusal{Why: why})
	}
	var drop []string
	for _, r := range known {
		if r.Key == "" && whole && sync.writer.createdAt > r.At || r.Key != "" && slices.Contains(sync.stored, r.Key) {
			drop = append(drop, r.Key)
		}
	}
	seen := map[string]bool{}
	for _, r := range known {
		seen[r.Key] = !slices.Contains(drop, r.Key)
	}
	add = slices.DeleteFunc(add, func(r refusal) bool {
		before := seen[r.Key]
		seen[r.Key] = true
		return before
	})
	if free := maxRefusals - len(known); len(add) > free {
		add = append(add[:max(free, 0)], refusal{Why: "more than is listed"})
	}
	if len(add)+len(drop) == 0 {
		return
	}
	if err := s.cfg.Store.ChangeRefusals(ctx, of, add, drop); err != nil {
		s.cfg.Log.Warn("what a share lacks could not be noted", "session", of, "error", err)
	}
	for _, r := range add {
		s.cfg.Log.Warn("a share is incomplete: something that was synced is not stored", "session", of, "key", r.Key, "why", r.Why)
	}
}

// LeftOut returns the synced items that a session lacks.
func (s *Service) LeftOut(ctx context.Context, session string) ([]refusal, error) {
	list, err := s.cfg.Store.Refusals(ctx, session)
	return list, s.toFault(ctx, err, "look what the share lacks")
}
