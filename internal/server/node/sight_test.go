//go:build unix

package node

// What was written before the first cursor that a ref shows is shown by no way of
// reading, also where what came later embeds it.

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

func TestARefFromACursorShowsNothingOlder(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		part := func(key, text string) ledger.Intent {
			return op("put", "key", key, "payload", map[string]string{"text": text})
		}
		p.must(m.stream, m.batch(
			op("put", "key", "session", "payload", map[string]string{"title": "OLD"}),
			op("begin", "message", "a", "payload", map[string]string{"x": "OLD"}),
			part("part/a/grown", "OLD"), part("part/a/given", "OLD"), part("part/a/purged", "OLD")))
		late := p.share(m, "rights", []string{"read"}, "from", 8) // its own is 7
		p.must(m.stream, m.batch(
			op("appendText", "key", "part/a/grown", "offset", 3, "text", " NEW delta"),
			op("put", "key", "part/a/new", "payload", map[string]string{"text": "NEW part"}),
			op("finalize", "message", "a", "status", "completed", "usage", map[string]string{"n": "NEW usage"},
				"parts", []any{map[string]any{"id": "given", "payload": map[string]string{"text": "NEW given"}}}),
			op("purge", "key", "part/a/purged")))

		held, err := r.server.Caller(t.Context(), "127.0.0.1:1").Restore(late, "")
		if err != nil {
			t.Fatal(err)
		}
		about, err := held.Describe(t.Context())
		if err != nil || about.Info != nil {
			t.Fatalf("described: %+v, %v", about, err)
		}
		end := about.Row.Cursor
		entries := func(list []*session.Entry) (b strings.Builder) {
			for _, e := range list {
				fmt.Fprintf(&b, "%s %s\n", e.Key, e.Payload)
			}
			return b
		}
		log := func(list []*session.Event) (b strings.Builder) {
			for _, e := range list {
				fmt.Fprintf(&b, "%d %s %s\n", e.Cursor, e.Method, e.Payload)
			}
			return b
		}
		stop := errors.New("enough")
		for name, read := range map[string]func() (strings.Builder, error){
			"a page of the state": func() (strings.Builder, error) {
				page, _, err := held.Range(t.Context(), "", "z", 1<<20, 100)
				return entries(page.Entries), err
			},
			"a snapshot": func() (b strings.Builder, err error) {
				_, err = held.Snapshot(t.Context(), fanout.Position{}, func(p *session.StateChunk) error { b = entries(p.Entries); return nil })
				return b, err
			},
			"an earlier snapshot": func() (b strings.Builder, err error) {
				_, err = held.Snapshot(t.Context(), fanout.Position{Cursor: end - 1}, func(p *session.StateChunk) error { b = entries(p.Entries); return nil })
				return b, err
			},
			"a page of events": func() (strings.Builder, error) {
				page, err := held.Events(t.Context(), fanout.Position{}, 100)
				return log(page.Events), err
			},
			"following": func() (b strings.Builder, err error) {
				var all []*session.Event
				err = held.Follow(t.Context(), fanout.Position{}, func(events []*session.Event) error {
					if all = append(all, events...); all[len(all)-1].Cursor == end {
						return stop
					}
					return nil
				})
				if err == stop {
					err = nil
				}
				return log(all), err
			},
		} {
			b, err := read()
			got := b.String()
			if err != nil || strings.Contains(got, "OLD") || !strings.Contains(got, "NEW part") || !strings.Contains(got, "NEW given") {
				t.Errorf("%s: %v\n%s", name, err, got)
			}
		}
		k := newRecorder()
		promise := p.subscribing(p.restore(late), k, 0, 0, true)
		defer promise.Release()
		k.until(t, "the state", func() bool { return k.last })
		if len(k.keys) != 2 || len(k.turns) != 0 || k.keys["part/a/new"] == "" || k.keys["part/a/given"] == "" {
			t.Errorf("over the wire: %v, turns %v", k.keys, k.turns)
		}
	})
}
