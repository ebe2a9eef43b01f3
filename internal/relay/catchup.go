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
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/mirror"
)

const (
	catchUpTimeout = time.Minute // of one session
	settleAfter    = time.Minute // a share that is younger may not stand in opencode's info yet
	maxInfo        = 4 << 20     // of a session's info, in bytes
)

func newOpencodeClient() *http.Client {
	return &http.Client{Timeout: catchUpTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
}

// catchUpAll tries to catch up with every share that is behind, and reports whether none is left.
func (r *Relay) catchUpAll(ctx context.Context) (done bool) {
	done = true
	for _, s := range r.all() {
		if !s.isBehind() {
			continue
		}
		ok, err := r.catchUp(ctx, s)
		if err != nil && ctx.Err() == nil && !errors.Is(err, errAway) && s.said != err.Error() {
			s.said = err.Error()
			r.cfg.Log.Warn("a share could not be compared with opencode's session; it is tried again", "opencode", s.rec.External, "error", err)
		}
		done = done && ok
	}
	return done
}

// errAway says that opencode does not answer.
var errAway = errors.New("opencode does not answer")

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
	turn := r.queue.Join(s.rec.ID)
	defer turn.Leave()
	if err := turn.Wait(ctx, turnTimeout); err != nil {
		return false, err
	}
	if s.living() != nil {
		return true, nil
	}
	info, err := r.info(ctx, from)
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

// whereIs returns the address of a share's session at the opencode that has it; nil if none has, and all have answered.
func (r *Relay) whereIs(ctx context.Context, s *share) (at *url.URL, err error) {
	for _, base := range r.cfg.Opencode {
		u := base.JoinPath("session", s.rec.External)
		info, e := r.info(ctx, u)
		if info != nil {
			return u, nil
		}
		err = errors.Join(err, e)
	}
	return nil, err
}

// info returns a session's info; nil if opencode has no such session.
func (r *Relay) info(ctx context.Context, at *url.URL) ([]byte, error) {
	res, err := r.get(ctx, at)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	if res.StatusCode == http.StatusNotFound {
		return nil, nil
	}
	if res.StatusCode != http.StatusOK {
		return nil, fault.Incompatible.With("opencode answered with status %d", res.StatusCode)
	}
	text, err := io.ReadAll(io.LimitReader(res.Body, maxInfo+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("read opencode's info of the session: %w", err)
	case len(text) > maxInfo:
		return nil, fault.Incompatible.With("opencode's info of the session has more than %d bytes", maxInfo)
	case !json.Valid(text):
		return nil, fault.Incompatible.With("opencode's info of the session is not JSON")
	}
	return text, nil
}

// get asks opencode.
func (r *Relay) get(ctx context.Context, at *url.URL) (*http.Response, error) {
	plain := *at
	plain.User = nil
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, plain.String(), nil)
	if err != nil {
		return nil, err
	}
	if at.User != nil {
		password, _ := at.User.Password()
		req.SetBasicAuth(at.User.Username(), password)
	}
	res, err := r.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errAway, err)
	}
	return res, nil
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
func (r *Relay) compare(ctx context.Context, s *share, at *url.URL, info []byte) error {
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
		err = r.eachMessage(ctx, at.JoinPath("message"), func(m json.RawMessage) error {
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

// eachMessage calls f with every message of a session: {info, parts}.
func (r *Relay) eachMessage(ctx context.Context, at *url.URL, f func(json.RawMessage) error) error {
	res, err := r.get(ctx, at)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK || res.Header.Get("X-Next-Cursor") != "" {
		return fault.Incompatible.With("opencode answered with status %d, or not with all messages", res.StatusCode)
	}
	in := json.NewDecoder(res.Body)
	if begin, err := in.Token(); err != nil || begin != json.Delim('[') {
		return fault.Incompatible.With("opencode's messages are not a list")
	}
	for in.More() {
		var m json.RawMessage
		if err := in.Decode(&m); err != nil {
			return fmt.Errorf("read opencode's messages: %w", err)
		}
		if err := f(m); err != nil {
			return err
		}
	}
	if _, err := in.Token(); err != nil { // of a list that broke off, nothing may be taken for removed
		return fmt.Errorf("read opencode's messages: %w", err)
	}
	return nil
}
