package relay

// Catching up: what opencode sent while no relay ran, or what could not be committed, is read from opencode itself. Its API is asked for the
// session's info and its messages with their parts, in the form in which they are synced; what differs is committed as a sync, and what opencode
// no longer has is removed. It gives neither the models nor the diff as they are synced, so these are not read.
//
// The share's syncs wait meanwhile. One that opencode began to send before it was asked, and that arrives afterwards, may bring back an older value:
// opencode's next sync, which it has collected by then, has the newer one, and if that fails it is read again. Only what opencode has removed in
// between stays, since no sync says so, until the share is compared again.

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/mirror"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

const (
	catchUpTimeout = time.Minute // of one session
	settleAfter    = time.Minute // a share that is younger may not stand in opencode's info yet
)

// catchUpAll tries to catch up with every share that is behind, and reports whether none is left.
func (r *Relay) catchUpAll(ctx context.Context) (done bool) {
	done = true
	var away error
	for _, s := range r.all() {
		if !s.isBehind() {
			continue
		}
		ok, err := r.catchUp(ctx, s)
		switch {
		case err == nil || ctx.Err() != nil:
		case errors.Is(err, opencodeapi.ErrAway) && !errors.Is(err, opencodeapi.ErrBrokeOff):
			away = err
		case s.said != err.Error():
			s.said = err.Error()
			r.cfg.Log.Warn("a share could not be compared with opencode's session; it is tried again", "opencode", s.rec.External, "error", err)
		}
		done = done && ok
	}
	if away != nil && !r.away {
		r.cfg.Log.Warn("opencode does not answer: what the shares may lack is read when it does", "error", away)
	}
	r.away = away != nil
	return done
}

// catchUp reads a share's session from opencode, and commits what the share lacks. It reports whether there is nothing more to do.
func (r *Relay) catchUp(ctx context.Context, s *share) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, catchUpTimeout)
	defer cancel()
	s.mu.Lock()
	misses := s.misses
	s.mu.Unlock()
	from, err := r.whereIs(ctx, s)
	if err != nil || from == nil {
		return err == nil && s.caughtUp(misses), err
	}
	turn := r.queue.Join(s.turn())
	defer turn.Leave()
	if err := turn.Wait(ctx, turnTimeout); err != nil {
		return false, err
	}
	if s.living() != nil {
		return true, nil
	}
	info, err := from.Info(ctx, s.rec.External)
	if err != nil || info == nil {
		return false, err
	}
	switch shown, err := sharedAt(info, s.rec.External); {
	case err != nil:
		return false, err
	case shown == s.rec.URL:
	case r.cfg.Now().Sub(time.UnixMilli(s.rec.Created)) < settleAfter:
		return false, nil
	default: // unshared, or shared elsewhere
		r.cfg.Log.Info("a share has ended: opencode no longer has its session shared here", "opencode", s.rec.External)
		_ = s.end(context.WithoutCancel(ctx)) // or Run does, later
		return true, nil
	}
	unlock, ok, err := s.lock()
	if err != nil || !ok { // an attach compares its session itself
		return err == nil && s.caughtUp(misses), err
	}
	defer unlock()
	defer s.mirror.Unload() // which few shares need again
	if err := r.compare(ctx, s, from, info); err != nil {
		return false, err
	}
	return s.caughtUp(misses), nil
}

// caughtUp notes that the share has missed nothing, unless it was noted meanwhile that it has.
func (s *share) caughtUp(misses int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind = s.misses != misses
	return !s.behind
}

// whereIs returns the opencode that has a share's session; nil if none has, and all have answered.
func (r *Relay) whereIs(ctx context.Context, s *share) (api *opencodeapi.API, err error) {
	for _, api := range r.apis {
		info, e := api.Info(ctx, s.rec.External)
		if info != nil {
			return api, nil
		}
		err = errors.Join(err, e)
	}
	return nil, err
}

// sharedAt returns the address at which an info says that the session id is shared, "" if it says that it is not. An info that says neither
// in the form that opencode gives it is an error: it must not end a share.
func sharedAt(info []byte, id string) (string, error) {
	var of struct {
		ID    string          `json:"id"`
		Share json.RawMessage `json:"share"`
	}
	if err := json.Unmarshal(info, &of); err != nil || of.ID != id {
		return "", fault.Incompatible.With("opencode's info of the session is not one")
	}
	if of.Share == nil || string(of.Share) == "null" {
		return "", nil
	}
	var share struct {
		URL string `json:"url"`
	}
	if err := json.Unmarshal(of.Share, &share); err != nil || share.URL == "" {
		return "", fault.Incompatible.With("opencode's info of the session does not say where it is shared")
	}
	return share.URL, nil
}

// compare commits what opencode has and the share has not, and removes what opencode no longer has. The caller has the share's turn.
func (r *Relay) compare(ctx context.Context, s *share, from *opencodeapi.API, info []byte) error {
	if err := s.mirror.Load(); err != nil {
		return err
	}
	there := map[string]bool{}
	sync := opencode.NewSync(s.rec.External, r.limits)
	flush := func() error {
		pieces, tooLarge, err := sync.Take()
		for _, p := range tooLarge {
			there[p.Key] = true
			pieces = append(pieces, []opencode.Put{mirror.LeftOut(r.limits, &p)})
		}
		for _, piece := range pieces {
			piece = slices.DeleteFunc(piece, func(p opencode.Put) bool { there[p.Key] = true; return s.mirror.Is(&p) })
			if err == nil {
				err = s.mirror.Commit(context.WithoutCancel(ctx), piece)
			}
		}
		return err
	}
	add := func(kind string, data []byte) error {
		item := append(append([]byte(`{"type":"`+kind+`","data":`), data...), '}')
		if sync.Add(item) {
			return flush()
		}
		return nil
	}
	err := add("session", info)
	if err == nil {
		err = from.EachMessage(ctx, s.rec.External, func(m json.RawMessage) error {
			return add("messages", append(append([]byte(`{"messages":[`), m...), `]}`...))
		})
	}
	if err == nil {
		err = flush()
	}
	if err != nil {
		return err
	}
	var gone []string
	for _, key := range s.mirror.Keys("") {
		if kind, _, _ := strings.Cut(key, "/"); (kind == "message" || kind == "part") && !there[key] {
			gone = append(gone, key)
		}
	}
	return s.mirror.Remove(context.WithoutCancel(ctx), gone)
}
