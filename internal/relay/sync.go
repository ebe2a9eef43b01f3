package relay

// A sync: items that become puts, which are durable before it is answered.

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/mirror"
	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
	"github.com/mooring-rpc/mooring/internal/writequeue"
)

// syncRun is a sync in progress.
type syncRun struct {
	share *share
	turn  writequeue.Ticket
	ready bool // it has had its turn
	sync  *opencode.Sync
	left  int // items that are left out
	lost  int // of these, items that were not read, so that the share does not say what it lacks
}

// sync reads a body and commits it, piece by piece as it arrives. What has arrived whole is committed even if opencode goes away: it would not send it again.
// Values too large for a session are left out, all others are committed, and the error is TooLarge.
func (r *Relay) sync(w http.ResponseWriter, req *http.Request) (n int, err error) {
	var run *syncRun
	stored := false // all that is not left out
	defer func() {
		if run != nil {
			run.turn.Leave()
		}
		if err != nil && !(stored && run.lost == 0) {
			r.noteFailed(req.PathValue("id"), err)
		}
	}()
	wait, cancel := context.WithTimeout(req.Context(), slotTimeout)
	defer cancel()
	if err := r.slots.Acquire(wait, 1); err != nil {
		return 0, fault.Overloaded.With("too many syncs at once: try again later")
	}
	defer r.slots.Release(1)
	memory := &syncbody.Charged{Ctx: req.Context(), Account: r.memory.Open("syncs")}
	defer memory.Account.Close()
	if err := memory.Grow(syncbody.BufferBytes); err != nil {
		return 0, err
	}
	body := syncbody.Reader{In: bufio.NewReaderSize(http.MaxBytesReader(w, req.Body, maxBody), syncbody.BufferBytes), Memory: memory,
		OnSecret: func(secret string) error {
			s, err := r.open(req.PathValue("id"), secret)
			if err == nil {
				err = s.living()
			}
			if err == nil {
				run = &syncRun{share: s, turn: r.queue.Join(s.turn()), sync: opencode.NewSync(s.rec.External, r.limits)}
			}
			return err
		},
		Add: func(item json.RawMessage) bool { return run.sync.Add(item) },
		Flush: func() error {
			defer httpkit.SetDeadlines(w, bodyTimeout, replyTimeout)
			return run.flush(context.WithoutCancel(req.Context()))
		},
		OnOversize: func(bytes int64, limit int) {
			run.lost++
			run.leaveOut("", int(bytes), limit)
		}}
	if n, err = body.Read(); err != nil {
		return 0, err
	}
	if stored = true; run.left > 0 {
		return 0, fault.TooLarge.With("left out of the sync, because a value has at most %d bytes: %d; the rest is stored", r.limits.Payload, run.left)
	}
	return n, nil
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
		said = append(said, mirror.LeftOut(s.share.relay.limits, &p))
	}
	if len(said) > 0 {
		pieces = append(pieces, said)
	}
	if !s.ready {
		if err := s.turn.Wait(ctx, turnTimeout); err != nil {
			return err
		}
		s.ready = true
	}
	for _, piece := range pieces {
		if err := s.share.living(); err != nil { // it may have ended while this one waited
			return err
		}
		if err := s.share.put(ctx, piece); err != nil {
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

// noteFailed notes that a sync was answered with an error, as opencode does not send it again. That of a caller who has shown no secret counts
// too: reading opencode once more does no harm.
func (r *Relay) noteFailed(id string, err error) {
	switch fault.CodeOf(err) {
	case fault.NotFound, fault.UnknownRef, fault.Revoked:
		return
	}
	if s, _ := r.find(id); s != nil && s.living() == nil {
		r.missedBy(s)
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
