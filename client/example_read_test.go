package client_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
)

// A ref is redeemed to learn what it allows.
func ExampleClient_Redeem() {
	ctx := context.Background()
	owner, home, stop := exampleServer()
	defer stop()
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home)})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	d, err := c.Redeem(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Grant.Rights, d.Grant.Dead == fault.None)
	// Output: share,revoke,create,list,manage true
}

// A narrower capability goes to another program in a call, over whatever
// connection there is to it, and ends with the ref it was made from.
func ExampleSession_Attenuate() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"role": "user"})
	b.Put("message/msg_2", map[string]string{"role": "user"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	live, err := s.Attenuate(ctx, client.AttenuateOptions{Rights: capability.Read, Message: "msg_2"})
	if err != nil {
		log.Fatal(err)
	}
	defer live.Release()
	d, err := live.Describe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	page, err := live.Events(ctx, 0, 0)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Grant.Rights, d.Grant.Message)
	for _, e := range page.Events {
		fmt.Printf("%d %q hidden=%v\n", e.Cursor, e.Key, e.Hidden)
	}
	// Output:
	// read msg_2
	// 2 "" hidden=true
	// 3 "message/msg_2" hidden=false
}

// Who holds a live capability alone makes durable refs with it too.
func ExampleLive_Share() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	live, err := s.Attenuate(ctx, client.AttenuateOptions{Rights: capability.Read | capability.Share})
	if err != nil {
		log.Fatal(err)
	}
	defer live.Release()
	ref, err := live.Share(ctx, s.Ref(), client.ShareOptions{Rights: capability.Read, Label: "reader"})
	if err != nil {
		log.Fatal(err)
	}
	reader, err := c.Session(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	d, err := reader.Describe(ctx)
	fmt.Println(d.Grant.Rights, d.Grant.Label, err)
	// Output:
	// read reader <nil>
}

// A reader of some keys is sent those alone, with marks for what comes between.
func ExampleSession_EventsOf() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/a", map[string]string{"role": "user"})
	b.Put("part/a/1", map[string]string{"text": "one"})
	b.Put("session", map[string]string{"title": "parts"})
	b.Put("part/a/2", map[string]string{"text": "two"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	parts := []string{"part/a/"}
	state, err := s.SnapshotOfKeys(ctx, client.Position{Cursor: 3}, parts)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range state.Entries {
		fmt.Println("state", e.Key)
	}
	page, err := s.EventsOf(ctx, client.Position{}, parts, 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range page.Events {
		fmt.Println("page", e.Cursor, e.Key, e.Hidden)
	}
	stopped := errors.New("enough")
	err = s.Subscribe(ctx, client.SubscribeOptions{After: state.Cursor, Hash: state.Hash, Keys: parts}, func(e client.Event) error {
		if fmt.Println("live", e.Cursor, e.Key, e.Hidden); e.Cursor == 5 {
			return stopped
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// state part/a/1
	// page 2  true
	// page 3 part/a/1 false
	// page 4  true
	// page 5 part/a/2 false
	// live 4  true
	// live 5 part/a/2 false
	// enough
}

// Nothing under a revoked ref commits after the cut.
func ExampleSession_Revoke() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	ref, ticket, err := s.Share(ctx, client.ShareOptions{Rights: capability.Read})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := ticket.Wait(ctx); err != nil {
		log.Fatal(err)
	}
	cut, err := s.Revoke(ctx, ref.ID)
	if err != nil {
		log.Fatal(err)
	}
	reader, err := c.Session(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	_, err = reader.Snapshot(ctx)
	fmt.Println("cut at", cut.Cursor, errors.Is(err, fault.Revoked))
	// Output: cut at 3 true
}

// All shares of a session end together.
func ExampleSession_BumpEpoch() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	cut, err := s.BumpEpoch(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("epoch", cut.Epoch, "from cursor", cut.Cursor)
	// Output: epoch 2 from cursor 2
}

// Revoking can also wait in the outbox, and refer to a share that waits there.
func ExampleBatch_Revoke() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	_, share := b.Share(client.ShareOptions{Rights: capability.Read})
	revoke := b.Revoke(share.Field("ref"))
	b.BumpEpoch()
	results, err := b.CommitWait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	var r struct{ Cut uint64 }
	if err := results.Decode(revoke, &r); err != nil {
		log.Fatal(err)
	}
	fmt.Println("cut at", r.Cut)
	// Output: cut at 3
}

// The folded state, now and as it was.
func ExampleSession_SnapshotAt() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("session", map[string]string{"title": "before"})
	b.Put("session", map[string]string{"title": "after"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	for _, cursor := range []uint64{2, 3} {
		state, err := s.SnapshotAt(ctx, cursor)
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(state.Cursor, string(state.Entry("session").Payload))
	}
	// Output:
	// 2 {"title":"before"}
	// 3 {"title":"after"}
}

// A subscriber starts from a snapshot and misses nothing after it.
func ExampleSession_Subscribe() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	state, err := s.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, title := range []string{"a", "b", "c"} {
		if _, err := s.Put(ctx, "session", map[string]string{"title": title}); err != nil {
			log.Fatal(err)
		}
	}
	enough := errors.New("enough")
	err = s.Subscribe(ctx, client.SubscribeOptions{After: state.Cursor}, func(e client.Event) error {
		fmt.Println(e.Cursor, e.Actor, string(e.Payload))
		if e.Cursor == state.Cursor+3 {
			return enough
		}
		return nil
	})
	fmt.Println(err)
	// Output:
	// 2 owner {"title":"a"}
	// 3 owner {"title":"b"}
	// 4 owner {"title":"c"}
	// enough
}

// A page of the log.
func ExampleSession_Events() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"role": "user"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	page, err := s.Events(ctx, 0, 100)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range page.Events {
		fmt.Println(e.Cursor, e.Method)
	}
	// Output:
	// 1 create
	// 2 put
}

// How much a session has, without reading it.
func ExampleSession_Stat() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("message/msg_1", map[string]string{"role": "user"})
	b.Put("message/msg_2", map[string]string{"role": "assistant"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	stat, err := s.Stat(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(stat.Events, "events")
	for _, kind := range stat.Kinds {
		fmt.Println(kind.Kind, kind.Keys, kind.Bytes)
	}
	// Output:
	// 3 events
	// message 2 35
}

// A session and the ref it is reached by describe themselves.
func ExampleSession_Describe() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	d, err := s.Describe(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Session.Cursor, d.Grant.Owner, d.Grant.Rights)
	// Output: 1 true read,append,share,revoke,break,schema,revert,compact,ask,answer
}

// The sessions of a space.
func ExampleSpace_List() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	refs, err := c.Outbox().Refs(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, ref := range refs {
		if !capability.IsSpace(ref.Target()) {
			continue
		}
		space, err := c.Space(ctx, ref.Ref)
		if err != nil {
			log.Fatal(err)
		}
		for info, err := range space.List(ctx, client.ListOptions{}) {
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println(info.ID == s.ID(), info.Cursor)
		}
	}
	// Output: true 1
}

// A fork goes on from a copy.
func ExampleSpace_Fork() {
	ctx := context.Background()
	owner, home, stop := exampleServer()
	defer stop()
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home)})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	space, err := c.Space(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	source, create := space.Create(client.CreateOptions{})
	create.Put("session", map[string]string{"title": "the first"})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	fork, batch := space.Fork(source, 0, client.CreateOptions{Label: "try it another way"})
	batch.Put("message/msg_1", map[string]string{"role": "user"})
	if _, err := batch.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	state, err := fork.Snapshot(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range state.Entries {
		fmt.Println(e.Key, string(e.Payload))
	}
	// Output:
	// session {"title":"the first"}
	// message/msg_1 {"role":"user"}
}

// The run of a sub-agent is a session of its own, under the part that started it.
func ExampleSession_Children() {
	ctx := context.Background()
	owner, home, stop := exampleServer()
	defer stop()
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(home)})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	space, err := c.Space(ctx, owner)
	if err != nil {
		log.Fatal(err)
	}
	main, create := space.Create(client.CreateOptions{})
	create.Put("part/msg_1/prt_task", map[string]string{"type": "tool", "tool": "task"})
	if _, err := create.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	run, batch := space.Create(client.CreateOptions{Parent: main, Part: "part/msg_1/prt_task"})
	batch.Put("message/msg_1", map[string]string{"role": "user"})
	if _, err := batch.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	for child, err := range main.Children(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(child.ID == run.ID(), child.Parent.Key)
	}
	for child, err := range space.List(ctx, client.ListOptions{Parent: main.ID()}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(child.ID == run.ID(), child.Parent.Session == main.ID())
	}
	// Output:
	// true part/msg_1/prt_task
	// true true
}

// A deleted session takes no more ops.
func ExampleBatch_Delete() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("session", map[string]string{"title": "short-lived"})
	b.Delete()
	b.Put("session", map[string]string{"title": "too late"})
	ticket, err := b.Commit(ctx)
	if err != nil {
		log.Fatal(err)
	}
	results, err := ticket.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(results[1].Status, results[2].Status, results[2].Reason)
	// Output: applied rejected session_deleted
}

// The server makes a ref of the same authority, as Cap'n Proto's save does.
func ExampleSession_Save() {
	ctx := context.Background()
	c, s, stop := exampleSession(ctx)
	defer stop()
	ref, err := s.Save(ctx)
	if err != nil {
		log.Fatal(err)
	}
	d, err := c.Redeem(ctx, ref)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(d.Grant.Rights, d.Grant.Target == s.ID(), ref.ID == s.Ref().ID)
	// Output: read,append,share,revoke,break,schema,revert,compact,ask,answer true false
}

// One value is read by its key, and the keys below a prefix are listed in the order in which they
// were first put, with who changed each last.
func ExampleSession_Search() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("note/1", map[string]string{"text": "The login fails on Safari"})
	b.Put("note/2", map[string]string{"text": "checkLogin has no test"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	for found, err := range s.Search(ctx, "login") {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s %s %q\n", found.Key, found.Place, found.Excerpt)
	}
	page, err := s.SearchPage(ctx, `"login fails"`, "", 10)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(page.Found), page.Next == "")
	// Output:
	// note/2 /text ["check" "Login" " has no test"]
	// note/1 /text ["The " "login" " fails on Safari"]
	// 1 true
}

func ExampleSession_List() {
	ctx := context.Background()
	_, s, stop := exampleSession(ctx)
	defer stop()
	b := s.Batch()
	b.Put("model/plan/tests", map[string]string{"state": "open"})
	b.Put("model/plan/docs", map[string]string{"state": "open"})
	b.Put("model/plan/tests", map[string]string{"state": "done"})
	if _, err := b.CommitWait(ctx); err != nil {
		log.Fatal(err)
	}
	for e, err := range s.List(ctx, client.KeyOptions{Prefix: "model/plan/", Order: client.ByPut}) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(e.Key, e.Cursor, e.Actor, e.Bytes)
	}
	page, err := s.Get(ctx, "model/plan/docs", "model/plan/none")
	if err != nil {
		log.Fatal(err)
	}
	for _, e := range page.Entries {
		fmt.Println(e.Key, string(e.Payload))
	}
	page, err = s.ListPage(ctx, client.KeyOptions{Prefix: "model/"}, "", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(page.Entries[0].Key, page.Next != "")
	// Output:
	// model/plan/tests 4 owner 16
	// model/plan/docs 3 owner 16
	// model/plan/docs {"state":"open"}
	// model/plan/docs true
}
