package decide_test

import (
	"context"
	"fmt"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// One transaction for two batches of two streams; the second revokes the first's ref.
func ExampleCommit() {
	w := newWorld(panicker{})
	owner := w.create()
	guest := owner.under(owner.share([]string{"read", "append"}))

	group := []decide.Submission{
		guest.batch(false, op("put", "key", "message/1", "payload", raw(`{"role":"user"}`))),
		owner.batch(false, op("revoke", "ref", guest.ref)),
		guest.batch(false, op("put", "key", "message/2", "payload", raw(`{}`))),
	}
	var answers []decide.Answer
	err := w.store.Update(context.Background(), func(tx session.Tx) (err error) {
		answers, _, err = decide.Commit(context.Background(), tx, group, decide.DefaultConfig())
		return err
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, a := range answers {
		out := a.Outcomes[0]
		fmt.Println(out.Status, out.Reason, string(out.Result))
	}
	// Output:
	// applied none {"cursor":3}
	// applied none {"cursor":4,"cut":4}
	// denied revoked
}

// A log folds to the session's state.
func ExampleFold() {
	w := newWorld(panicker{})
	o := w.create()
	o.apply(op("begin", "message", "m", "payload", raw(`{"role":"assistant"}`)))
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"type":"text"}`)))
	o.apply(op("appendText", "key", "part/m/p", "offset", 0, "text", "Hel"))
	o.apply(op("appendText", "key", "part/m/p", "offset", 3, "text", "lo"))

	f := session.NewFold(o.session)
	for _, e := range w.store.Events(o.session) {
		if err := f.Apply(e); err != nil {
			fmt.Println(err)
			return
		}
	}
	for _, e := range f.Entries() {
		fmt.Println(e.Key, string(e.Payload))
	}
	for _, t := range f.Turns() {
		fmt.Println(t.Message, t.Status)
	}
	// Output:
	// message/m {"role":"assistant"}
	// part/m/p {"type":"text","text":"Hello"}
	// m streaming
}

// panicker is an example's failer.
type panicker struct{}

func (panicker) Helper() {}

func (panicker) Fatalf(format string, args ...any) { panic(fmt.Sprintf(format, args...)) }
