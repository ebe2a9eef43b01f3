//go:build unix

// A server whose database is put back to a backup, and goes on otherwise from there.

package client_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/pgtest"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
	"github.com/mooring-rpc/mooring/rpc"
)

// backup keeps the stopped server's database; what it returns puts it back.
func (r *rig) backup(t *testing.T) (restore func()) {
	t.Helper()
	if r.url != "" {
		kept := pgtest.Copy(t, r.url)
		return func() { r.url = kept }
	}
	data, kept := filepath.Join(r.dir, "data"), filepath.Join(r.dir, "kept")
	if err := os.CopyFS(kept, os.DirFS(data)); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(kept)), os.Chmod(data, 0o700)); err != nil {
			t.Fatal(err)
		}
	}
}

// copyLive is backup of a server that runs and is written to: made, and put back, as operators are told to.
func (r *rig) copyLive(t *testing.T) (restore func()) {
	t.Helper()
	if r.url != "" {
		kept := pgtest.Dump(t, r.url)
		return func() { r.url = kept; r.restored(t) }
	}
	data, kept := filepath.Join(r.dir, "data"), filepath.Join(r.dir, "copy.db")
	if _, err := sqlite.Backup(t.Context(), data, kept, sqlite.BackupOptions{}); err != nil {
		t.Fatal(err)
	}
	return func() {
		for _, tail := range []string{"", "-wal", "-shm"} {
			if err := os.Remove(filepath.Join(data, "mooring.db"+tail)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		if err := os.Rename(kept, filepath.Join(data, "mooring.db")); err != nil {
			t.Fatal(err)
		}
		r.restored(t)
	}
}

// restored says to the database that it was put back.
func (r *rig) restored(t *testing.T) {
	t.Helper()
	st, err := r.store(t.Context())
	if err == nil {
		_, err = st.BeginHistory(t.Context())
		err = errors.Join(err, st.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// past has a client go to the server past the proxy.
func (r *rig) past(c *client.Config) {
	c.SetDial(func(ctx context.Context, url string) (rpc.Transport, error) {
		return rpc.Dial(ctx, strings.Replace(url, r.proxy.Addr(), r.here, 1), rpc.DialOptions{})
	})
}

// follower follows a session and keeps what it is given: a line for each event, or for
// each key of a state in place of all before.
type follower struct {
	mu    sync.Mutex
	seen  []string
	last  client.Position
	overs int // how often it started over
	done  chan struct{}
	err   error
}

func line(cursor uint64, hash client.Hash) string {
	return client.Position{Cursor: cursor, Hash: hash}.String()
}

func follow(ctx context.Context, s *client.Session, from client.Position, startOver bool) *follower {
	f := &follower{done: make(chan struct{})}
	o := client.SubscribeOptions{After: from.Cursor, Hash: from.Hash}
	if startOver {
		o.StartOver = func(state *client.State) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen, f.last = nil, state.Position()
			f.overs++
			return nil
		}
	}
	go func() {
		defer close(f.done)
		f.err = s.Subscribe(ctx, o, func(e client.Event) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.seen, f.last = append(f.seen, line(e.Cursor, e.Hash)), client.Position{Cursor: e.Cursor, Hash: e.Hash}
			return nil
		})
	}()
	return f
}

// until waits until the follower has what ok wants.
func (f *follower) until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	for {
		f.mu.Lock()
		is := ok()
		f.mu.Unlock()
		if is {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("the follower has no %s: %d events, up to %v", what, len(f.seen), f.last)
		case <-time.After(time.Millisecond):
		}
	}
}

// refused waits for the follower's end.
func (f *follower) refused(t *testing.T, what string) {
	t.Helper()
	select {
	case <-f.done:
	case <-time.After(time.Minute):
		t.Fatalf("%s: it goes on", what)
	}
	if !errors.Is(f.err, fault.ServerBehind) {
		t.Errorf("%s: it ended with %v", what, f.err)
	}
}

// Who followed the log that is gone is told so, however far the new one has come: the same
// subscription that was cut off, and another process that begins where it was. Where it is
// to start over, it has what the log has now, and nothing else.
func TestFollowerOfALostLogGetsAnError(t *testing.T) {
	t.Parallel()
	onBothRigs(t, testLogThatIsGone)
}

// onBothRigs runs a test with a server on SQLite, and with one on Postgres.
func onBothRigs(t *testing.T, test func(*testing.T, *rig)) {
	for name, url := range map[string]func(*testing.T) string{
		"sqlite": func(*testing.T) string { return "" }, "postgres": func(t *testing.T) string { return pgtest.URL(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := testRig(t)
			if r.url = url(t); r.url != "" { // begin anew, there
				data := filepath.Join(r.dir, "data")
				if err := errors.Join(r.stop(), os.RemoveAll(data), os.Mkdir(data, 0o700), r.start()); err != nil {
					t.Fatal(err)
				}
			}
			test(t, r)
		})
	}
}

func testLogThatIsGone(t *testing.T, r *rig) {
	ctx := t.Context()
	puts := func(s *client.Session, by string, n int) {
		b := s.Batch()
		for i := range n {
			b.Put(fmt.Sprintf("message/%s_%d", by, i), object{"by": by})
		}
		applied(t, b)
	}
	a := r.newSession(t, r.open(t, "a"))
	puts(a, "a", 10)
	ref, ticket, err := a.Share(ctx, client.ShareOptions{Rights: capability.Read | capability.Append})
	if err == nil {
		_, err = ticket.Wait(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	session := func(home string, change ...func(*client.Config)) *client.Session {
		t.Helper()
		s, err := r.open(t, home, change...).Session(ctx, ref)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	restore := r.backup(t)
	if err := r.start(); err != nil {
		t.Fatal(err)
	}

	follows := session("follower")
	cutOff, again := follow(ctx, follows, client.Position{}, false), follow(ctx, follows, client.Position{}, true)
	puts(a, "more", 10)
	for _, f := range []*follower{cutOff, again} {
		f.until(t, "events up to 22", func() bool { return f.last.Cursor == 22 })
	}
	kept := cutOff.last

	// The backup is back, and another writer has passed the cursor before anybody comes again.
	r.proxy.Refuse(true)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	restore()
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	b := session("b", r.past)
	puts(b, "b", 20)
	page, err := b.Events(ctx, 0, 100)
	if err != nil || page.Cursor != 32 {
		t.Fatalf("the log has come to %d: %v", page.Cursor, err)
	}
	r.proxy.Refuse(false)

	cutOff.refused(t, "the subscription that was cut off")
	if n := len(cutOff.seen); n != 22 {
		t.Errorf("it was given %d events, 22 of them before", n)
	}
	later := session("later")
	for what, at := range map[string]client.Position{"in the log": kept, "beyond its end": {Cursor: 33}} {
		follow(ctx, later, at, false).refused(t, "another process, "+what)
		if _, err := later.EventsFrom(ctx, at, 10); !errors.Is(err, fault.ServerBehind) {
			t.Errorf("a page from %s: %v", what, err)
		}
		if _, err := later.SnapshotOf(ctx, at); !errors.Is(err, fault.ServerBehind) {
			t.Errorf("the state of what was %s: %v", what, err)
		}
	}
	if page, err := later.Events(ctx, kept.Cursor, 1); err != nil || page.Events[0].Cursor != kept.Cursor+1 {
		t.Errorf("who names no hash: %v", err)
	}

	// Those that start over have the log as it is.
	fresh := follow(ctx, later, kept, true)
	for _, f := range []*follower{again, fresh} {
		f.until(t, "new start", func() bool { return f.overs == 1 && f.last.Cursor >= 32 })
	}
	puts(b, "after", 3)
	page, err = b.Events(ctx, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	end := page.Events[len(page.Events)-1]
	var log []string
	for _, e := range page.Events {
		log = append(log, line(e.Cursor, e.Hash))
	}
	for _, f := range []*follower{again, fresh} {
		f.until(t, "the log's end", func() bool { return f.last.Cursor == end.Cursor })
		if tail := log[len(log)-len(f.seen):]; f.last.Hash != end.Hash || f.overs != 1 || !slices.Equal(f.seen, tail) {
			t.Errorf("after %d new starts it has %q, the log ends with %q", f.overs, f.seen, tail)
		}
	}
}

// audited is what has an audit.
type audited interface {
	Audit(ctx context.Context, after uint64, limit uint32) (client.AuditPage, error)
	FollowAudit(ctx context.Context, o client.AuditOptions) iter.Seq2[capability.AuditRow, error]
}

// Who followed an audit that is gone is told so as well, of a session and of a space: the
// follower that was cut off, and another process that begins where it was.
func TestFollowerOfALostAuditGetsAnError(t *testing.T) {
	t.Parallel()
	onBothRigs(t, testAuditThatIsGone)
}

func testAuditThatIsGone(t *testing.T, r *rig) {
	ctx := t.Context()
	owner := r.newSession(t, r.open(t, "owner")).Ref()
	open := func(home string, change ...func(*client.Config)) (all map[string]audited, act func(n int)) {
		t.Helper()
		c := r.open(t, home, change...)
		space := r.space(t, c)
		s, err := c.Session(ctx, owner)
		if err != nil {
			t.Fatal(err)
		}
		return map[string]audited{"a session's": s, "a space's": space}, func(n int) {
			t.Helper()
			for range n {
				_, bumped := s.BumpEpoch(ctx)
				_, shared := space.Share(ctx, client.ShareOptions{Rights: capability.Create})
				if err := errors.Join(bumped, shared); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	restore := r.backup(t)
	if err := r.start(); err != nil {
		t.Fatal(err)
	}

	all, act := open("follower")
	act(3)
	type following struct {
		last  client.Position
		ended chan error
	}
	follows := map[string]*following{}
	for name, of := range all {
		page, err := of.Audit(ctx, 0, 0)
		if err != nil {
			t.Fatal(err)
		}
		f := &following{client.Position{Cursor: page.Seq, Hash: page.Head}, make(chan error, 1)}
		follows[name] = f
		there := make(chan struct{})
		go func() {
			for row, err := range of.FollowAudit(ctx, client.AuditOptions{Interval: time.Millisecond}) {
				if err != nil {
					f.ended <- err
					return
				}
				if row.Seq == page.Seq {
					close(there)
				}
			}
		}()
		<-there
	}

	r.proxy.Refuse(true)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	restore()
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	_, act = open("other", r.past)
	act(20) // further than any has seen
	r.proxy.Refuse(false)

	later, _ := open("later")
	for name, f := range follows {
		select {
		case err := <-f.ended:
			if !errors.Is(err, fault.ServerBehind) {
				t.Errorf("%s follower that was cut off ended with %v", name, err)
			}
		case <-time.After(time.Minute):
			t.Fatalf("%s follower that was cut off goes on", name)
		}
		for what, o := range map[string]client.AuditOptions{"in it": {After: f.last.Cursor, Hash: f.last.Hash}, "beyond its end": {After: 1000}} {
			for _, err := range later[name].FollowAudit(ctx, o) {
				if !errors.Is(err, fault.ServerBehind) {
					t.Errorf("another process in %s audit, %s: %v", name, what, err)
				}
				break
			}
		}
		for _, err := range later[name].FollowAudit(ctx, client.AuditOptions{After: f.last.Cursor}) {
			if err != nil {
				t.Errorf("who names no hash in %s audit: %v", name, err)
			}
			break
		}
	}
}

// A page goes on from a row, or it does not, however far the audit has come.
func TestAuditPagesFollow(t *testing.T) {
	t.Parallel()
	var chain, other client.AuditPage
	for i, page := range []*client.AuditPage{&chain, &other} {
		for n := range uint64(3) {
			row := capability.AuditRow{Target: "ses_1", Seq: n + 1, Act: capability.AuditShare, At: int64(i)}
			row.Hash = capability.HashAuditRow(page.Head, &row)
			page.Rows, page.Seq, page.Head = append(page.Rows, row), row.Seq, row.Hash
		}
	}
	for after := range uint64(5) {
		for _, known := range []bool{true, false} {
			for _, same := range []bool{true, false} {
				page, at := chain, client.Position{Cursor: after}
				if !same {
					page = other
				}
				page.Rows = page.Rows[min(after, 3):]
				if known && after > 0 {
					at.Hash = chain.Rows[min(after, 3)-1].Hash
				}
				want := after > 3 || known && after > 0 && !same
				if err := page.Follows(at); (err != nil) != want || want && !errors.Is(err, fault.ServerBehind) {
					t.Errorf("after row %d, its hash known: %v, the same audit: %v: %v", after, known, same, err)
				}
			}
		}
	}
}
