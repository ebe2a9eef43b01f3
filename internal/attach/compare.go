package attach

// Catching up: what opencode did while its events were not heard is read from opencode itself.

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

// compareBytes is how much of opencode's session is compared at a time.
const compareBytes = 4 << 20

// compare puts what the session lacks and removes what opencode no longer has. While opencode is busy, a part that grows is there with
// what was heard of it, and opencode itself has only its beginning.
func (r *recorder) compare(ctx context.Context, api *opencodeapi.API, busy bool) error {
	if err := r.flush(ctx, time.Now()); err != nil {
		return err
	}
	there := map[string]bool{}
	if err := r.compareInfo(ctx, api); err != nil {
		return err
	}
	err := api.EachMessage(ctx, r.id, func(m json.RawMessage) error { return r.compareMessage(ctx, m, busy, there) })
	if err != nil {
		return err
	}
	if err := r.flush(ctx, time.Now()); err != nil {
		return err
	}
	var gone []opencode.Put
	for _, key := range r.mirror.Keys("") {
		if (strings.HasPrefix(key, "message/") || strings.HasPrefix(key, "part/")) && !there[key] {
			gone = append(gone, opencode.Put{Key: key})
		}
	}
	return r.mirror.Apply(ctx, gone)
}

// recent is how many messages are compared after each turn.
const recent = 50

// compareRecent puts what the session lacks of the newest messages, when a turn has ended: opencode's events are not in all what it keeps.
func (r *recorder) compareRecent(ctx context.Context, api *opencodeapi.API) error {
	if err := r.flush(ctx, time.Now()); err != nil {
		return err
	}
	if err := r.compareInfo(ctx, api); err != nil {
		return err
	}
	var list []json.RawMessage
	if err := api.Get(ctx, opencodeapi.SessionPath(r.id, "message"), url.Values{"limit": {strconv.Itoa(recent)}}, &list); err != nil {
		return err
	}
	for _, m := range list {
		if err := r.compareMessage(ctx, m, false, map[string]bool{}); err != nil {
			return err
		}
	}
	return r.flush(ctx, time.Now())
}

func (r *recorder) compareInfo(ctx context.Context, api *opencodeapi.API) error {
	var info, diff json.RawMessage
	if err := api.Get(ctx, opencodeapi.SessionPath(r.id), nil, &info); err != nil {
		return err
	}
	if err := api.Get(ctx, opencodeapi.SessionPath(r.id, "diff"), nil, &diff); err != nil {
		return err
	}
	r.item("session", info, time.Now())
	r.item("session_diff", diff, time.Now())
	return nil
}

// compareMessage notes a message {info, parts}, and its keys in there.
func (r *recorder) compareMessage(ctx context.Context, m json.RawMessage, busy bool, there map[string]bool) error {
	reader := opencode.Reader{Session: r.id}
	if err := reader.Item("messages", append(append([]byte(`{"messages":[`), m...), `]}`...)); err != nil {
		return err
	}
	for _, p := range reader.Puts {
		there[p.Key] = true
		if busy && isGrowing(p.Payload) && (r.growing[p.Key] != nil || r.mirror.Has(p.Key)) {
			continue
		}
		r.change(p, time.Now())
	}
	if r.bytes > compareBytes {
		return r.flush(ctx, time.Now())
	}
	return nil
}
