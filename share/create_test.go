package share

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/server"
	"github.com/mooring-rpc/mooring/session"
	"github.com/mooring-rpc/mooring/store"
)

// However many create at once, there is one session and one share, and every secret
// that was given out is good.
func TestConcurrentCreates(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		got := make([]created, 12)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i] = r.create("ses_at_once") })
		}
		all.Wait()
		secrets := map[string]bool{}
		for i, c := range got {
			if c.ID != got[0].ID || c.URL != got[0].URL || !isPublicID(c.ID) {
				t.Errorf("create %d gave %s, another %s", i, c.ID, got[0].ID)
			}
			secrets[c.Secret] = true
			r.want(200, r.sync(c, message("msg_1", fmt.Sprint(i))))
		}
		if len(secrets) != len(got) {
			t.Errorf("%d secrets for %d creates", len(secrets), len(got))
		}
		if made := r.sessions(); made["ses_at_once"] != 1 {
			t.Errorf("the sessions are %v", made)
		}
	})
}

// After a DELETE a create makes another share of the same session.
func TestSharingAgain(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	first, twin := r.create("ses_again"), r.create("ses_again")
	r.want(200, r.sync(first, message("msg_1", "kept")))
	byHTTP{r}.delete(first)
	byHTTP{r}.delete(first) // a client that did not hear of it
	second := r.create("ses_again")
	if second.ID == first.ID {
		t.Fatal("the id of a share that was ended is given again")
	}
	if items := r.data(second); len(items) != 1 || !strings.Contains(items[0], "kept") {
		t.Errorf("the session has %v", items)
	}
	for what, c := range map[string]created{"the old share": first, "the old share, by another secret": twin} {
		if got := r.sync(c, message("msg_2", "lost")); got.status != 404 {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	for what, c := range map[string]created{
		"the new share with an old secret": {ID: second.ID, Secret: first.Secret}, "the old share with a new secret": {ID: first.ID, Secret: second.Secret},
	} {
		if got := r.sync(c, message("msg_2", "lost")); got.status != 403 || !strings.Contains(got.body, `"error":"Invalid secret"`) {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
		if got := r.request("DELETE", "/api/share/"+c.ID, `{"secret":"`+c.Secret+`"}`); got.status != 403 {
			t.Errorf("%s, deleting: %d %s", what, got.status, got.body)
		}
	}
	r.want(200, r.sync(second, message("msg_1", "kept, and changed")))
	if made := r.sessions(); made["ses_again"] != 1 || len(made) != 1 {
		t.Errorf("the sessions are %v", made)
	}
	ids, err := r.service.PublicIDs(t.Context(), []string{shared(t, r, second).Session})
	if err != nil || len(ids) != 1 || ids[shared(t, r, second).Session] != second.ID {
		t.Errorf("the living shares are %v, %v", ids, err)
	}
}

func shared(t *testing.T, r *rig, c created) *capability.PublicShare {
	t.Helper()
	p, err := r.store.FindShare(t.Context(), c.ID)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A share that was planned and never made is none.
func TestAPlannedShare(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	id := capability.SessionPrefix + ulid.Make().String()
	p, err := r.store.PublishShare(t.Context(), plan(id, capability.ServerID(id, ulid.Make())))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/share/" + p.ID, "/api/share/" + p.ID + "/data", "/api/share/" + p.ID + "/metadata", "/ws/" + p.ID} {
		if got := r.request("GET", path, ""); got.status != 404 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	ids, err := r.service.PublicIDs(t.Context(), []string{id})
	if err != nil || len(ids) != 0 {
		t.Errorf("its session has %v, %v", ids, err)
	}
	held, err := r.service.Public(t.Context(), r.server.Caller(t.Context(), "127.0.0.1:1"), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := held.Describe(t.Context()); err == nil {
		t.Error("it shows something")
	}
}

// Only the newest secrets of a share are good, as many as are allowed.
func TestOldSecretsEnd(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.share.Writers = 2 })
	var all []created
	for range 4 {
		all = append(all, r.create("ses_many"))
	}
	for i, c := range all {
		want := 404
		if i >= 2 {
			want = 200
		}
		if got := r.sync(c, message("msg_1", "x")); got.status != want {
			t.Errorf("secret %d: %d %s", i, got.status, got.body)
		}
	}
	if got := r.request("DELETE", "/api/share/"+all[0].ID, `{"secret":"`+all[0].Secret+`"}`); got.status != 404 {
		t.Errorf("an ended secret deletes: %d %s", got.status, got.body)
	}
	r.data(all[3])
}

// A session that came about in another way is not shared by a create.
func TestForeignSessions(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	create := func(space *server.Held, external string) {
		t.Helper()
		id := capability.SessionPrefix + ulid.Make().String()
		owner := capability.ServerID(id, ulid.Make())
		args := []ledger.Arg{{Name: "ref", JSON: jsonText(owner)}, {Name: "hash", JSON: jsonText(nobodys())}, {Name: "external", JSON: jsonText(external)}}
		if err := space.Create(t.Context(), id, owner, args...); err != nil {
			t.Fatal(err)
		}
	}
	create(r.held(r.owner), "ses_imported")
	only := r.spaceRef(capability.Create)
	create(r.held(only), "ses_by_client")
	theirs := CreatorPath(only)
	got := r.want(200, r.request("POST", theirs+"/api/share", `{"sessionID":"ses_theirs"}`))
	for what, path := range map[string]string{"ses_imported": "", "ses_by_client": theirs, "ses_theirs": ""} {
		got := r.request("POST", path+"/api/share", fmt.Sprintf(`{"sessionID":%q}`, what))
		if got.status != 409 || !strings.Contains(got.body, "already") {
			t.Errorf("%s: %d %s", what, got.status, got.body)
		}
	}
	if again := r.want(200, r.request("POST", theirs+"/api/share", `{"sessionID":"ses_theirs"}`)); again.body[:30] != got.body[:30] {
		t.Errorf("the same ref got %s, and then %s", got.body, again.body)
	}
}

// The server's own ref is the owner's to revoke; replicas agree on which it is.
func TestTheOwnerRevokesCreating(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		c := r.create("ses_before")
		own := capability.FixedID(r.owner.Target(), ownRef)
		var twin created
		other := start(t, st, nil)
		if twin = other.create("ses_before"); twin.ID != c.ID {
			t.Errorf("another replica has share %s, this one %s", twin.ID, c.ID)
		}
		revoke(t, st, own)
		for _, at := range []*rig{r, other} {
			if got := at.request("POST", "/api/share", `{"sessionID":"ses_after"}`); got.status != 403 || !strings.Contains(got.body, "revoked") {
				t.Errorf("creating after it: %d %s", got.status, got.body)
			}
		}
		if got := r.sync(c, message("msg_1", "x")); got.status != 404 || !strings.Contains(got.body, "revoked") {
			t.Errorf("syncing after it: %d %s", got.status, got.body)
		}
		if _, made := r.sessions()["ses_after"]; made {
			t.Error("a session was made under a revoked ref")
		}
	})
}

// revoke ends a space's ref and all below it, as its owner does.
func revoke(t *testing.T, st fullStore, ref string) {
	t.Helper()
	err := st.Update(t.Context(), func(tx session.Tx) error {
		rows, err := tx.Load(t.Context(), &session.Want{Claims: []string{capability.Target(ref)}})
		if err != nil {
			return err
		}
		return tx.Save(t.Context(), &session.Changes{Revoke: []session.RevokedGrant{{ID: ref, By: ref, At: rows.Now}}})
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A session's owner that was rotated goes on owning the session's shares.
func TestARotatedOwner(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	first := r.create("ses_rotated")
	id := shared(t, r, first).Session
	old, err := r.store.OwnerOf(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	ref := r.owner.New(id)
	err = r.store.Update(t.Context(), func(tx session.Tx) error {
		answers, _, err := session.Commit(t.Context(), tx, []session.Submission{{Batch: ledger.Batch{Session: id}, Ref: old.ID,
			Direct: &session.Direct{Rotate: &session.Rotation{ID: ref.ID, Hash: ref.Secret.Hash()}}}}, session.DefaultConfig())
		if err == nil && answers[0].Err != nil {
			err = answers[0].Err
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if again := r.create("ses_rotated"); again.ID != first.ID {
		t.Errorf("share %s, it was %s", again.ID, first.ID)
	}
	byHTTP{r}.delete(first)
	second := r.create("ses_rotated")
	r.want(200, r.sync(second, message("msg_1", "x")))
	if _, err := r.held(ref).Revoke(t.Context(), shared(t, r, second).Share); err != nil {
		t.Fatal(err)
	}
	if got := r.request("GET", "/api/share/"+second.ID+"/data", ""); got.status != 404 {
		t.Errorf("its owner revoked it: %d %s", got.status, got.body)
	}
}

// faulty is a store that fails from its nth write on, before or after doing that one,
// as that of a process does which is killed there.
type faulty struct {
	fullStore
	mu    sync.Mutex
	armed bool
	left  int // writes until the failure
	after bool
}

var errFaulty = fault.DiskFull.With("the disk of the test is full")

func (f *faulty) write(do func() error) error {
	f.mu.Lock()
	f.left--
	fails, does := f.armed && f.left <= 0, !f.armed || f.left > 0 || f.left == 0 && f.after
	f.mu.Unlock()
	var err error
	if does {
		err = do()
	}
	if fails {
		return errors.Join(errFaulty, err)
	}
	return err
}

func (f *faulty) arm(left int, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed, f.left, f.after = true, left, after
}

// disarm says whether the failure was reached.
func (f *faulty) disarm() (met bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.armed = false
	return f.left <= 0
}

func (f *faulty) PublishShare(ctx context.Context, p capability.PublicShare) (got *capability.PublicShare, err error) {
	err = f.write(func() error { got, err = f.fullStore.PublishShare(ctx, p); return err })
	return got, err
}

func (f *faulty) MintUnderRoot(ctx context.Context, m capability.Minting) (g *capability.Grant, err error) {
	err = f.write(func() error { g, err = f.fullStore.MintUnderRoot(ctx, m); return err })
	return g, err
}

func (f *faulty) Update(ctx context.Context, fn func(session.Tx) error) error {
	return f.write(func() error { return f.fullStore.Update(ctx, fn) })
}

func (f *faulty) Guess(ctx context.Context, fn func(session.Tx) error) error {
	return f.write(func() error { return f.fullStore.Guess(ctx, fn) })
}

// A crash between any two steps of a create leaves what the next create finishes.
func TestCreatesThatAreCutShort(t *testing.T) {
	t.Parallel()
	st := &faulty{fullStore: teststore.SQLite(t)}
	r := start(t, st, func(c *settings) { c.server.AuditWindow = 1 << 40 })
	for _, after := range []bool{false, true} {
		for step := 1; ; step++ {
			session := fmt.Sprintf("ses_cut_%v_%d", after, step)
			if step > 20 {
				t.Fatal("there is no end to it")
			}
			st.arm(step, after)
			got := r.request("POST", "/api/share", fmt.Sprintf(`{"sessionID":%q}`, session))
			if !st.disarm() {
				if step < 5 {
					t.Errorf("a create has but %d writes", step-1)
				}
				break
			}
			if got.status == 200 {
				t.Errorf("step %d (after: %v) failed, and the create did not", step, after)
			}
			c := r.create(session)
			r.want(200, r.sync(c, message("msg_1", "x")))
			if again := r.create(session); again.ID != c.ID || len(r.data(again)) != 1 {
				t.Errorf("step %d: share %s, and then %s", step, c.ID, again.ID)
			}
			if n := r.sessions()[session]; n != 1 {
				t.Errorf("step %d: %d sessions", step, n)
			}
		}
	}
}
