package session_test

// What a ref for one message covers: what it may write, and what it is shown.

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/session"
)

func TestInScope(t *testing.T) {
	t.Parallel()
	for key, want := range map[string]bool{
		"message/m": true, "part/m/p": true, "part/m/m": true,
		"message/mm": false, "message/n": false, "part/mm/p": false, "part/n/m": false, "m": false, "m/m": false, "": false,
		"session": false, "session_diff": false, "model/m": false, "ref/m": false, "epoch": false,
	} {
		if got := session.InScope(&capability.Grant{Message: "m"}, key); got != want {
			t.Errorf("%q: %v", key, got)
		}
		if !session.InScope(&capability.Grant{}, key) {
			t.Errorf("%q is hidden from who sees all", key)
		}
	}
}

// TestScopeRanges: a ref covers the keys of the ranges and no others.
func TestScopeRanges(t *testing.T) {
	t.Parallel()
	var keys []string
	for _, id := range []string{"m", "m.", "m0", "m-", "mm", "M", "a", "~"} {
		keys = append(keys, "message/"+id, "part/"+id+"/p", "part/"+id+"/m", "part/p/"+id, "model/"+id, "model/m/"+id)
	}
	keys = append(keys, "session", "session_diff")
	for _, g := range []*capability.Grant{{Message: "m"}, {Message: "m0"}, {ReadKeys: []string{"part/m/", "part/", "part/m/p", "message/m", "session"}},
		{ReadKeys: []string{"model/m/", "message/", "part/m/p", "part/m0/", "model/m"}}} {
		kinds := map[string]bool{}
		for _, key := range keys {
			if _, err := session.ParseKey(key); err != nil {
				continue
			}
			kind, _, _ := strings.Cut(key, "/")
			in := 0
			for _, r := range session.ScopeRanges(g) {
				if key >= r.From && key < r.Below {
					kinds[r.Kind] = true
					if in++; r.Kind != kind {
						t.Errorf("%s is in the range of %s", key, r.Kind)
					}
				}
			}
			if want := session.InScope(g, key); in > 1 || (in == 1) != want {
				t.Errorf("for message %q %s is in %d ranges, in scope: %t", g.Message, key, in, want)
			}
		}
		if g.ReadKeys == nil && len(kinds) != len(session.ScopeRanges(g)) {
			t.Errorf("for message %q keys were tried of %v", g.Message, kinds)
		}
	}
}

func TestView(t *testing.T) {
	t.Parallel()
	var log []*session.Event
	for i, key := range []string{"ref/x", "session", "message/m", "model/a", "message/n", "epoch", "part/m/p", "message/m", "part/n/m"} {
		log = append(log, &session.Event{Session: "ses", Cursor: uint64(i + 1), Key: key, Payload: []byte(`{}`), Hash: session.Hash{byte(i)}})
	}
	var got []string
	one, key := &capability.Grant{Message: "m"}, &session.HashKey{1}
	for _, e := range session.VisibleEvents(one, log, key) {
		whole := *log[e.Cursor-1]
		whole.Hash = key.Mask(one, whole.Hash)
		if e.Hash == log[e.Cursor-1].Hash || e.Hash != whole.Hash || e.Hash == new(session.HashKey).Mask(one, log[e.Cursor-1].Hash) {
			t.Errorf("event %d has the hash %s", e.Cursor, e.Hash)
		}
		if !e.Hidden && !reflect.DeepEqual(e, &whole) || e.Hidden && (e.Session != "ses" || e.Key != "" || e.Payload != nil) {
			t.Errorf("event %+v", e)
		}
		got = append(got, fmt.Sprintf("%d%s", e.Cursor, e.Key))
	}
	if want := []string{"2", "3message/m", "6", "7part/m/p", "8message/m", "9"}; !slices.Equal(got, want) {
		t.Errorf("shown are %q, want %q", got, want)
	}
	if got := session.VisibleEvents(&capability.Grant{}, log, new(session.HashKey)); !slices.Equal(got, log) {
		t.Errorf("to who sees all %d of %d are shown", len(got), len(log))
	}
}

func TestPrefixEnd(t *testing.T) {
	t.Parallel()
	for prefix, key := range map[string]string{"part/m/": "part/m/\U0010FFFD", "": "\U0010FFFD", "a": "a\U0010FFFD", "z~": "z~~~~"} {
		if !(key < session.PrefixEnd(prefix)) {
			t.Errorf("%q is not below %q", key, session.PrefixEnd(prefix))
		}
	}
	if session.PrefixEnd("part/m/") > "part/m0" {
		t.Errorf("above part/m/ is %q", session.PrefixEnd("part/m/"))
	}
}

// The end of a turn by a server that did not say since when each value stands shows
// none of them to a limited ref; the state has the oldest that it may be.
func TestAnEndThatSaysNoSince(t *testing.T) {
	t.Parallel()
	end := &session.Event{Session: "ses", Cursor: 4, Method: session.MethodFinalize, Key: "message/m", Schema: 1,
		Payload: []byte(`{"status":"completed","entries":[{"key":"message/m","schema_version":1,"payload":"{}"},{"key":"part/m/p","schema_version":1,"payload":"{}"}]}`)}
	if got, want := string(session.VisibleEvents(&capability.Grant{VisibleFrom: 2}, []*session.Event{end}, new(session.HashKey))[0].Payload), `{"status":"completed","entries":[],"hidden":2}`; got != want {
		t.Errorf("shown is %s, want %s", got, want)
	}
	f := session.NewFold("ses")
	for i, e := range []*session.Event{{Method: session.MethodCreate}, {Method: session.MethodBegin, Key: "message/m"}, {Method: session.MethodPut, Key: "message/n"}, end} {
		if e.Cursor = uint64(i + 1); e.Payload == nil {
			e.Payload = []byte(`{}`)
		}
		if err := f.Apply(e); err != nil {
			t.Fatal(err)
		}
	}
	if m, p := f.Entry("message/m").Since, f.Entry("part/m/p").Since; m != 2 || p != 4 {
		t.Errorf("the message stands since %d, the part since %d", m, p)
	}
	if session.ShowsEntry(&capability.Grant{VisibleFrom: 2}, &session.Entry{Key: "message/m", Cursor: 4}) {
		t.Error("an entry of which no row says since when is shown")
	}
}

// What a session was forked from is shown to refs that show all of it, as its first event is.
func TestOriginsAreHidden(t *testing.T) {
	t.Parallel()
	origin := session.Origin{Session: "ses_source", Cursor: 7, Message: "m"}
	parent := session.Parent{Session: "ses_parent", Key: "message/m", Above: "ses_parent"}
	d := session.NewUnscoped(&session.Description{Access: session.Access{Row: &session.Row{ID: "ses_fork", Origin: origin, Parent: parent}}})
	for _, c := range []struct {
		g    capability.Grant
		want session.Origin
	}{
		{capability.Grant{}, origin},
		{capability.Grant{VisibleFrom: 1}, origin},
		{capability.Grant{VisibleFrom: 2}, session.Origin{}},
		{capability.Grant{Message: "m"}, session.Origin{}},
		{capability.Grant{ReadKeys: []string{"todo/"}}, session.Origin{}},
		{capability.Grant{WriteKeys: []string{"todo/"}}, origin},
	} {
		shown := d.Shown(&c.g).Row
		if shown.Origin != c.want {
			t.Errorf("%+v is shown %+v, want %+v", c.g, shown.Origin, c.want)
		}
		if (shown.Parent == parent) != (c.want == origin) || shown.Parent != parent && shown.Parent != (session.Parent{}) {
			t.Errorf("%+v is shown the parent %+v", c.g, shown.Parent)
		}
	}
}
