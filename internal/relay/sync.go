package relay

// A sync: items that become puts, which are durable before it is answered.

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
	"github.com/mooring-rpc/mooring/internal/writequeue"
)

// syncRun is a sync in progress.
type syncRun struct {
	share *share
	turn  writequeue.Ticket
	ready bool // it has had its turn
	sync  *opencode.Sync
	items int
	left  int // items that are left out
}

// sync reads a body and commits it, piece by piece as it arrives. What has arrived whole is committed even if opencode goes away: it would not send it again.
// Values too large for a session are left out, all others are committed, and the error is TooLarge.
func (r *Relay) sync(w http.ResponseWriter, req *http.Request) (n int, err error) {
	wait, cancel := context.WithTimeout(req.Context(), slotTimeout)
	defer cancel()
	if err := r.slots.Acquire(wait, 1); err != nil {
		return 0, fault.Overloaded.With("too many syncs at once: try again later")
	}
	defer r.slots.Release(1)
	memory := requestMemory{req.Context(), r.memory.Open("syncs")}
	defer memory.account.Close()
	if err := memory.Grow(syncbody.BufferBytes); err != nil {
		return 0, err
	}
	var run *syncRun
	defer func() {
		if run != nil {
			run.turn.Leave()
			if err != nil && run.left == 0 && run.share.living() == nil {
				r.missedBy(run.share)
			}
		}
	}()
	charged := 0 // bytes of the piece that is being collected
	body := syncbody.Reader{In: bodyOf(w, req), Memory: memory,
		OnSecret: func(secret string) error {
			s, err := r.open(req.PathValue("id"), secret)
			if err == nil {
				err = s.living()
			}
			if err == nil {
				run = &syncRun{share: s, turn: r.queue.Join(s.rec.ID), sync: opencode.NewSync(s.rec.External, r.limits)}
			}
			return err
		},
		OnItem: func(item json.RawMessage) error {
			run.items++
			if err := memory.Grow(len(item)); err != nil { // parsing holds a second copy
				return err
			}
			charged += cap(item) + len(item)
			if !run.sync.Add(item) {
				return nil
			}
			err := run.flush(context.WithoutCancel(req.Context()))
			memory.Shrink(charged)
			charged = 0
			httpkit.SetDeadlines(w, bodyTimeout, replyTimeout)
			return err
		},
		OnOversize: func(bytes int64, limit int) {
			run.items++
			run.leaveOut("", int(bytes), limit)
		}}
	if err := body.Read(); err != nil {
		return 0, err
	}
	if err := run.flush(context.WithoutCancel(req.Context())); err != nil {
		return 0, err
	}
	if run.left > 0 {
		return 0, fault.TooLarge.With("left out of the sync, because a value has at most %d bytes: %d; the rest is stored", r.limits.Payload, run.left)
	}
	return run.items, nil
}

// flush commits the piece that was collected.
func (s *syncRun) flush(ctx context.Context) error {
	pieces, tooLarge, err := s.sync.Take()
	if err != nil {
		return err
	}
	var said []opencode.Put
	for _, p := range tooLarge {
		s.leaveOut(p.Key, len(p.Payload), s.share.relay.limits.Payload)
		said = append(said, s.share.leftOut(&p))
	}
	if len(said) > 0 {
		pieces = append(pieces, said)
	}
	if !s.ready {
		if err := waitTurn(ctx, s.turn.Ready); err != nil {
			return err
		}
		s.ready = true
	}
	for _, piece := range pieces {
		if err := s.share.living(); err != nil { // it may have ended while this one waited
			return err
		}
		if err := s.share.commit(ctx, piece); err != nil {
			return err
		}
	}
	return nil
}

// leaveOut says that an item is not stored; key is "" if it was not read.
func (s *syncRun) leaveOut(key string, bytes, limit int) {
	s.left++
	s.share.relay.cfg.Log.Warn("a share is incomplete: something that was synced is too large", "opencode", s.share.rec.External, "key", key, "bytes", bytes, "limit", limit)
}

// waitTurn waits for the syncs that began earlier, one of which may still be sending its body.
func waitTurn(ctx context.Context, ready <-chan struct{}) error {
	limit := time.NewTimer(bodyTimeout + slotTimeout)
	defer limit.Stop()
	select {
	case <-ready:
		return nil
	case <-ctx.Done():
		return fault.ContextError(context.Cause(ctx), nil)
	case <-limit.C:
		return fault.Overloaded.With("earlier syncs of this share are not done yet: try again later")
	}
}

// missedBy notes that a share may have missed something.
func (r *Relay) missedBy(s *share) {
	s.mu.Lock()
	s.behind = true
	s.misses++
	s.mu.Unlock()
	r.noteMissed()
}
