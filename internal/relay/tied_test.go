package relay

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/attach"
	"github.com/mooring-rpc/mooring/internal/relay/relaytest"
	"github.com/mooring-rpc/mooring/outbox"
)

// tieRig is a rig beside a folder of ties. attached is opencode's id of the session that the relay's own process is attached to.
type tieRig struct {
	*rig
	ties     string
	attached string
}

func startTied(t *testing.T, opencodes ...string) *tieRig {
	t.Helper()
	r := &tieRig{ties: t.TempDir()}
	r.rig = start(t, func(c *Config) {
		ties := &attach.Ties{Client: c.Client, Dir: r.ties, Attached: r.attached}
		if c.Ties = ties; r.attached != "" {
			var err error
			if ties.Here, err = (&attach.Ties{Client: c.Client, Dir: r.ties}).Session(t.Context(), r.attached); err != nil || ties.Here == nil {
				t.Fatal("what it is attached to is not tied: ", err)
			}
		}
		for _, at := range opencodes {
			c.Opencode = append(c.Opencode, parseURL(t, at))
		}
	})
	return r
}

// open opens the tie of one of opencode's sessions, as an attach does.
func (r *tieRig) open(id string) *attach.Tie {
	r.t.Helper()
	tie, err := attach.OpenTie(r.ties, id)
	if err != nil {
		r.t.Fatal(err)
	}
	return tie
}

func (r *tieRig) closed(tie *attach.Tie) {
	r.t.Helper()
	if err := tie.Close(); err != nil {
		r.t.Error(err)
	}
}

// tie ties one of opencode's sessions to a new one.
func (r *tieRig) tie(id string) (session string) {
	r.t.Helper()
	space, err := r.client.Space(r.t.Context(), r.owner)
	if err != nil {
		r.t.Fatal(err)
	}
	owner := space.NewOwner()
	s, b := space.Create(client.CreateOptions{External: id, SharedExternal: true, ByTime: true, Owner: owner, BatchID: outbox.NewBatchID()})
	if _, err := b.Commit(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
	tie := r.open(id)
	defer r.closed(tie)
	if err := tie.SetSession(s.ID(), capability.Ref{}, ""); err != nil {
		r.t.Fatal(err)
	}
	return s.ID()
}

// sessions counts the server's sessions.
func (r *tieRig) sessions() (n int) {
	r.t.Helper()
	r.drained()
	space, err := r.client.Space(r.t.Context(), r.owner)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, err := range space.List(r.t.Context(), client.ListOptions{}) {
		if err != nil {
			r.t.Fatal(err)
		}
		n++
	}
	return n
}

const modelItem = `{"type":"model","data":[{"id":"large","name":"Large"}]}`

// A session that an attach in this process records is shared as it is, and of its syncs the models alone are put, once; also with a full outbox, and after a
// restart. The end of a share leaves the session.
func TestASessionThatIsAttached(t *testing.T) {
	t.Parallel()
	r := startTied(t)
	session := r.tie("ses_x")
	r.stopRelay()
	r.attached = "ses_x"
	r.startRelay()
	c := create(t, r.http.URL, "ses_x")
	if again := create(t, r.http.URL, "ses_x"); again.ID != c.ID {
		t.Errorf("the same create gives %s and %s", c.ID, again.ID)
	}
	syncTo(t, r.http.URL, c, infoItem("ses_x", "a", ""), messageItem(1), modelItem)
	syncTo(t, r.http.URL, c, messageItem(2), modelItem)
	s, err := r.client.SessionByID(t.Context(), session)
	if err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	b.Put("message/m7", map[string]any{"id": "m7", "role": "user"}).Arg("sync", true) // as attach does
	if _, err := b.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := r.sessions(); n != 1 {
		t.Errorf("there are %d sessions", n)
	}
	got := strings.Join(r.data(c.ID), "\n")
	if !strings.Contains(got, `"m7"`) || strings.Contains(got, `"m1"`) || strings.Contains(got, `"m2"`) || strings.Count(got, `"large"`) != 1 {
		t.Errorf("the share has %s", got)
	}
	if !strings.HasPrefix(c.URL, r.real()+"/share/") {
		t.Errorf("the link is %s", c.URL)
	}

	r.stopServer()
	r.stopRelay()
	r.rows = 1
	r.startRelay()
	other := create(t, r.http.URL, "ses_x") // the same, for which nothing is to be sent
	syncTo(t, r.http.URL, c, messageItem(3), modelItem)
	syncTo(t, r.http.URL, other, messageItem(4))
	want(t, http.StatusInsufficientStorage, "POST", r.http.URL+"/api/share", `{"sessionID":"ses_full"}`)
	r.stopRelay()
	r.rows = 0
	r.startRelay()
	end(t, r.http.URL, c)
	if more := create(t, r.http.URL, "ses_x"); more.ID == c.ID {
		t.Error("a share that has ended is given again")
	}
	r.startServer()
	r.settled()
	if r.data(c.ID) != nil {
		t.Error("what was unshared is shown")
	}
	if n := r.sessions(); n != 1 {
		t.Errorf("there are %d sessions", n)
	}
	if s, err = r.client.SessionByID(t.Context(), session); err != nil {
		t.Fatal(err)
	}
	if page, err := s.Get(t.Context(), "message/m7"); err != nil || len(page.Entries) != 1 {
		t.Error("the session has ended with its share: ", err)
	}
}

// While no attach has a tie, the relay records its session; while one does, not, and what it is killed over is read from opencode.
func TestASessionThatIsTied(t *testing.T) {
	t.Parallel()
	oc := relaytest.NewOpencode(t)
	r := startTied(t, oc.URL())
	r.tie("ses_x")
	c := create(t, r.http.URL, "ses_x")
	all := []string{infoItem("ses_x", "a", ""), messageItem(1), partItem(1, 1, "a")}
	oc.Store(c.URL, all...)
	syncTo(t, r.http.URL, c, all...)
	check := func(want ...string) {
		t.Helper()
		r.drained()
		got := bare(r.data(c.ID))
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("the share has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
	}
	check(all...)
	if keys, err := os.ReadFile(filepath.Join(r.ties, "ses_x.keys")); err != nil || !strings.Contains(string(keys), "message/m1") {
		t.Errorf("the tie's keys are %s, %v", keys, err)
	}

	tie := r.open("ses_x")
	oc.Store(c.URL, append(all, messageItem(2))...)
	syncTo(t, r.http.URL, c, messageItem(2))
	check(all...)
	r.closed(tie)
	oc.Store(c.URL, append(all, messageItem(2), messageItem(3))...)
	syncTo(t, r.http.URL, c, messageItem(3))
	r.caughtUp()
	check(append(all, messageItem(2), messageItem(3))...)
	if n := r.sessions(); n != 1 {
		t.Errorf("there are %d sessions", n)
	}
}

// The session of a share is the one that an attach goes on with, with all that is known of it, wherever a crash fell; other shares stay what they are.
func TestAShareIsAdopted(t *testing.T) {
	t.Parallel()
	oc := relaytest.NewOpencode(t)
	r := startTied(t, oc.URL())
	c, other := create(t, r.http.URL, "ses_x"), create(t, r.http.URL, "ses_other")
	oc.Store(c.URL, infoItem("ses_x", "a", ""), messageItem(1))
	syncTo(t, r.http.URL, c, infoItem("ses_x", "a", ""), messageItem(1), modelItem)
	r.caughtUp()
	r.drained()
	r.stopRelay()
	r.startRelay() // the client, for what follows
	relay := filepath.Join(r.dir, "relay")
	adopted := func(id string) *client.Session {
		t.Helper()
		s, err := Adopt(t.Context(), r.client, relay, id, filepath.Join(r.ties, id+".keys"))
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	if s := adopted("ses_none"); s != nil {
		t.Errorf("of what was not shared there is %s", s.ID())
	}
	first := adopted("ses_x")
	keys := filepath.Join(r.ties, "ses_x.keys")
	text, err := os.ReadFile(keys)
	if err != nil || !strings.Contains(string(text), "message/m1") {
		t.Fatalf("the keys are %s, %v", text, err)
	}
	if err := os.WriteFile(keys, []byte("+message/m9\n"), 0o600); err != nil { // an attach has them now
		t.Fatal(err)
	}
	if again := adopted("ses_x"); again.ID() != first.ID() {
		t.Errorf("again it is %s, not %s", again.ID(), first.ID())
	}
	if text, err := os.ReadFile(keys); err != nil || string(text) != "+message/m9\n" {
		t.Errorf("again the keys are %s, %v", text, err)
	}
	tie := r.open("ses_x")
	if err := tie.SetSession(first.ID(), capability.Ref{}, ""); err != nil {
		t.Fatal(err)
	}
	r.closed(tie)
	r.stopRelay()
	r.attached = "ses_x"
	r.startRelay()
	syncTo(t, r.http.URL, c, messageItem(2))
	syncTo(t, r.http.URL, other, messageItem(3))
	if again := create(t, r.http.URL, "ses_x"); again.ID != c.ID {
		t.Errorf("a create gives %s", again.ID)
	}
	r.drained()
	if got := fmt.Sprint(r.data(c.ID)); strings.Contains(got, `"m2"`) || !strings.Contains(got, `"m1"`) {
		t.Errorf("the share has %s", got)
	}
	if got := fmt.Sprint(r.data(other.ID)); !strings.Contains(got, `"m3"`) {
		t.Errorf("the other share has %s", got)
	}
	if n := r.sessions(); n != 2 {
		t.Errorf("there are %d sessions", n)
	}
}
