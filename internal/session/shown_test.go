package session_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/seed"
	"github.com/mooring-rpc/mooring/internal/session"
)

// sightLog is a log of events of which refs show more, less and parts.
func sightLog() session.UnscopedEvents {
	var list []*session.Event
	add := func(method, key, payload string) {
		n := uint64(len(list) + 1)
		list = append(list, &session.Event{Session: "ses_1", Cursor: n, Method: method, Key: key, Payload: []byte(payload), Hash: session.Hash{byte(n)}})
	}
	for _, m := range []string{"m1", "m2"} {
		for _, p := range []string{"a", "b"} {
			add("put", "part/"+m+"/"+p, `{}`)
		}
		add("put", "message/"+m, `{}`)
		add(session.MethodFinalize, "message/"+m, fmt.Sprintf(`{"entries":[{"key":"part/%s/a","payload":"{}","since":%d},{"key":"part/%s/b","payload":"{}","since":1}]}`, m, len(list), m))
		add(session.MethodPurge, "part/"+m+"/a", `{"events":[{"cursor":1},{"cursor":6}]}`)
	}
	for _, key := range []string{"todo/1", "todo/2", "session"} {
		add("put", key, `{}`)
	}
	add(session.MethodRevert, "revert", `{"to":"message/m1"}`)
	add(session.MethodCompact, "compact", `{"upto":"message/m1"}`)
	return session.NewUnscopedEvents(list)
}

// TestSight: readers of one sight are shown the same, whatever else their refs allow, and what reads differently is
// not one sight.
func TestSight(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(seed.Of(t), 1))
	lists := [][]string{nil, {}, {"todo/"}, {"todo/1"}, {"todo/1", "todo/2"}, {"part/"}, {"part/m1/"}, {"message/", "part/"}, {"message/m2"}}
	pick := func() []string { return lists[rng.IntN(len(lists))] }
	type reader struct {
		g    *capability.Grant
		keys *session.Selection
	}
	random := func() reader {
		r := reader{g: &capability.Grant{ID: fmt.Sprint(rng.IntN(3)), Rights: capability.Rights(rng.IntN(8)), Actor: fmt.Sprint(rng.IntN(3)), Expires: rng.Int64N(2),
			VisibleFrom: uint64(rng.IntN(6)), WriteKeys: pick(), Owner: rng.IntN(2) == 0}}
		switch rng.IntN(3) {
		case 0:
			r.g.ReadKeys = pick()
		case 1:
			r.g.Message = []string{"m1", "m2"}[rng.IntN(2)]
		}
		if asked := pick(); rng.IntN(2) == 0 && len(asked) > 0 {
			selected, refused := session.SelectKeys(asked)
			if refused != nil {
				t.Fatal(refused)
			}
			r.keys = selected
		}
		return r
	}
	log, masks := sightLog(), &session.HashKey{1}
	sights, shown := map[session.Sight][]*session.Event{}, 0
	for range 3000 {
		r := random()
		sight := session.SightOf(r.g, r.keys)
		events := new(session.ShownCache).Shown(log, log.Len(), sight, r.g, r.keys, masks).Events
		if before, known := sights[sight]; known && !reflect.DeepEqual(before, events) {
			t.Fatalf("readers of one sight are shown different events: %+v %+v", r.g, r.keys)
		} else if known {
			shown++
		}
		sights[sight] = events
	}
	if shown < 500 || len(sights) < 50 {
		t.Errorf("%d sights, %d readers of a known one: too few to tell", len(sights), shown)
	}
	if session.SightOf(&capability.Grant{Rights: capability.Read, VisibleFrom: 1}, nil) != (session.Sight{}) {
		t.Error("a ref that shows all has a sight of its own")
	}
}

// TestShownCache: the same events are shown once to all readers of a sight, and no others to any.
func TestShownCache(t *testing.T) {
	t.Parallel()
	var c session.ShownCache
	log, masks := sightLog(), &session.HashKey{1}
	all, part := &capability.Grant{}, &capability.Grant{ReadKeys: []string{"todo/"}}
	get := func(u session.UnscopedEvents, n int, g *capability.Grant) *session.Shown {
		return c.Shown(u, n, session.SightOf(g, nil), g, nil, masks)
	}
	first := get(log, 3, all)
	encoded := 0
	for range 3 {
		if got := first.Encoded(func(events []*session.Event) any { encoded++; return len(events) }); got != 3 {
			t.Errorf("encoded: %v", got)
		}
	}
	if encoded != 1 {
		t.Errorf("encoded %d times", encoded)
	}
	if get(log, 3, &capability.Grant{Rights: capability.Read}) != first {
		t.Error("a reader of equal sight does not share")
	}
	for what, other := range map[string]*session.Shown{
		"of another sight": get(log, 3, part), "of more events": get(log, 4, all), "that begin later": get(log.From(2), 3, all), "of another log": get(sightLog(), 3, all),
	} {
		if other == first {
			t.Errorf("events %s are shared", what)
		}
	}
	if p := get(log, log.Len(), part); p.Cursor != log.Last() || len(p.Events) == log.Len() || slices.ContainsFunc(p.Events, func(e *session.Event) bool { return !e.Hidden && e.Key == "session" }) {
		t.Errorf("a limited ref is shown %d events up to %d", len(p.Events), p.Cursor)
	}
	c.Clear()
	if get(log, 3, all) == first {
		t.Error("it was not forgotten")
	}
}
