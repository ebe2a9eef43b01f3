// Package mirror keeps one of opencode's sessions in a session of Mooring's, as its shares do: what changes is put with the argument sync. It
// knows durably what was put (package putkeys), so that what differs from opencode's own state is found without a server.
package mirror

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/putkeys"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Mirror is the session with what is known of it. It is for one goroutine at a time.
type Mirror struct {
	session *client.Session
	commit  func(context.Context, *client.Batch) error
	limits  opencode.Limits
	keys    *putkeys.Keys
}

// Open returns the mirror of a session whose keys are kept in the file of a name; commit makes a batch durable.
func Open(s *client.Session, name string, commit func(context.Context, *client.Batch) error) (*Mirror, error) {
	lim := session.DefaultLimits()
	m := &Mirror{session: s, commit: commit, keys: putkeys.New(name), limits: opencode.Limits{Ops: lim.BatchOps, Bytes: lim.BatchBytes, Payload: lim.PayloadBytes}}
	return m, m.keys.Load()
}

// Has reports whether the session may have a key.
func (m *Mirror) Has(key string) bool { return m.keys.Known(key) }

// Keys returns the keys with a prefix that the session may have, sorted.
func (m *Mirror) Keys(prefix string) []string { return m.keys.List(prefix) }

// leftOutPrefix begins the keys of values that say what the session lacks, each before the key of what was left out: they are shown on its page.
const leftOutPrefix = "left_out/"

// Apply makes changes durable, in order; one without a payload is a removal. Values that are there already are not put again, those too
// large for a session are left out, which a value of an own kind says.
func (m *Mirror) Apply(ctx context.Context, changes []opencode.Put) error {
	if err := m.keys.Load(); err != nil {
		return err
	}
	var list []opencode.Put
	for _, p := range opencode.Last(slices.Clone(changes)) {
		if len(p.Payload) > m.limits.Payload {
			why, _ := json.Marshal(m.limits.TooLarge(len(p.Payload))) // a text always marshals
			p = opencode.Put{Key: leftOutPrefix + p.Key, Payload: why}
		} else if m.Has(leftOutPrefix + p.Key) {
			list = append(list, opencode.Put{Key: leftOutPrefix + p.Key})
		}
		if p.Payload == nil && m.Has(p.Key) || p.Payload != nil && !m.keys.Has(&p) {
			list = append(list, p)
		}
	}
	pieces, _ := opencode.Cut(list, m.limits)
	for _, piece := range pieces {
		if err := m.apply(ctx, piece); err != nil {
			return err
		}
	}
	return nil
}

// apply commits a piece as one batch.
func (m *Mirror) apply(ctx context.Context, piece []opencode.Put) error {
	if err := m.keys.Expect(piece); err != nil {
		return err
	}
	b := m.session.Batch()
	for _, p := range piece {
		if p.Payload == nil {
			b.Remove(p.Key).Arg("sync", true)
		} else {
			b.Put(p.Key, json.RawMessage(p.Payload)).Arg("sync", true)
		}
	}
	if err := m.commit(ctx, b); err != nil {
		return err
	}
	return m.keys.Committed(piece)
}

// Forget makes every value unknown: the server has refused something.
func (m *Mirror) Forget() { m.keys.Forget() }
