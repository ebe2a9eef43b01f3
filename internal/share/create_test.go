package share

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

// However many create at once, there is one session and one share, and every secret
// that was given out is good.
func TestConcurrentCreates(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		got := make([]opencode.CreateReply, 12)
		var all sync.WaitGroup
		for i := range got {
			all.Go(func() { got[i] = r.create("ses_at_once") })
		}
		all.Wait()
		secrets := map[string]bool{}
		for i, c := range got {
			if c.ID != got[0].ID || c.URL != got[0].URL || !capability.IsPublicID(c.ID) {
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

// After a DELETE a create makes another share, of a session of its own: what was
// synced before comes back nowhere, and is there for the space's owner.
func TestSharingAgain(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		for label, w := range map[string]sharer{"HTTP": byHTTP{r}, "a batch": r.batches(), "a WebSocket": r.webSocket("/rpc/share")} {
			external := "ses_again_over_" + strings.ReplaceAll(label, " ", "_")
			first, twin := w.create(external), w.create(external)
			old := []json.RawMessage{json.RawMessage(message("msg_1", "OLDTEXT")), json.RawMessage(`{"type":"session","data":{"id":"` + external + `","title":"OLDTITLE"}}`),
				json.RawMessage(`{"type":"part","data":{"id":"prt_1","messageID":"msg_1","type":"text","text":"OLDPART"}}`)}
			w.sync(first, old)
			w.delete(first)
			w.delete(first) // a client that did not hear of it
			second := w.create(external)
			if second.ID == first.ID {
				t.Fatalf("%s: the id of a share that was ended is given again", label)
			}
			arrays, _ := r.watch(second)
			w.sync(second, []json.RawMessage{json.RawMessage(message("msg_1", "kept"))})
			if got := next(t, arrays); strings.Contains(got, "OLD") {
				t.Errorf("%s: who follows is sent %s", label, got)
			}
			for _, path := range []string{"", "/data", "/metadata"} {
				got := r.want(200, r.request("GET", "/api/share/"+second.ID+path, ""))
				if strings.Contains(got.body, "OLD") || path != "/metadata" && !strings.Contains(got.body, "kept") {
					t.Errorf("%s: %s is %s", label, path, got.body)
				}
				if old := r.request("GET", "/api/share/"+first.ID+path, ""); old.status != 404 {
					t.Errorf("%s: the old %s is %d %s", label, path, old.status, old.body)
				}
			}
			for label, c := range map[string]opencode.CreateReply{"the old share": first, "the old share, by another secret": twin} {
				if got := r.sync(c, message("msg_2", "lost")); got.status != 404 {
					t.Errorf("%s: %d %s", label, got.status, got.body)
				}
			}
			for label, c := range map[string]opencode.CreateReply{
				"the new share with an old secret": {ID: second.ID, Secret: first.Secret}, "the old share with a new secret": {ID: first.ID, Secret: second.Secret},
			} {
				if got := r.sync(c, message("msg_2", "lost")); got.status != 403 || !strings.Contains(got.body, `"error":"Invalid secret"`) {
					t.Errorf("%s: %d %s", label, got.status, got.body)
				}
				if got := r.request("DELETE", "/api/share/"+c.ID, `{"secret":"`+c.Secret+`"}`); got.status != 403 {
					t.Errorf("%s, deleting: %d %s", label, got.status, got.body)
				}
			}
			if made := r.sessions(); made[external] != 2 {
				t.Errorf("%s: the sessions are %v", label, made)
			}
			was, is := shared(t, r, first).Session, shared(t, r, second).Session
			ids, err := r.service.PublicIDs(t.Context(), []string{was, is})
			if err != nil || len(ids) != 1 || ids[is] != second.ID {
				t.Errorf("%s: the living shares are %v, %v", label, ids, err)
			}
			page, _, err := r.server.Caller(t.Context(), "127.0.0.1:1").Assume(shared(t, r, first).Owner).Range(t.Context(), "", "z", 1<<20, 10)
			if err != nil || len(page.Entries) != len(old) {
				t.Errorf("%s: the owner sees %v, %v", label, page, err)
			}
		}
	})
}

// sharer is what shares over one of the wires.
type sharer interface {
	create(external string) opencode.CreateReply
	sync(c opencode.CreateReply, items []json.RawMessage)
	delete(c opencode.CreateReply)
}

// A create is the same as another if all that tells callers apart is, for a while:
// nobody else's share is given to who knows the session's id, and nobody is refused.
func TestRepeatedShare(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		later := start(t, st, func(c *settings) { c.share.DedupeWindow = time.Nanosecond }) // when that while is over
		one, two := CreatorPath(r.spaceRef(capability.Create)), CreatorPath(r.spaceRef(capability.Create))
		ask := func(r *rig, from, path string, headers ...string) opencode.CreateReply {
			t.Helper()
			req, err := http.NewRequestWithContext(t.Context(), "POST", "http://"+r.addr+path+"/api/share", strings.NewReader(`{"sessionID":"ses_known"}`))
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i < len(headers); i += 2 {
				req.Header.Set(headers[i], headers[i+1])
			}
			res, err := clientFrom(from).Do(req)
			if err != nil {
				t.Fatal(err)
			}
			defer res.Body.Close()
			var c opencode.CreateReply
			if err := json.NewDecoder(res.Body).Decode(&c); err != nil || res.StatusCode != 200 {
				t.Fatalf("from %s at %s: %d %v", from, path, res.StatusCode, err)
			}
			return c
		}
		mine := ask(r, "127.0.0.1", one)
		r.want(200, r.sync(mine, message("msg_1", "mine")))
		if again := ask(r, "127.0.0.1", one); again.ID != mine.ID || again.Secret == mine.Secret {
			t.Errorf("the same again is given %+v, it was %+v", again, mine)
		}
		seen := map[string]string{mine.ID: "mine"}
		for label, ask := range map[string]func() opencode.CreateReply{
			"another address":           func() opencode.CreateReply { return ask(r, "127.0.0.2", one) },
			"another ref":               func() opencode.CreateReply { return ask(r, "127.0.0.1", two) },
			"no ref":                    func() opencode.CreateReply { return ask(r, "127.0.0.1", "") },
			"another, behind a proxy":   func() opencode.CreateReply { return ask(r, "127.0.0.1", one, "X-Forwarded-For", "203.0.113.7") },
			"a third, behind the proxy": func() opencode.CreateReply { return ask(r, "127.0.0.1", one, "X-Forwarded-For", "203.0.113.8") },
			"much later":                func() opencode.CreateReply { return ask(later, "127.0.0.1", one) },
		} {
			c := ask()
			if other, there := seen[c.ID]; there {
				t.Errorf("%s is given the share of %s", label, other)
			}
			seen[c.ID] = label
			if items := r.data(c); len(items) != 0 {
				t.Errorf("%s sees %v", label, items)
			}
			r.want(200, r.sync(c, message("msg_1", label)))
		}
		if items := r.data(mine); len(items) != 1 || !strings.Contains(items[0], "mine") {
			t.Errorf("it has %v", items)
		}
	})
}

// The secret that opencode keeps is a ref, and allows over any wire what a sync needs.
func TestAWritersSecretPuts(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_1")
	r.want(200, r.sync(c, message("msg_1", "text")))
	ref, ok := parseWriterSecret(shared(t, r, c).Session, c.Secret)
	if !ok {
		t.Fatal("the secret is no ref's")
	}
	desc, err := r.held(ref).Describe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if g := desc.Grant; g.Rights != capability.Read|capability.Append || !slices.Equal(g.Methods, []string{session.MethodPut}) {
		t.Errorf("it allows %v by %v", g.Rights, g.Methods)
	}
}

// clientFrom is one at an address of this machine.
func clientFrom(address string) *http.Client {
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}
	return &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer.DialContext}}
}

func shared(t *testing.T, r *rig, c opencode.CreateReply) *capability.PublicShare {
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
	p, err := r.store.PublishShare(t.Context(), newShareIDs(), capability.ShareRequest{Space: r.owner.Target(), Fingerprint: fingerprint("", "", "", "planned")})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/api/share/" + p.ID, "/api/share/" + p.ID + "/data", "/api/share/" + p.ID + "/metadata", "/ws/" + p.ID} {
		if got := r.request("GET", path, ""); got.status != 404 {
			t.Errorf("%s: %d %s", path, got.status, got.body)
		}
	}
	ids, err := r.service.PublicIDs(t.Context(), []string{p.Session})
	if err != nil || len(ids) != 0 {
		t.Errorf("its session has %v, %v", ids, err)
	}
	live, err := r.service.Public(t.Context(), r.server.Caller(t.Context(), "127.0.0.1:1"), p.ID)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := live.Describe(t.Context()); err == nil {
		t.Error("it shows something")
	}
}

// Only the newest secrets of a share are good, as many as are allowed.
func TestOldSecretsEnd(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), func(c *settings) { c.share.Writers = 2 })
	var all []opencode.CreateReply
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

// A session that came about in another way is not shared by a create, under its ref
// or another: that makes one beside it.
func TestForeignSessions(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	create := func(space *objects.Capability, external string) string {
		t.Helper()
		id := capability.SessionPrefix + ulid.Make().String()
		owner := capability.ServerID(id, ulid.Make())
		args := []ledger.Arg{{Name: "ref", JSON: jsonText(owner)}, {Name: "hash", JSON: jsonText(discardedHash())}, {Name: "external", JSON: jsonText(external)}}
		if err := space.Create(t.Context(), id, owner, nil, args...); err != nil {
			t.Fatal(err)
		}
		return id
	}
	imported := create(r.held(r.owner), "ses_imported")
	only := r.spaceRef(capability.Create)
	own := create(r.held(only), "ses_by_client")
	for label, of := range map[string]struct{ path, id string }{"ses_imported": {"", imported}, "ses_by_client": {CreatorPath(only), own}} {
		got := r.want(200, r.request("POST", of.path+"/api/share", fmt.Sprintf(`{"sessionID":%q}`, label)))
		var c opencode.CreateReply
		if err := json.Unmarshal([]byte(got.body), &c); err != nil || shared(t, r, c).Session == of.id {
			t.Errorf("%s: %s, %v", label, got.body, err)
		}
	}
	id := capability.SessionPrefix + ulid.Make().String()
	owner := capability.ServerID(id, ulid.Make())
	err := r.held(only).Create(t.Context(), id, owner, nil, ledger.Arg{Name: "ref", JSON: jsonText(owner)},
		ledger.Arg{Name: "hash", JSON: jsonText(discardedHash())}, ledger.Arg{Name: "external", JSON: jsonText("ses_by_client")})
	if !errors.Is(err, fault.AlreadyExists) {
		t.Errorf("a plain create that is said again: %v", err)
	}
}

// The server's own ref is the owner's to revoke; replicas agree on which it is.
func TestTheOwnerRevokesCreating(t *testing.T) {
	t.Parallel()
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, nil)
		c := r.create("ses_before")
		own := capability.FixedID(r.owner.Target(), serverRefLabel)
		var twin opencode.CreateReply
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
		rows, err := tx.Load(t.Context(), &session.ReadSet{ExclusiveSpaces: []string{capability.Target(ref)}})
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
		answers, _, err := decide.Commit(t.Context(), tx, []decide.Submission{{Batch: ledger.Batch{Session: id}, Ref: old.ID,
			Direct: &decide.Direct{Rotate: &decide.Rotation{ID: ref.ID, Hash: ref.Secret.Hash()}}}}, decide.DefaultConfig())
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
	if _, err := r.held(ref).Revoke(t.Context(), shared(t, r, first).Share, false); err != nil {
		t.Fatal(err)
	}
	if got := r.request("GET", "/api/share/"+first.ID+"/data", ""); got.status != 404 {
		t.Errorf("its owner revoked it: %d %s", got.status, got.body)
	}
	if second := r.create("ses_rotated"); second.ID == first.ID {
		t.Error("what its owner revoked is shared again")
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
	odd   bool // it fails in a way that nobody has foreseen
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
	if fails && f.odd {
		return errors.New("odd")
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

func (f *faulty) PublishShare(ctx context.Context, p capability.PublicShare, ask capability.ShareRequest) (got *capability.PublicShare, err error) {
	err = f.write(func() error { got, err = f.fullStore.PublishShare(ctx, p, ask); return err })
	return got, err
}

func (f *faulty) MintUnderRoot(ctx context.Context, m capability.MintRequest) (g *capability.Grant, err error) {
	err = f.write(func() error { g, err = f.fullStore.MintUnderRoot(ctx, m); return err })
	return g, err
}

func (f *faulty) Update(ctx context.Context, fn func(session.Tx) error) error {
	return f.write(func() error { return f.fullStore.Update(ctx, fn) })
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

// TestUnexpectedErrors: what no rule foresaw is logged with the request that met it.
func TestUnexpectedErrors(t *testing.T) {
	t.Parallel()
	st := &faulty{fullStore: teststore.SQLite(t), odd: true}
	r := start(t, st, nil)
	for step := 1; step < 4; step++ {
		st.arm(step, false)
		got := r.request("POST", "/api/share", `{"sessionID":"ses_odd"}`)
		met, line := st.disarm(), ""
		for l := range strings.Lines(r.log.String()) {
			if strings.Contains(l, "unexpected error") {
				line = l
			}
		}
		if !met || got.status != 500 || !strings.Contains(line, "request="+got.header.Get(node.RequestHeader)) {
			t.Errorf("%d: %v, %d %s, and the log has %s", step, met, got.status, got.body, line)
		}
	}
}
