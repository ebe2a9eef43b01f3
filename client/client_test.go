package client_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/faultproxy"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
	"github.com/mooring-rpc/mooring/session"
)

type object = map[string]any

func TestOfflineWorkArrivesWhenTheServerComes(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	c := r.open(t, "a")
	sp := r.space(t, c)
	s, create := sp.Create(client.CreateOptions{External: "outside"})
	create.Put("session", object{"title": "offline"})
	first, err := create.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	put := b.Put(message(1), object{"role": "user"})
	b.Put(message(2), object{"role": "assistant"}).DependsOn(put)
	shared, _ := b.Share(client.ShareOptions{Rights: capability.Read, Label: "reader"})
	second, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	for _, ticket := range []client.Ticket{first, second} {
		if err := waited(t, ticket).Err(); err != nil {
			t.Fatal(err)
		}
	}
	reader, err := r.open(t, "b").Session(t.Context(), shared)
	if err != nil {
		t.Fatal(err)
	}
	state, err := reader.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Cursor != 5 || len(state.Entries) != 3 {
		t.Errorf("cursor %d with %d entries, want 5 (create, 3 puts, share) with 3", state.Cursor, len(state.Entries))
	}
	if e := state.Entry("session"); e == nil || string(e.Payload) != `{"title":"offline"}` {
		t.Errorf("the session's info is %v", e)
	}
	if _, err := c.SessionByID(t.Context(), "outside"); err != nil {
		t.Errorf("the session is not found by its external id: %v", err)
	}
}

func TestATicketResolvesInALaterClient(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	first := r.open(t, "a")
	s := r.newSession(t, first)
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	b.Put(message(1), object{"n": 1})
	b.Remove("message/never")
	ticket, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	later := r.open(t, "a")
	results := waited(t, later.Ticket(ticket.Batch))
	if got := brief(results); got != "applied applied" {
		t.Errorf("outcomes %s", got)
	}
	again := waited(t, later.Ticket(ticket.Batch))
	if brief(again) != brief(results) || again[0].Cursor != results[0].Cursor || again[0].OpID != ticket.Ops[0] {
		t.Errorf("asked again the ticket gives %+v after %+v", again, results)
	}
}

func TestPromisesStandForValues(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	b := s.Batch()
	b.Begin("msg_1", object{"role": "assistant"})
	b.Put("part/msg_1/prt_1", object{"type": "text", "text": ""})
	one := b.AppendText("part/msg_1/prt_1", 0, "Grüß ")
	two := b.AppendText("part/msg_1/prt_1", one.Field("length"), "Gott")
	end := b.Finalize("msg_1", "completed").Arg("usage", object{"output": 2})
	applied(t, b)
	next := s.Batch()
	next.Put("session", object{"title": "t"}).Expect(end.Field("cursor"))
	applied(t, next)
	late := s.Batch()
	conflict := late.Put("session", object{"title": "u"}).Expect(two.Field("cursor"))
	late.Put(message(9), object{}).DependsOn(conflict)
	results := outcomes(t, late)
	if got := brief(results); got != "conflict/conflict skipped/conflict" {
		t.Errorf("outcomes %s", got)
	}
	if !errors.Is(results.Err(), fault.Conflict) {
		t.Errorf("the first refusal is %v", results.Err())
	}
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var part struct{ Text string }
	if err := json.Unmarshal(state.Entry("part/msg_1/prt_1").Payload, &part); err != nil || part.Text != "Grüß Gott" {
		t.Errorf("the text is %q (%v)", part.Text, err)
	}
	if len(state.Turns) != 1 || state.Turns[0].Status != session.Completed {
		t.Errorf("turns %+v", state.Turns)
	}
}

func TestOneBadOpStopsNothingElse(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	b := s.Batch()
	b.Put(message(1), object{})
	b.Finalize("msg_none", "completed")
	b.Put(message(2), object{})
	if got := brief(outcomes(t, b)); got != "applied rejected/not_found applied" {
		t.Errorf("outcomes %s", got)
	}
	whole := s.Batch().Atomic()
	whole.Put(message(3), object{})
	whole.Finalize("msg_none", "completed")
	if got := brief(outcomes(t, whole)); got != "batch_aborted/not_found rejected/not_found" && got != "batch_aborted/not_found batch_aborted/not_found" {
		t.Errorf("outcomes of the atomic batch: %s", got)
	}
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Entry(message(2)) == nil || state.Entry(message(3)) != nil {
		t.Errorf("state %+v", state.Entries)
	}
}

func TestWhatCanNeverApplyIsRefusedInCommit(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	for _, tc := range []struct {
		name string
		add  func(*client.Batch)
		want fault.Code
	}{
		{"unknown method", func(b *client.Batch) { b.Do("explode") }, fault.UnknownMethod},
		{"bad key", func(b *client.Batch) { b.Put("nothing/x", object{}) }, fault.BadKey},
		{"payload is no object", func(b *client.Batch) { b.Put("session", 7) }, fault.BadPayload},
		{"payload is not JSON", func(b *client.Batch) { b.Put("session", json.RawMessage(`{`)) }, fault.BadArgument},
		{"payload is JSON only if trimmed", func(b *client.Batch) { b.Put("session", json.RawMessage("\u00a0{}")) }, fault.BadArgument},
		{"a void's argument is not JSON", func(b *client.Batch) {
			b.Remove("session")
			b.Do("void", client.Arg{Name: "x", Value: json.RawMessage(`{`)})
		}, fault.Malformed},
		{"not marshalable", func(b *client.Batch) { b.Put("session", func() {}) }, fault.BadArgument},
		{"too large", func(b *client.Batch) { b.Put("session", object{"x": string(make([]byte, 5<<20))}) }, fault.TooLarge},
		{"no rights", func(b *client.Batch) { b.Share(client.ShareOptions{}) }, fault.BadArgument},
		{"no ops", func(*client.Batch) {}, fault.Usage},
		{"cursor is a text", func(b *client.Batch) { b.Remove("session").Expect("soon") }, fault.BadArgument},
	} {
		b := s.Batch()
		tc.add(b)
		if _, err := b.Commit(t.Context()); fault.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, err, tc.want)
		}
	}
	st, err := c.Status(t.Context())
	if err != nil || st.Unfinished() != 0 || st.Failed != 0 {
		t.Errorf("the outbox has %+v (%v)", st, err)
	}
}

func TestSubscribersSeeEveryEventOnceOverCutLinks(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	writer := r.newSession(t, r.open(t, "a"))
	const n = 400
	readers := 3
	ended := make(chan error, readers)
	for i := range readers {
		reader, err := r.open(t, fmt.Sprint("reader", i)).Session(t.Context(), writer.Ref())
		if err != nil {
			t.Fatal(err)
		}
		done := errors.New("all there")
		go func() {
			last := uint64(0)
			err := reader.Subscribe(t.Context(), client.SubscribeOptions{WindowBytes: 4096}, func(e session.Event) error {
				if e.Cursor != last+1 {
					return fmt.Errorf("cursor %d after %d", e.Cursor, last)
				}
				last = e.Cursor
				if last == n+1 {
					return done
				}
				return nil
			})
			if errors.Is(err, done) {
				err = nil
			}
			ended <- err
		}()
	}
	var ticket client.Ticket
	var err error
	for i := range n {
		if i%40 == 20 {
			r.proxy.Cut()
		}
		if ticket, err = writer.Put(t.Context(), message(i), object{"i": i}); err != nil {
			t.Fatal(err)
		}
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Fatal(err)
	}
	r.proxy.Cut()
	for range readers {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	page, err := writer.Events(t.Context(), 0, 1000)
	if err != nil || page.Cursor != n+1 {
		t.Errorf("the log ends at %d (%v), want %d", page.Cursor, err, n+1)
	}
}

func TestRevokeEndsWhatItShould(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.newSession(t, r.open(t, "a"))
	ref, ticket, err := owner.Share(t.Context(), client.ShareOptions{Rights: capability.Read | capability.Append, Actor: "owner/helper"})
	if err != nil {
		t.Fatal(err)
	}
	if err := waited(t, ticket).Err(); err != nil {
		t.Fatal(err)
	}
	other := r.open(t, "b")
	helper, err := other.Session(t.Context(), ref)
	if err != nil {
		t.Fatal(err)
	}
	b := helper.Batch()
	b.Put(message(1), object{})
	applied(t, b)
	seen := make(chan uint64, 100)
	ended := make(chan error, 1)
	go func() {
		ended <- helper.Subscribe(t.Context(), client.SubscribeOptions{}, func(e session.Event) error {
			seen <- e.Cursor
			return nil
		})
	}()
	<-seen
	cut, err := owner.Revoke(t.Context(), ref.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, fault.Revoked) {
		t.Errorf("the subscription ended with %v", err)
	}
	again, err := owner.Revoke(t.Context(), ref.ID)
	if err != nil || again.Cursor != cut.Cursor {
		t.Errorf("revoked again: cut %d (%v), before %d", again.Cursor, err, cut.Cursor)
	}
	late := helper.Batch()
	late.Put(message(2), object{})
	if got := brief(outcomes(t, late)); got != "denied/revoked" {
		t.Errorf("after the cut: %s", got)
	}
	d, err := other.Redeem(t.Context(), ref)
	if err != nil || d.Grant.Dead != fault.Revoked || d.Grant.Cut != cut.Cursor {
		t.Errorf("redeemed: %+v (%v)", d.Grant, err)
	}
	if _, err := helper.Snapshot(t.Context()); !errors.Is(err, fault.Revoked) {
		t.Errorf("a snapshot after the cut: %v", err)
	}
	bumped, err := owner.BumpEpoch(t.Context())
	if err != nil || bumped.Epoch != 2 || bumped.Cursor != cut.Cursor+1 {
		t.Errorf("bumped: %+v (%v)", bumped, err)
	}
}

func TestForkCopiesWhatItMayRead(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	source := r.newSession(t, c)
	b := source.Batch()
	b.Put("session", object{"title": "source"})
	second := b.Put(message(1), object{"text": "one"})
	results := applied(t, b)
	o, err := results.Of(second)
	if err != nil {
		t.Fatal(err)
	}
	late := source.Batch()
	late.Put(message(2), object{"text": "two"})
	applied(t, late)
	sp := r.space(t, c)
	fork, batch := sp.Fork(source, o.Cursor, client.CreateOptions{Label: "fork"})
	batch.Put(message(3), object{"text": "three"})
	applied(t, batch)
	state, err := fork.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if state.Cursor != 2 || state.Entry(message(1)) == nil || state.Entry(message(2)) != nil || state.Entry(message(3)) == nil {
		t.Errorf("the fork at cursor %d has %+v", state.Cursor, state.Entries)
	}
}

func TestSecretsDoNotGoInClear(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	foreign := capability.Ref{Hosts: []string{"mooring.example:7600"}}.New(r.owner.Target())
	dialed := false
	c := r.open(t, "a", func(cfg *client.Config) {
		cfg.DialContext = func(context.Context, string, string) (net.Conn, error) {
			dialed = true
			return nil, errors.New("dialed")
		}
	})
	_, err := c.Redeem(t.Context(), foreign)
	if !errors.Is(err, fault.Plaintext) || dialed {
		t.Errorf("redeem: %v, dialed %v", err, dialed)
	}
}

func TestRefsThatNobodyKnows(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a", func(cfg *client.Config) { cfg.Patience = 200 * time.Millisecond })
	s := r.newSession(t, c)
	wrong := s.Ref().With(s.Ref().ID, capability.NewSecret())
	if _, err := c.Redeem(t.Context(), wrong); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("a secret that does not fit its id: %v", err)
	}
	unseen := s.Ref().New(s.ID())
	if _, err := c.Redeem(t.Context(), unseen); !errors.Is(err, fault.NotYetKnown) {
		t.Errorf("a ref whose share has not arrived: %v", err)
	}
	served := s.Ref().With(s.ID()+".s01JABCDEFGHJKMNPQRSTVWXYZ0", capability.NewSecret())
	if _, err := c.Redeem(t.Context(), served); !errors.Is(err, fault.UnknownRef) {
		t.Errorf("a made up ref: %v", err)
	}
	if _, err := c.Outbox().Ref(t.Context(), served.ID); !errors.Is(err, fault.NotFound) {
		t.Errorf("the made up ref is kept: %v", err)
	}
	if _, err := s.Describe(t.Context()); err != nil {
		t.Errorf("the right ref stopped working: %v", err)
	}
}

func TestSnapshotsEqualTheFoldOfTheLog(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	for i := range 30 {
		b := s.Batch()
		b.Put(message(i%7), object{"i": i})
		if i%5 == 0 {
			b.Remove(message((i + 3) % 7))
		}
		if _, err := b.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	last := s.Batch()
	last.Put("session", object{})
	end := applied(t, last)[0].Cursor
	want := map[string]string{}
	for e, err := range s.Follow(t.Context(), client.SubscribeOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		switch e.Method {
		case session.MethodPut:
			want[e.Key] = string(e.Payload)
		case session.MethodRemove:
			delete(want, e.Key)
		}
		if e.Cursor == end/2 || e.Cursor == end {
			state, err := s.SnapshotAt(t.Context(), e.Cursor)
			if err != nil {
				t.Fatal(err)
			}
			got := map[string]string{}
			for _, entry := range state.Entries {
				got[entry.Key] = string(entry.Payload)
			}
			if fmt.Sprint(got) != fmt.Sprint(want) {
				t.Errorf("at cursor %d the snapshot is %v, the log folds to %v", e.Cursor, got, want)
			}
		}
		if e.Cursor == end {
			break
		}
	}
}

func TestAClosedClientSaysSo(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	started, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		first := true
		ended <- s.Subscribe(context.Background(), client.SubscribeOptions{}, func(session.Event) error {
			if first {
				close(started)
			}
			first = false
			return nil
		})
	}()
	<-started
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, fault.Canceled) {
		t.Errorf("the subscription ended with %v", err)
	}
	if _, err := s.Snapshot(t.Context()); !errors.Is(err, fault.Canceled) {
		t.Errorf("a snapshot of a closed client: %v", err)
	}
	if err := c.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestValuesAreKeptByteForByte(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	text := `{ "n": 0.1000, "big": 12345678901234567890, "s": "<&\u00e9\ud83d\ude00é" }`
	b := s.Batch()
	b.Put("session", json.RawMessage(text))
	applied(t, b)
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(state.Entry("session").Payload); got != text {
		t.Errorf("got %s", got)
	}
	var ref ledger.Ref
	if err := json.Unmarshal([]byte(`{"Op":"x","Path":"y"}`), &ref); err != nil || ref.Op != "x" {
		t.Errorf("a reference does not survive JSON: %+v, %v", ref, err)
	}
}

// What a holder has committed when its ref is revoked: what had arrived keeps its
// first answer, what waits under the ref is denied with the reason, what depends
// on that is skipped, and what waits under another ref goes on.
func TestWhatWaitsWhenARefIsRevoked(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	owner := r.newSession(t, r.open(t, "owner"))
	shared := owner.Batch()
	first, _ := shared.Share(client.ShareOptions{Rights: capability.Read | capability.Append, Actor: "owner/first"})
	second, _ := shared.Share(client.ShareOptions{Rights: capability.Append, Actor: "owner/second"})
	applied(t, shared)

	link, err := faultproxy.Listen(r.proxy.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = link.Close() })
	first.Hosts, second.Hosts = []string{link.Addr()}, []string{link.Addr()}
	helper := r.open(t, "helper")
	under := func(ref capability.Ref) *client.Session {
		s, err := helper.Session(t.Context(), ref)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	one, two := under(first), under(second)
	commit := func(b *client.Batch) client.Ticket {
		ticket, err := b.Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return ticket
	}
	begun := one.Batch()
	begun.Put(message(1), object{})
	applied(t, begun)

	link.Blackhole(faultproxy.ToClient, 0) // the answer is lost
	arrived := one.Batch()
	arrived.Put(message(2), object{})
	before := commit(arrived)
	for e, err := range owner.Follow(t.Context(), client.SubscribeOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Key == message(2) {
			break
		}
	}
	link.Refuse(true)
	link.Cut()
	waiting := one.Batch()
	put := waiting.Put(message(3), object{})
	denied := commit(waiting)
	needs := one.Batch()
	needs.Put(message(4), object{}).DependsOn(put)
	skipped := commit(needs)
	other := two.Batch()
	other.Put(message(5), object{})
	independent := commit(other)
	cut, err := owner.Revoke(t.Context(), first.ID)
	if err != nil {
		t.Fatal(err)
	}
	link.Refuse(false)

	for _, c := range []struct {
		what   string
		ticket client.Ticket
		want   string
	}{
		{"what had arrived", before, "applied"},
		{"what waited", denied, "denied/revoked"},
		{"what depends on it", skipped, "skipped/revoked"},
		{"what waited under another ref", independent, "applied"},
	} {
		results := waited(t, c.ticket)
		if got := brief(results); got != c.want {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
		if c.want == "denied/revoked" && !strings.Contains(results.Err().Error(), fmt.Sprintf("at cursor %d", cut.Cursor)) {
			t.Errorf("%s: %v, which does not name the cut at %d", c.what, results.Err(), cut.Cursor)
		}
	}
}

// TestAcksAreReadByHand: but for what comes with a stream's opening, the usual ones are.
func TestAcksAreReadByHand(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "owner")
	s := r.newSession(t, c)
	const batches = 10
	for n := range batches {
		b := s.Batch()
		b.Put(message(n), map[string]int{"n": n})
		ticket, err := b.Commit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if results, err := ticket.Wait(t.Context()); err != nil || results.Err() != nil {
			t.Fatal(err, results.Err())
		}
	}
	if n := c.AcksByHand(); n < batches-1 {
		t.Errorf("of %d acks %d", batches, n)
	}
}

// TestTwoClientsOfOneOutbox: one of them sends for both, and when it is closed the
// other one does.
func TestTwoClientsOfOneOutbox(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	cfg := r.config("a")
	box, err := outbox.OpenSQLite(t.Context(), filepath.Join(r.dir, "x.db"), cfg.OutboxConfig)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(); err != nil {
			t.Error(err)
		}
	})
	on := func(c *client.Config) { c.Home, c.Outbox = "", box }
	first, err := client.Open(t.Context(), r.config("a", on))
	if err != nil {
		t.Fatal(err)
	}
	second := r.open(t, "a", on)
	s := r.newSession(t, second)
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	b.Put(message(1), object{})
	applied(t, b)
	if err := second.Err(); err != nil {
		t.Error(err)
	}
}
