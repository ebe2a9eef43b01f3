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

// New returns the mirror of a session whose keys are kept in the file of a name; commit makes a batch durable.
func New(s *client.Session, name string, commit func(context.Context, *client.Batch) error) *Mirror {
	lim := session.DefaultLimits()
	return &Mirror{session: s, commit: commit, keys: putkeys.New(name), limits: opencode.Limits{Ops: lim.BatchOps, Bytes: lim.BatchBytes, Payload: lim.PayloadBytes}}
}

// Load reads the file of keys, or makes one, unless they are in memory. Commit, Remove and Apply do so themselves; the other methods know of no key before.
func (m *Mirror) Load() error { return m.keys.Load() }

// Unload has the file read again when it is needed.
func (m *Mirror) Unload() { m.keys.Unload() }

// Has reports whether the session may have a key.
func (m *Mirror) Has(key string) bool { return m.keys.Known(key) }

// Is reports whether a value is known to be the one that the session has.
func (m *Mirror) Is(p *opencode.Put) bool { return m.keys.Has(p) }

// Keys returns the keys with a prefix that the session may have, sorted.
func (m *Mirror) Keys(prefix string) []string { return m.keys.List(prefix) }

// leftOutPrefix begins the keys of values that say what the session lacks, each before the key of what was left out: they are shown on its page.
const leftOutPrefix = "left_out/"

// LeftOut returns the value that says that a put is too large for a session.
func LeftOut(limits opencode.Limits, p *opencode.Put) opencode.Put {
	why, _ := json.Marshal(limits.TooLarge(len(p.Payload))) // a text always marshals
	return opencode.Put{Key: leftOutPrefix + p.Key, Payload: why}
}

// Apply is Commit for any number of changes, in order. Values that are there already are not put again, those too
// large for a session are left out, which a value of an own kind says.
func (m *Mirror) Apply(ctx context.Context, changes []opencode.Put) error {
	if err := m.keys.Load(); err != nil {
		return err
	}
	var list []opencode.Put
	for _, p := range opencode.Last(slices.Clone(changes)) {
		if len(p.Payload) > m.limits.Payload {
			p = LeftOut(m.limits, &p)
		} else if m.Has(leftOutPrefix + p.Key) {
			list = append(list, opencode.Put{Key: leftOutPrefix + p.Key})
		}
		if p.Payload == nil && m.Has(p.Key) || p.Payload != nil && !m.keys.Has(&p) {
			list = append(list, p)
		}
	}
	pieces, _ := opencode.Cut(list, m.limits)
	for _, piece := range pieces {
		if err := m.Commit(ctx, piece); err != nil {
			return err
		}
	}
	return nil
}

// Commit makes changes durable as one batch; one without a payload is a removal. With a value goes what said that it was left out, or, where the batch has no
// room, right after it.
func (m *Mirror) Commit(ctx context.Context, piece []opencode.Put) error {
	if len(piece) == 0 {
		return nil
	}
	if err := m.keys.Load(); err != nil {
		return err
	}
	var arrived []string
	for _, p := range piece {
		if key := leftOutPrefix + p.Key; p.Payload != nil && m.Has(key) && !slices.ContainsFunc(piece, func(q opencode.Put) bool { return q.Key == key }) {
			arrived = append(arrived, key)
		}
	}
	room := min(len(arrived), max(0, m.limits.Ops-len(piece)))
	piece = slices.Concat(piece, removals(arrived[:room]))
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
	if err := m.keys.Committed(piece); err != nil {
		return err
	}
	return m.Remove(ctx, arrived[room:])
}

// Remove makes the removal of keys durable.
func (m *Mirror) Remove(ctx context.Context, list []string) error {
	for some := range slices.Chunk(list, m.limits.Ops) {
		if err := m.Commit(ctx, removals(some)); err != nil {
			return err
		}
	}
	return nil
}

// removals returns the changes that remove keys.
func removals(list []string) []opencode.Put {
	changes := make([]opencode.Put, len(list))
	for i, key := range list {
		changes[i].Key = key
	}
	return changes
}

// Forget makes every value unknown: the server has refused something.
func (m *Mirror) Forget() { m.keys.Forget() }
