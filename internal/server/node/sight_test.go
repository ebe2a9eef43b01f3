//go:build unix

package node

// What a ref does not show is shown by no way of reading, also where what came later embeds it.

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// inProcess has every method of a capability that reads a session, and "" for those that do not.
// end is the cursor up to which there are events.
var inProcess = map[string]func(ctx context.Context, live *objects.Capability, end uint64) (any, error){
	"Describe": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) { return live.Describe(ctx) },
	"Range": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) {
		page, _, err := live.Range(ctx, "", "z", 1<<20, 100)
		return page, err
	},
	"Outline": func(ctx context.Context, live *objects.Capability, _ uint64) (all any, err error) {
		var entries []*session.Entry
		err = live.Outline(ctx, "", "z", 100, func(page []*session.Entry) error { entries = append(entries, page...); return nil })
		return entries, err
	},
	"Values": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) {
		page, _, err := live.Values(ctx, sightKeys, 1<<20)
		return page, err
	},
	"Snapshot": func(ctx context.Context, live *objects.Capability, end uint64) (any, error) {
		var pieces []*session.StateChunk
		take := func(p *session.StateChunk) error { pieces = append(pieces, p); return nil }
		_, err := live.Snapshot(ctx, fanout.Position{}, nil, false, take)
		_, earlier := live.Snapshot(ctx, fanout.Position{Cursor: end - 1}, nil, false, take)
		return pieces, errors.Join(err, earlier)
	},
	"Events": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) {
		return live.Events(ctx, fanout.Position{}, nil, 100)
	},
	"Follow": func(ctx context.Context, live *objects.Capability, end uint64) (any, error) {
		var all []*session.Event
		stop := errors.New("enough")
		err := live.Follow(ctx, fanout.Position{}, nil, func(events []*session.Event) error {
			if all = append(all, events...); all[len(all)-1].Cursor == end {
				return stop
			}
			return nil
		})
		if err == stop {
			err = nil
		}
		return all, err
	},
	"Stat": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) { return live.Stat(ctx) },
	"GetKeys": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) {
		page, _, err := live.GetKeys(ctx, sightKeys)
		return page, err
	},
	"ListKeys": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) {
		byKey, err := live.ListKeys(ctx, session.KeyQuery{Values: true})
		byPut, err2 := live.ListKeys(ctx, session.KeyQuery{Values: true, Order: session.ByPut})
		return []any{byKey, byPut}, errors.Join(err, err2)
	},
	"Search": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) {
		var all []any
		for _, text := range sightSearches {
			page, err := live.Search(ctx, session.SearchQuery{Text: text})
			if err != nil {
				return nil, err
			}
			all = append(all, page)
		}
		return all, nil
	},
	"Requests": func(ctx context.Context, live *objects.Capability, _ uint64) (any, error) {
		return live.Requests(ctx, session.RequestQuery{})
	},
	"Refs": nil, "List": nil, "Audit": nil, "Children": nil, // none of them shows what is in a session
	"Ref": nil, "Target": nil, "IsSpace": nil,
	"ApplyDirect": nil, "Create": nil, "CreateSharedExternalID": nil, "Share": nil, "Revoke": nil, "RevokeInSpace": nil, "Rotate": nil, "Attenuate": nil, "OpenStream": nil, "CreateStream": nil, "Open": nil, "OpenChild": nil, "RemoveOlder": nil,
}

// allFeatures are what a client of today understands.
var allFeatures = func() (names []any) {
	for _, name := range session.AllFeatures.Names() {
		names = append(names, name)
	}
	return names
}()

// overWires has every method of the schema's Session in the same way, by its name over Cap'n Web.
var overWires = map[string]func(w *webClient, sess *capnweb.Stub, end uint64) any{
	"describe": func(w *webClient, sess *capnweb.Stub, _ uint64) any { return w.give(sess, "info") },
	"events": func(w *webClient, sess *capnweb.Stub, _ uint64) any {
		return w.give(sess, "events", object{"understands": allFeatures})
	},
	"snapshot": func(w *webClient, sess *capnweb.Stub, end uint64) any {
		return []any{w.give(sess, "snapshot", object{"understands": allFeatures}), w.give(sess, "snapshot", object{"at": end - 1, "understands": allFeatures})}
	},
	"subscribe": func(w *webClient, sess *capnweb.Stub, end uint64) any {
		k, s := &webListener{webRecorder: newWebRecorder()}, &webListener{webRecorder: newWebRecorder()}
		w.give(sess, "subscribe", object{"from": 1, "understands": allFeatures}, k)
		k.untilCursor(w.t, end)
		w.give(sess, "subscribe", object{"snapshot": true, "understands": allFeatures}, s)
		s.until(w.t, "the state", func() bool { return s.last })
		return []any{k.heard(), s.heard()}
	},
	"stat": func(w *webClient, sess *capnweb.Stub, _ uint64) any { return w.give(sess, "stat") },
	"get": func(w *webClient, sess *capnweb.Stub, _ uint64) any {
		keys := make([]any, len(sightKeys))
		for i, key := range sightKeys {
			keys[i] = key
		}
		return w.give(sess, "get", keys)
	},
	"list": func(w *webClient, sess *capnweb.Stub, _ uint64) any {
		return []any{w.give(sess, "list", object{"values": true}), w.give(sess, "list", object{"order": "put", "values": true})}
	},
	"search": func(w *webClient, sess *capnweb.Stub, _ uint64) any {
		var all []any
		for _, text := range sightSearches {
			all = append(all, w.give(sess, "search", text))
		}
		return all
	},
	"audit": nil, "refs": nil, "children": nil, "addWebhook": nil, "webhooks": nil, "removeWebhook": nil, // none of them shows what is in a session
	"openStream": nil, "save": nil, "revoke": nil, "attenuate": nil, "rotate": nil, "share": nil, "open": nil,
}

// webListener is a sink that keeps all that it is sent.
type webListener struct {
	*webRecorder
	sent []any
}

// Serve implements capnweb.Object.
func (k *webListener) Serve(c *capnweb.Call) {
	k.mu.Lock()
	k.sent = append(k.sent, c.Args()...)
	k.mu.Unlock()
	k.webRecorder.Serve(c)
}

func (k *webListener) heard() []any {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(k.sent)
}

var sightKeys = []string{"session", "message/a", "message/b", "request/old", "request/new", "part/a/given", "part/a/grown", "part/a/new", "part/a/purged", "part/b/other"}

var sightSearches = []string{`"NEW part"`, "old", "other", "usage", "b"}

func TestEveryReaderIsLimited(t *testing.T) {
	t.Parallel()
	for capability, i := reflect.TypeFor[*objects.Capability](), 0; i < capability.NumMethod(); i++ {
		if _, listed := inProcess[capability.Method(i).Name]; !listed {
			t.Errorf("Capability.%s: does it show only what the ref shows? It is in no list here", capability.Method(i).Name)
		}
	}
	for _, m := range wire.Session_Methods(nil, nil) {
		if _, listed := overWires[m.MethodName]; !listed {
			t.Errorf("Session.%s: does it show only what the ref shows? It is in no list here", m.MethodName)
		}
	}
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		w := r.dialWebIn(t)
		p := r.dial()
		m := r.create(p)
		part := func(key, text string) ledger.Intent {
			return op("put", "key", key, "payload", map[string]string{"text": text})
		}
		r.untilInUse(session.AllFeatures)
		p.must(m.stream, m.batch(
			op("ask", "request", "old", "kind", "own", "payload", "OLD OTHER"),
			op("put", "key", "session", "payload", map[string]string{"title": "OLD OTHER"}),
			op("begin", "message", "a", "payload", map[string]string{"x": "OLD"}),
			part("part/a/grown", "OLD"), part("part/a/given", "OLD"), part("part/a/purged", "OLD")))
		late := p.share(m, "rights", []string{"read"}, "from", 9) // its own is 8
		one := p.share(m, "rights", []string{"read"}, "message", "a")
		parts := p.share(m, "rights", []string{"read"}, "read_keys", []string{"part/a/"})
		p.must(m.stream, m.batch(
			op("appendText", "key", "part/a/grown", "offset", 3, "text", " NEW delta"), op("ask", "request", "new", "kind", "own", "payload", "NEW part OTHER"),
			op("put", "key", "part/a/new", "payload", map[string]string{"text": "NEW part"}),
			op("put", "key", "message/b", "payload", map[string]string{"text": "OTHER"}), part("part/b/other", "OTHER"),
			op("finalize", "message", "a", "status", "completed", "usage", map[string]string{"n": "NEW usage"},
				"parts", []any{map[string]any{"id": "given", "payload": map[string]string{"text": "NEW given"}}}),
			op("purge", "key", "part/a/purged")))
		end := rowOf(t, st, m.id).Cursor

		for _, c := range []struct {
			name  string
			hides []string
			ref   capability.Ref
		}{{"from a cursor", []string{"OLD"}, late}, {"for one message", []string{"OTHER"}, one}, {"for some keys", []string{"OTHER", "usage", "message/b"}, parts}} {
			live, err := r.server.Caller(t.Context(), "127.0.0.1:1").Restore(c.ref, "")
			if err != nil {
				t.Fatal(err)
			}
			check := func(reader string, got any, err error) {
				text := allText(got)
				shown := slices.Contains([]string{"Describe", "describe", "Stat", "stat"}, strings.TrimSuffix(reader, ", of a live capability")) || strings.Contains(text, "NEW part") || strings.HasPrefix(reader, "Requests") && c.name != "from a cursor" || strings.HasPrefix(reader, "Outline") && strings.Contains(text, "part/a/new")
				if err != nil || slices.ContainsFunc(c.hides, func(hidden string) bool { return strings.Contains(text, hidden) }) || !shown {
					t.Errorf("%s by a ref %s: %v\n%s", reader, c.name, err, text)
				}
			}
			for name, read := range inProcess {
				if read != nil {
					got, err := read(t.Context(), live, end)
					check(name, got, err)
				}
			}
			sess := w.give(w.main, "restore", c.ref.Text()).(*capnweb.Stub)
			for name, read := range overWires {
				if read != nil {
					check(name, read(w, sess, end), nil)
				}
			}
			if c.name != "for some keys" {
				continue
			}
			whole, err := r.server.Caller(t.Context(), "127.0.0.1:1").Restore(m.owner, "")
			if err == nil {
				live, err = whole.Attenuate(t.Context(), capability.MintRequest{ReadKeys: []string{"part/a/"}})
			}
			if err != nil {
				t.Fatal(err)
			}
			for name, read := range inProcess {
				if read != nil {
					got, err := read(t.Context(), live, end)
					check(name+", of a live capability", got, err)
				}
			}
			sess = w.give(w.give(w.main, "restore", m.owner.Text()).(*capnweb.Stub), "attenuate", object{"readKeys": []any{"part/a/"}}).(*capnweb.Stub)
			for name, read := range overWires {
				if read != nil {
					check(name+", of a live capability", read(w, sess, end), nil)
				}
			}
		}
	})
}

// TestStat: what is counted is what a snapshot and the log show.
func TestStat(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		p := r.dial()
		m := r.create(p)
		refs := map[string]capability.Ref{"all": m.owner}
		p.must(m.stream, m.batch(op("put", "key", "session", "payload", map[string]string{"title": "T"}), put(1), put(2),
			op("put", "key", "part/msg_1/b", "payload", map[string]string{"text": "old"})))
		refs["a message"] = p.share(m, "rights", []string{"read"}, "message", "msg_1")
		refs["a message that is not there"] = p.share(m, "rights", []string{"read"}, "message", "msg_")
		for _, keys := range [][]string{{"part/msg_1/"}, {"message/", "part/msg_1/a", "part/msg_3/a"}, {"part/", "model/x/y"}, {"session", "session_diff", "part/msg_1/", "part/msg_11/"}, {"todo/"}} {
			refs[fmt.Sprintf("keys %q", keys)] = p.share(m, "rights", []string{"read"}, "read_keys", keys)
		}
		refs["from a cursor"] = p.share(m, "rights", []string{"read"}, "from", rowOf(t, st, m.id).Cursor+2)
		p.must(m.stream, m.batch(op("put", "key", "model/x/y", "payload", map[string]int{"n": 1}), put(1), op("remove", "key", "message/msg_2"),
			op("put", "key", "part/msg_1/a", "payload", map[string]string{"text": "é"}), op("put", "key", "part/msg_11/a", "payload", map[string]int{"n": 2}),
			op("put", "key", "session_diff", "payload", map[string]any{"diff": []int{}})))
		r.untilInUse(session.AllFeatures)
		p.must(m.stream, m.batch(op("put", "key", "todo/1", "payload", "é"), op("put", "key", "todo", "payload", nil), op("put", "key", "todo-x/1", "payload", 7),
			op("put", "key", "plan", "payload", map[string]int{"n": 1}), op("patch", "key", "plan", "patch", map[string]int{"m": 1})))
		p.must(m.stream, m.batch(op("begin", "message", "msg_1", "payload", map[string]int{"n": 3}),
			op("put", "key", "part/msg_1/grows", "payload", map[string]string{"text": "base"}), op("appendText", "key", "part/msg_1/grows", "offset", 4, "text", " and more")))
		p.must(m.stream, m.batch(op("begin", "message", "msg_3", "payload", map[string]int{"n": 3}), op("put", "key", "part/msg_3/a", "payload", map[string]string{"text": "x"}),
			op("finalize", "message", "msg_3", "status", "completed")))
		appender, err := r.server.Caller(t.Context(), "127.0.0.1:1").Restore(p.share(m, "rights", []string{"append"}), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := appender.Stat(t.Context()); fault.CodeOf(err) != fault.MissingRight {
			t.Errorf("a ref that may not read: %v", err)
		}
		checkStat(t, r, st, m.id, refs)
		for more := true; more; {
			if more, err = st.Trim(t.Context(), m.id, time.Nanosecond, 6, 1<<20); err != nil {
				t.Fatal(err)
			}
		}
		if rowOf(t, st, m.id).Base == 0 {
			t.Error("nothing was trimmed")
		}
		checkStat(t, r, st, m.id, refs)
	})
}

// checkStat compares what is counted under each ref with what a snapshot and the log show.
func checkStat(t *testing.T, r *rig, st Store, id string, refs map[string]capability.Ref) {
	t.Helper()
	for name, ref := range refs {
		live, err := r.server.Caller(t.Context(), "127.0.0.1:1").Restore(ref, "")
		if err != nil {
			t.Fatal(err)
		}
		got, err := live.Stat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		want := session.Stat{Cursor: rowOf(t, st, id).Cursor, Kinds: []session.KindStat{}}
		page, err := live.Events(t.Context(), fanout.Position{Cursor: rowOf(t, st, id).Base}, nil, 100)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range page.Events {
			if !e.Hidden {
				want.Events++
				want.Last = e.At
				if want.First == 0 {
					want.First = e.At
				}
			}
		}
		kinds := map[string]session.KindStat{}
		if _, err := live.Snapshot(t.Context(), fanout.Position{}, nil, false, func(piece *session.StateChunk) error {
			for _, e := range piece.Entries {
				kind, _, _ := strings.Cut(e.Key, "/")
				k := kinds[kind]
				kinds[kind] = session.KindStat{Kind: kind, Keys: k.Keys + 1, Bytes: k.Bytes + uint64(len(e.Payload))}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			want.Kinds = append(want.Kinds, kinds[kind])
		}
		if !reflect.DeepEqual(got, &want) {
			t.Errorf("%s: %+v, want %+v", name, got, want)
		}
	}
}

// allText returns all texts and bytes in a value, line by line.
func allText(v any) string {
	var b strings.Builder
	var walk func(reflect.Value)
	walk = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Pointer, reflect.Interface:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				walk(v.Field(i))
			}
		case reflect.Map:
			for _, key := range v.MapKeys() {
				walk(key)
				walk(v.MapIndex(key))
			}
		case reflect.Slice:
			if v.Type().Elem().Kind() == reflect.Uint8 {
				fmt.Fprintf(&b, "%s\n", v.Bytes())
				return
			}
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.String:
			fmt.Fprintln(&b, v.String())
		}
	}
	walk(reflect.ValueOf(v))
	return b.String()
}

// TestTheStoreShowsNoRows: no method of the store gives out events, entries or turns that were not
// limited to what a ref shows.
func TestTheStoreShowsNoRows(t *testing.T) {
	t.Parallel()
	rows := []reflect.Type{reflect.TypeFor[session.Event](), reflect.TypeFor[session.Entry](), reflect.TypeFor[session.Turn]()}
	var reaches func(seen map[reflect.Type]bool, t reflect.Type) bool
	reaches = func(seen map[reflect.Type]bool, t reflect.Type) bool {
		if slices.Contains(rows, t) {
			return true
		}
		if seen[t] {
			return false
		}
		seen[t] = true
		switch t.Kind() {
		case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
			return reaches(seen, t.Elem())
		case reflect.Struct:
			for i := range t.NumField() {
				if f := t.Field(i); f.IsExported() && reaches(seen, f.Type) {
					return true
				}
			}
		case reflect.Func: // what it is called with, and what it returns
			for i := range t.NumIn() {
				if reaches(seen, t.In(i)) {
					return true
				}
			}
			for i := range t.NumOut() {
				if reaches(seen, t.Out(i)) {
					return true
				}
			}
		}
		return false
	}
	store := reflect.TypeFor[Store]()
	for i := range store.NumMethod() {
		if m := store.Method(i); reaches(map[reflect.Type]bool{}, m.Type) {
			t.Errorf("Store.%s gives out rows: it is to return session.Unscoped ones", m.Name)
		}
	}
	if !reaches(map[reflect.Type]bool{}, reflect.TypeFor[func(*session.LogPage)]()) {
		t.Error("a page of the log is not known to have rows: this test shows nothing")
	}
}
