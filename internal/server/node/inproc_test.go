//go:build unix

package node

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/fanout"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/until"
	"github.com/mooring-rpc/mooring/ledger"
)

// plainOp is an op for Capability.ApplyDirect; args are names and JSON texts in turn.
func plainOp(method string, args ...string) ledger.Intent {
	op := ledger.Intent{OpID: ulid.Make().String(), BatchID: ulid.Make().String(), Method: method}
	for i := 0; i < len(args); i += 2 {
		op.Args = append(op.Args, ledger.Arg{Name: args[i], JSON: []byte(args[i+1])})
	}
	return op
}

// newRefOf is a ref's id with its secret and hash.
func newRefOf(target string) (id string, s capability.Secret, hash [32]byte) {
	s = capability.NewSecret()
	return capability.DeriveID(target, s), s, s.Hash()
}

func TestTheDoor(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, nil)
		me := r.server.Caller(t.Context(), "127.0.0.1:1")
		space, err := me.Restore(r.owner, "")
		if err != nil || !space.IsSpace() || space.Target() != r.owner.Target() {
			t.Fatal(space, err)
		}
		if d, err := space.Describe(t.Context()); err != nil || !d.Grant.Rights.Has(capability.Create) {
			t.Fatal(d, err)
		}
		id := capability.SessionPrefix + ulid.Make().String()
		owner, secret, _ := newRefOf(id)
		args := []ledger.Arg{{Name: "ref", JSON: fmt.Appendf(nil, "%q", owner)}, {Name: "hash", JSON: fmt.Appendf(nil, "%q", hashText(secret))}}
		if err := space.Create(t.Context(), id, owner, nil, args...); err != nil {
			t.Fatal(err)
		}
		if err := space.Create(t.Context(), id, owner, nil, args...); !errors.Is(err, fault.AlreadyExists) {
			t.Errorf("made again: %v", err)
		}
		if _, err := space.ApplyDirect(t.Context(), plainOp("put")); !errors.Is(err, fault.BadArgument) {
			t.Errorf("a put in a space: %v", err)
		}
		live, err := me.Restore(r.owner.With(owner, secret), "r1")
		if err != nil {
			t.Fatal(err)
		}
		cursor, err := live.ApplyDirect(t.Context(), plainOp("put", "key", `"session"`, "payload", `{"title":"Hi"}`), plainOp("put", "key", `"message/m"`, "payload", `{}`))
		if err != nil || cursor != 3 {
			t.Fatal(cursor, err)
		}
		if _, err := live.ApplyDirect(t.Context(), plainOp("put", "key", `"message/n"`, "payload", `{}`), plainOp("put", "key", `"ref/x"`, "payload", `{}`)); !errors.Is(err, fault.BadKey) {
			t.Errorf("a bad op: %v", err)
		}
		if d, err := live.Describe(t.Context()); err != nil || d.Row.Cursor != 3 || !strings.Contains(string(d.Info.Payload), "Hi") {
			t.Errorf("%+v, %v", d, err)
		}
		if list, err := space.List(t.Context(), session.ListQuery{Limit: 10}); err != nil || list.Next != "" || len(list.Sessions) != 1 || list.Sessions[0].Title != "Hi" {
			t.Errorf("%+v, %v", list, err)
		}

		// The state by keys, and whole; the log.
		page, next, err := live.Range(t.Context(), "", "z", 1<<20, 1)
		if err != nil || len(page.Entries) != 1 || page.Entries[0].Key != "message/m" || next != "message/m" {
			t.Errorf("%+v, %q, %v", page, next, err)
		}
		page, next, err = live.Range(t.Context(), next, "z", 1<<20, 1)
		if err != nil || len(page.Entries) != 1 || page.Entries[0].Key != "session" || next != "" {
			t.Errorf("%+v, %q, %v", page, next, err)
		}
		var keys []string
		at, err := live.Snapshot(t.Context(), fanout.Position{}, nil, false, func(p *session.StateChunk) error {
			for _, e := range p.Entries {
				keys = append(keys, e.Key)
			}
			return nil
		})
		if err != nil || at.Cursor != 3 || fmt.Sprint(keys) != "[message/m session]" {
			t.Errorf("%v at %v, %v", keys, at, err)
		}
		stop := errors.New("enough")
		if _, err := live.Snapshot(t.Context(), fanout.Position{}, nil, false, func(*session.StateChunk) error { return stop }); err != stop {
			t.Errorf("the taker's error came back as %v", err)
		}
		if log, err := live.Events(t.Context(), fanout.Position{Cursor: 1}, nil, 10); err != nil || len(log.Events) != 2 {
			t.Errorf("%+v, %v", log, err)
		}

		// A reader follows, without a gap, until its ref is revoked.
		reader, rs, rh := newRefOf(id)
		if err := live.Share(t.Context(), capability.MintRequest{ID: reader, Hash: rh, Rights: capability.Read}); err != nil {
			t.Fatal(err)
		}
		looking, err := me.Restore(r.owner.With(reader, rs), "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := looking.ApplyDirect(t.Context(), plainOp("put", "key", `"message/m"`, "payload", `{"a":1}`)); !errors.Is(err, fault.MissingRight) {
			t.Errorf("a reader writes: %v", err)
		}
		seen, over := make(chan uint64, 100), make(chan error, 1)
		go func() {
			over <- looking.Follow(t.Context(), fanout.Position{}, nil, func(events []*session.Event) error {
				for _, e := range events {
					seen <- e.Cursor
				}
				return nil
			})
		}()
		if _, err := live.ApplyDirect(t.Context(), plainOp("remove", "key", `"message/m"`)); err != nil {
			t.Fatal(err)
		}
		for want := range uint64(5) {
			if got := <-seen; got != want+1 {
				t.Fatalf("event %d in place of %d", got, want+1)
			}
		}
		cut, err := live.Revoke(t.Context(), reader, false)
		if err != nil || cut.Cut != 6 {
			t.Fatal(cut, err)
		}
		if err := <-over; !errors.Is(err, fault.Revoked) {
			t.Errorf("it ends with %v", err)
		}
		if _, _, err := looking.Range(t.Context(), "", "z", 1, 1); !errors.Is(err, fault.Revoked) {
			t.Errorf("a dead ref reads: %v", err)
		}
		if err := looking.Follow(t.Context(), fanout.Position{}, nil, nil); !errors.Is(err, fault.Revoked) {
			t.Errorf("a dead ref follows: %v", err)
		}
		if err := me.Assume(reader).Follow(t.Context(), fanout.Position{}, nil, nil); !errors.Is(err, fault.Revoked) {
			t.Errorf("a dead ref follows without its secret: %v", err)
		}

		// Who leaves stops following.
		ctx, leave := context.WithCancel(t.Context())
		go func() {
			over <- live.Follow(ctx, fanout.Position{Cursor: 5}, nil, func([]*session.Event) error { leave(); return nil })
		}()
		if err := <-over; !errors.Is(err, context.Canceled) {
			t.Errorf("it ends with %v", err)
		}
		if err := live.Follow(t.Context(), fanout.Position{}, nil, func([]*session.Event) error { return stop }); err != stop {
			t.Errorf("the taker's error came back as %v", err)
		}
		go func() { over <- live.Follow(t.Context(), fanout.Position{Cursor: 6}, nil, nil) }()
		until.True(t, "it follows", func() bool {
			return followedSessions(r) == 1
		})
		r.stop()
		if err := <-over; !errors.Is(err, fault.Draining) {
			t.Errorf("it ends with %v", err)
		}
	})
}

func TestMount(t *testing.T) {
	t.Parallel()
	s := New(Config{Store: sqliteStore(t), Prefix: "below"})
	s.Mount("/mounted/", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.Path) }))
	for _, path := range []string{"/mounted/x", "/below/mounted/x"} {
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, httptest.NewRequest("GET", path, nil))
		if w.Code != 200 || w.Body.String() != "/mounted/x" {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
}
