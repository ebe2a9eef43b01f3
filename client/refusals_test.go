// Mistakes that are refused to their caller's face, and in which words.

package client_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
)

// TestABatchIsFrozenByCommit: a later change is neither sent nor kept.
func TestABatchIsFrozenByCommit(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	b := s.Batch()
	p := b.Put("session", object{"title": "before"})
	ticket, err := b.Commit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if again, err := b.Commit(t.Context()); err != nil || again.Batch != ticket.Batch {
		t.Errorf("committed again as it was: %v", err)
	}
	for name, change := range map[string]func(){
		"Arg":         func() { p.Arg("payload", object{"title": "after"}) },
		"Put":         func() { b.Put(message(1), object{}).Arg("payload", object{}).DependsOn(p).Expect(7).Field("cursor") },
		"Share":       func() { b.Share(client.ShareOptions{Rights: capability.Read}) },
		"DependsOnID": func() { p.DependsOnID(outbox.OpID(outbox.NewBatchID(), 0)) },
		"Expect":      func() { p.Expect(7) },
		"Named":       func() { p.SetID(outbox.OpID(outbox.NewBatchID(), 0)) },
		"Atomic":      func() { b.Atomic() },
		"SetID":       func() { b.SetID(outbox.NewBatchID()) },
	} {
		change()
		if _, err := b.Commit(t.Context()); !errors.Is(err, fault.Usage) || b.ID() != ticket.Batch || b.Len() != 1 {
			t.Errorf("%s after it: %v, the batch is %s with %d ops", name, err, b.ID(), b.Len())
		}
	}
	if err := r.start(); err != nil {
		t.Fatal(err)
	}
	if got := brief(waited(t, ticket)); got != "applied" {
		t.Errorf("outcomes %s", got)
	}
	state, err := s.Snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got := string(state.Entry("session").Payload); got != `{"title":"before"}` || len(state.Entries) != 1 {
		t.Errorf("the session is %s, of %d entries", got, len(state.Entries))
	}
}

// TestTextThatIsNotUTF8: a stream of tokens is cut where it is cut.
func TestTextThatIsNotUTF8(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	word := "Grüße 😀"
	type nested struct {
		Parts []any
		next  *nested
	}
	for name, tc := range map[string]struct {
		add  func(*client.Batch)
		says string
	}{
		"cut after a byte of two":  {func(b *client.Batch) { b.AppendText("part/m/p", 0, word[:3]) }, "keep its last 1 bytes for the next call"},
		"cut after three of four":  {func(b *client.Batch) { b.AppendText("part/m/p", 0, word[:len(word)-1]) }, "keep its last 3 bytes"},
		"begun within":             {func(b *client.Batch) { b.AppendText("part/m/p", 3, word[3:]) }, "begins within a character"},
		"no text at all":           {func(b *client.Batch) { b.AppendText("part/m/p", 0, "a\xffb") }, "not UTF-8"},
		"in a payload":             {func(b *client.Batch) { b.Put("part/m/p", object{"text": word[:3]}) }, "keep its last 1 bytes"},
		"in a key of a payload":    {func(b *client.Batch) { b.Put("part/m/p", map[string]int{word[:3]: 1}) }, "keep its last 1 bytes"},
		"deep in a payload":        {func(b *client.Batch) { b.Put("part/m/p", &nested{Parts: []any{1, &[]string{"x", "\xff"}}}) }, "not UTF-8"},
		"a label":                  {func(b *client.Batch) { b.Share(client.ShareOptions{Rights: capability.Read, Label: "\xff"}) }, "not UTF-8"},
		"an argument of one's own": {func(b *client.Batch) { b.Put("session", object{}).Arg("note", "\xff") }, "note is not UTF-8"},
		"raw JSON":                 {func(b *client.Batch) { b.Put("session", json.RawMessage("{\"x\":\"\xff\"}")) }, ""},
		"a message's id":           {func(b *client.Batch) { b.Begin("m\xff", object{}) }, "not UTF-8"},
		"a method's name of a ref's": {func(b *client.Batch) {
			b.Share(client.ShareOptions{Rights: capability.Append, Methods: []string{"\xff"}})
		}, "not UTF-8"},
	} {
		b := s.Batch()
		tc.add(b)
		if _, err := b.Commit(t.Context()); !errors.Is(err, fault.BadArgument) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: %v, want %q", name, err, tc.says)
		}
	}
	b := s.Batch()
	b.Put("session", object{"escaped": `\ufffd`, "own": "\ufffd", "raw": json.RawMessage(`"\ufffd"`), "hidden": nested{next: nil}})
	applied(t, b)
	if _, err := s.Attenuate(t.Context(), client.AttenuateOptions{Label: "\xff"}); !errors.Is(err, fault.BadArgument) {
		t.Errorf("a live capability's label: %v", err)
	}
}

// TestReferenceInsideAValue: it would be stored as the reference's own fields.
func TestReferenceInsideAValue(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	s := r.newSession(t, r.open(t, "a"))
	type tagged struct {
		Length any `json:"length"`
		Next   *tagged
	}
	for says, payload := range map[string]func(*client.Promise) any{
		"payload.l refers":               func(p *client.Promise) any { return object{"l": p.Field("length")} },
		"payload.parts[1].cursor refers": func(p *client.Promise) any { return object{"parts": []any{1, object{"cursor": p}}} },
		"payload.Next.length refers":     func(p *client.Promise) any { return tagged{Next: &tagged{Length: *p}} },
		"payload.Next.Next.length refers": func(p *client.Promise) any {
			ref := p.Field("")
			return tagged{Next: &tagged{Next: &tagged{Length: &ref}}}
		},
		"payload.m.cursor refers": func(p *client.Promise) any {
			return object{"m": map[string]client.ResultRef{"cursor": p.Field("cursor")}}
		},
		"payload[0] refers":                func(p *client.Promise) any { return []any{ledger.Ref{Op: p.OpID()}} },
		"within payload refers to another": func(p *client.Promise) any { return hiding{p} },
	} {
		b := s.Batch()
		b.Put("session", payload(b.Remove("model/m")))
		if _, err := b.Commit(t.Context()); !errors.Is(err, fault.BadReference) || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want %q", err, says)
		}
	}
}

// hiding marshals what it does not export.
type hiding struct{ p *client.Promise }

func (h hiding) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.p}) }

// TestAnEmptyListIsNotAll: a program that computes which methods a ref allows, or the
// key it is bound to, and comes to nothing, must not hand on the widest ref there is.
func TestAnEmptyListIsNotAll(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	sp := r.space(t, c)
	live, err := s.Attenuate(t.Context(), client.AttenuateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer live.Release()
	for name, o := range map[string]client.ShareOptions{
		"no method":  {Rights: capability.Append, Methods: []string{}},
		"no key":     {Rights: capability.Read, Seal: []byte{}},
		"half a key": {Rights: capability.Read, Seal: make([]byte, 16)},
	} {
		if _, _, err := s.Share(t.Context(), o); !errors.Is(err, fault.BadArgument) {
			t.Errorf("%s: Session.Share: %v", name, err)
		}
		if _, err := sp.Share(t.Context(), o); !errors.Is(err, fault.BadArgument) {
			t.Errorf("%s: Space.Share: %v", name, err)
		}
		if _, err := live.Share(t.Context(), r.owner, o); !errors.Is(err, fault.BadArgument) {
			t.Errorf("%s: Live.Share: %v", name, err)
		}
	}
	none := client.AttenuateOptions{Methods: []string{}}
	for name, attenuate := range map[string]func() (*client.Live, error){
		"Session": func() (*client.Live, error) { return s.Attenuate(t.Context(), none) },
		"Space":   func() (*client.Live, error) { return sp.Attenuate(t.Context(), none) },
		"Live":    func() (*client.Live, error) { return live.Attenuate(t.Context(), none) },
		"wider": func() (*client.Live, error) {
			return s.Attenuate(t.Context(), client.AttenuateOptions{Rights: capability.Create})
		},
	} {
		if got, err := attenuate(); err == nil || got != nil {
			t.Errorf("%s.Attenuate: %v, %v", name, got, err)
		}
	}
}

// TestNothingPanics of what is nil or zero, or comes in the wrong order.
func TestNothingPanics(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	sp := r.space(t, c)
	commit := func(add func(b *client.Batch)) error {
		b := s.Batch()
		add(b)
		_, err := b.Commit(t.Context())
		return err
	}
	for name, tc := range map[string]struct {
		do   func() error
		want fault.Code
	}{
		"a zero ticket":      {func() error { _, err := client.Ticket{}.Wait(t.Context()); return err }, fault.Usage},
		"a zero batch":       {func() error { _, err := new(client.Batch).Commit(t.Context()); return err }, fault.Usage},
		"no transaction":     {func() error { _, err := s.Batch().CommitTx(t.Context(), nil); return err }, fault.Usage},
		"a nil promise":      {func() error { return commit(func(b *client.Batch) { b.Put("session", (*client.Promise)(nil)) }) }, fault.Usage},
		"a nil reference":    {func() error { return commit(func(b *client.Batch) { b.Put("session", (*client.ResultRef)(nil)) }) }, fault.Usage},
		"depends on nil":     {func() error { return commit(func(b *client.Batch) { b.Put("session", object{}).DependsOn(nil) }) }, fault.Usage},
		"the outcome of nil": {func() error { _, err := client.Results{}.Of(nil); return err }, fault.Usage},
		"the result of nil":  {func() error { return client.Results{}.Decode(nil, nil) }, fault.Usage},
		"no handler":         {func() error { return s.Subscribe(t.Context(), client.SubscribeOptions{}, nil) }, fault.Usage},
		"a fork of nil": {func() error {
			_, b := sp.Fork(nil, 0, client.CreateOptions{})
			_, err := b.Commit(t.Context())
			return err
		}, fault.Usage},
		"a null cursor":     {func() error { return commit(func(b *client.Batch) { b.Put("session", object{}).Expect(nil) }) }, fault.BadArgument},
		"a cursor below 0":  {func() error { return commit(func(b *client.Batch) { b.Put("session", object{}).Expect(-1) }) }, fault.BadArgument},
		"a cursor as text":  {func() error { return commit(func(b *client.Batch) { b.Put("session", object{}).Expect("7") }) }, fault.BadArgument},
		"an op of no batch": {func() error { _, err := client.Results{}.ByID("x"); return err }, fault.NotFound},
		"named when it's late": {func() error {
			return commit(func(b *client.Batch) {
				p := b.Put("session", object{})
				b.Put(message(1), object{}).Expect(p.Field("cursor"))
				p.SetID(outbox.OpID(outbox.NewBatchID(), 0))
			})
		}, fault.Usage},
		"two outboxes": {func() error {
			_, err := client.Open(t.Context(), client.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir()), Outbox: c.Outbox()})
			return err
		}, fault.Usage},
		"no outbox": {func() error { _, err := client.Open(t.Context(), client.Config{}); return err }, fault.Usage},
	} {
		if err := tc.do(); fault.CodeOf(err) != tc.want {
			t.Errorf("%s: %v, want %s", name, err, tc.want)
		}
	}
}

// TestRefusalsNameTheirCodeOnce, and what was wrong.
func TestRefusalsNameTheirCodeOnce(t *testing.T) {
	t.Parallel()
	r := testRig(t)
	c := r.open(t, "a")
	s := r.newSession(t, c)
	for want, err := range map[string]error{
		"bad_argument: op 1 (put): payload cannot be written as JSON": func() error { _, err := s.Put(t.Context(), "session", func() {}); return err }(),
		"bad_key: op 1 (put): ":                             func() error { _, err := s.Put(t.Context(), "turn/x", object{}); return err }(),
		"usage: the batch has no ops":                       func() error { _, err := s.Batch().Commit(t.Context()); return err }(),
		"wait: not_found: batch 01ARZ3NDEKTSV4RRFFQ69G5FAV": func() error { _, err := c.Ticket("01ARZ3NDEKTSV4RRFFQ69G5FAV").Wait(t.Context()); return err }(),
		"commit: bad_reference: op ": func() error {
			b := s.Batch()
			b.Put("session", object{}).DependsOnID(outbox.OpID(outbox.NewBatchID(), 0))
			_, err := b.Commit(t.Context())
			return err
		}(),
	} {
		text := ""
		if err != nil {
			text = err.Error()
		}
		code := fault.CodeOf(err).String()
		if !strings.HasPrefix(text, want) || strings.Count(text, code+":") != 1 || strings.Count(text, "commit:") > 1 {
			t.Errorf("it says %q, want %q", text, want)
		}
	}
}
