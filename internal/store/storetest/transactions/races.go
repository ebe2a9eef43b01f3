// Races: many transactions at once, and what must hold in the end. Decisions
// are made here as decide.Commit makes them: on rows read under lock.

package transactions

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

// appendOne writes an event after the row's cursor and moves the row.
func appendOne(row *session.Row, c *session.Changes, key, ref string) *session.Event {
	row.Cursor++
	e := harness.Event(row.ID, row.Cursor, key, fmt.Sprintf(`{"cursor":%d}`, row.Cursor))
	e.Ref = ref
	row.Head = e.Hash
	c.Sessions, c.Events = []*session.Row{row}, append(c.Events, e)
	return e
}

// testClaimRace: many writers claim the same op; one applies it, all others
// find its outcome.
func testClaimRace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	key := session.StreamKey{Session: harness.NewSession(), Outbox: harness.NewOutbox()}
	const writers, ops = 8, 20
	var applied, duplicates [ops]int
	var mu sync.Mutex
	var all sync.WaitGroup
	claim := func(seq uint64) error {
		dup := false
		err := f.Update(f.Ctx, func(tx session.Tx) error {
			rows, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{key.Session}, Streams: []session.StreamKey{key},
				Records: []session.RecordRange{{Stream: key, From: seq, To: seq}}})
			if err != nil {
				return err
			}
			stream := rows.Streams[key]
			if stream == nil {
				stream = &ledger.Stream{Session: key.Session, Outbox: key.Outbox}
			}
			if dup = seq <= stream.LastSeq; dup {
				if len(rows.Records[key]) != 1 {
					t.Errorf("seq %d was recorded and has %d records", seq, len(rows.Records[key]))
				}
				return nil
			}
			if seq != stream.LastSeq+1 {
				return fault.Gap.With("gap").Pos(stream.LastSeq + 1)
			}
			stream.LastSeq = seq
			c := &session.Changes{Streams: []*ledger.Stream{stream},
				Records: []session.StreamRecord{{Stream: key, Record: harness.Record(seq, harness.NewOp())}}}
			appendOne(rows.Sessions[key.Session], c, "message/m", "")
			return tx.Save(f.Ctx, c)
		})
		if err == nil {
			mu.Lock()
			applied[seq-1] += b2i(!dup)
			duplicates[seq-1] += b2i(dup)
			mu.Unlock()
		}
		return err
	}
	for range writers {
		all.Go(func() {
			for seq := uint64(1); seq <= ops; seq++ {
				if err := claim(seq); err != nil {
					t.Errorf("claim %d: %v", seq, err)
				}
			}
		})
	}
	all.Wait()
	for i := range ops {
		if applied[i] != 1 || duplicates[i] != writers-1 {
			t.Errorf("op %d was applied %d times and a duplicate %d times", i+1, applied[i], duplicates[i])
		}
	}
	f.WholeLog(key.Session, ops)
}

// testRevokeRace: nothing under a ref commits after its cut.
func testRevokeRace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	for range 5 {
		id := harness.NewSession()
		parent := harness.Grant(harness.NewRef(id), "")
		child := harness.Grant(harness.NewRef(id), parent.ID)
		f.Save(&session.Changes{Grants: []*capability.Grant{parent, child}}, id)
		started := make(chan struct{}, 100)
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for {
					err := f.Update(f.Ctx, func(tx session.Tx) error {
						rows, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{id}, Grants: []string{child.ID}})
						if err != nil {
							return err
						}
						if rows.Grants[child.ID].Revoked != 0 {
							return fault.Revoked
						}
						c := &session.Changes{}
						appendOne(rows.Sessions[id], c, "message/m", child.ID)
						return tx.Save(f.Ctx, c)
					})
					if errors.Is(err, fault.Revoked) {
						return
					}
					if err != nil {
						t.Errorf("append: %v", err)
						return
					}
					select {
					case started <- struct{}{}:
					default:
					}
				}
			})
		}
		f.Await(started, 10)
		var cut uint64
		err := f.Update(f.Ctx, func(tx session.Tx) error {
			rows, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{id}, Lineages: []string{child.ID}})
			if err != nil {
				return err
			}
			c := &session.Changes{}
			row := rows.Sessions[id]
			cut = appendOne(row, c, "ref/x", parent.ID).Cursor
			row.AuthGen++
			c.Revoke = []session.RevokedGrant{{ID: parent.ID, By: parent.ID, At: rows.Now, Cut: cut}}
			return tx.Save(f.Ctx, c)
		})
		f.Must("revoke", err)
		all.Wait()
		for _, e := range f.WholeLog(id, cut) {
			if e.Ref == child.ID && e.Cursor > cut {
				t.Errorf("cursor %d was committed after the cut at %d", e.Cursor, cut)
			}
		}
	}
}

// testOppositeOrder: batches that name the same sessions in opposite order,
// some of them not there yet, never wait for each other in a circle.
func testOppositeOrder(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	const writers, rounds = 6, 15
	ids := []string{harness.NewSession(), harness.NewSession(), harness.NewSession(), harness.NewSession()}
	var all sync.WaitGroup
	for w := range writers {
		all.Go(func() {
			for round := range rounds {
				a, b := ids[(w+round)%len(ids)], ids[(w+3*round+1)%len(ids)]
				if a == b {
					b = ids[(w+round+1)%len(ids)]
				}
				err := f.Update(f.Ctx, func(tx session.Tx) error {
					rows, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{a, b}})
					if err != nil {
						return err
					}
					for _, id := range []string{b, a} {
						c := &session.Changes{}
						appendOne(rows.Sessions[id], c, "message/m", "")
						if err := tx.Save(f.Ctx, c); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("writer %d, round %d: %v", w, round, err)
				}
			}
		})
	}
	all.Wait()
	total := uint64(0)
	for _, id := range ids {
		sight, err := f.ReadAccess(f.Ctx, id, nil)
		f.Must("look", err)
		total += sight.Row.Cursor
		f.WholeLog(id, sight.Row.Cursor)
	}
	if total != writers*rounds*2 {
		t.Errorf("%d events of %d", total, writers*rounds*2)
	}
}

// testExternalRace: of many sessions that one maker gives one external id at once,
// one has it; another maker's goes in beside it.
func testExternalRace(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	space, _, err := f.Init(f.Ctx, harness.Grant(harness.NewRef(harness.NewSpace()), ""))
	f.Must("init", err)
	for range 5 {
		const many = 6
		external := "ext-" + harness.NewOp()
		makers := [2]string{harness.NewRef(space), harness.NewRef(space)}
		var winners [many]string
		var all sync.WaitGroup
		for i := range many {
			id, maker := harness.NewSession(), makers[i%2]
			all.Go(func() {
				err := f.Update(f.Ctx, func(tx session.Tx) error {
					x := session.ExternalID{Space: space, SpaceRef: maker, ID: external}
					rows, err := tx.Load(f.Ctx, &session.ReadSet{Spaces: []string{space}, Sessions: []string{id}, External: []session.ExternalID{x}})
					if err != nil {
						return err
					}
					if winners[i] = rows.External[x]; winners[i] != "" {
						return nil
					}
					row, owner := rows.Sessions[id], harness.Grant(harness.NewRef(id), maker)
					row.Space, row.External, row.Life = space, external, session.Live
					owner.Owner, winners[i] = true, id
					return tx.Save(f.Ctx, &session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{owner}})
				})
				if err != nil {
					t.Errorf("claim: %v", err)
				}
			})
		}
		all.Wait()
		for i, w := range winners {
			if w != winners[i%2] || w == "" || winners[0] == winners[1] {
				t.Fatalf("two sessions have one external id, or one is not let in: %v", winners)
			}
		}
	}
}

// testSnapshots: readers beside writers see whole transactions only.
func testSnapshots(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	const writes = 60
	done := make(chan struct{})
	var all sync.WaitGroup
	all.Go(func() {
		defer close(done)
		for range writes {
			err := f.Update(f.Ctx, func(tx session.Tx) error {
				rows, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{id}})
				if err != nil {
					return err
				}
				// Two events and their entries at a time, the row at their end.
				c := &session.Changes{}
				row := rows.Sessions[id]
				for _, key := range []string{"message/a", "message/b"} {
					c.Entries = append(c.Entries, harness.EntryOf(appendOne(row, c, key, "")))
				}
				return tx.Save(f.Ctx, c)
			})
			if err != nil {
				t.Errorf("write: %v", err)
				return
			}
		}
	})
	for range 3 {
		all.Go(func() {
			after := uint64(0)
			for last := false; !last; {
				select {
				case <-done:
					last = true
				default:
				}
				page, err := f.ReadLog(f.Ctx, id, after, 1<<30, 1<<20, nil)
				if err != nil {
					t.Errorf("read log: %v", err)
					return
				}
				if page.Row == nil {
					continue
				}
				if n := len(page.Events); n > 0 {
					if page.Events[0].Cursor != after+1 {
						t.Errorf("the page after %d begins at %d", after, page.Events[0].Cursor)
					}
					after = page.Events[n-1].Cursor
				}
				if after != page.Row.Cursor || after%2 != 0 {
					t.Errorf("the log ends at %d and the row says %d", after, page.Row.Cursor)
				}
				err = f.ReadState(f.Ctx, id, nil, 0, func(p *session.StateChunk) error {
					for _, e := range p.Entries {
						if e.Cursor+1 < p.Row.Cursor || e.Cursor > p.Row.Cursor || string(e.Payload) != fmt.Sprintf(`{"cursor":%d}`, e.Cursor) {
							t.Errorf("state at %d has an entry of %d: %s", p.Row.Cursor, e.Cursor, e.Payload)
						}
					}
					return nil
				})
				if err != nil {
					t.Errorf("read state: %v", err)
					return
				}
			}
		})
	}
	all.Wait()
	f.WholeLog(id, 2*writes)
}

// testListen: commits are heard, after they are there to read; what was rolled
// back is not. Who hears is, where there can be one, another server.
func testListen(t *testing.T, fresh harness.Fresh) {
	db := fresh(t)
	f := harness.Open(t, db)
	listener := f
	if db.Shared {
		listener = harness.Open(t, db)
	}
	type news struct {
		id     string
		cursor uint64
	}
	heard := make(chan news, 100)
	ctx, cancel := context.WithCancel(f.Ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- listener.Listen(ctx, func(id string, cursor uint64) { heard <- news{id, cursor} })
	}()
	next := func() news {
		t.Helper()
		select {
		case n := <-heard:
			return n
		case <-f.Ctx.Done():
			t.Fatal("nothing is heard")
			return news{}
		}
	}
	if n := next(); n != (news{}) {
		t.Errorf("the first announcement is %v, want the one that says: look at everything", n)
	}
	if db.Shared {
		a, b := harness.NewSession(), harness.NewSession()
		write := func(fail error) {
			err := f.Update(f.Ctx, func(tx session.Tx) error {
				rows, err := tx.Load(f.Ctx, &session.ReadSet{Sessions: []string{a, b}})
				if err != nil {
					return err
				}
				for _, id := range []string{a, b, a} {
					c := &session.Changes{}
					appendOne(rows.Sessions[id], c, "message/m", "")
					if err := tx.Save(f.Ctx, c); err != nil {
						return err
					}
				}
				if _, err := tx.Load(f.Ctx, &session.ReadSet{}); err != nil {
					return err
				}
				return fail
			})
			if !errors.Is(err, fail) {
				t.Fatalf("write: %v", err)
			}
		}
		write(errors.New("rolled back"))
		write(nil)
		f.Save(&session.Changes{Streams: []*ledger.Stream{{Session: a, Outbox: harness.NewOutbox()}}}, a) // moves no cursor
		write(nil)
		for _, want := range []map[string]uint64{{a: 2, b: 1}, {a: 4, b: 2}} {
			got := map[string]uint64{}
			for range 2 {
				n := next()
				got[n.id] = n.cursor
				sight, err := listener.ReadAccess(f.Ctx, n.id, nil)
				f.Must("look", err)
				if sight.Row == nil || sight.Row.Cursor < n.cursor {
					t.Errorf("heard of %v before it could be read: %+v", n, sight.Row)
				}
			}
			harness.Same(f, "announcements of a commit", got, want)
		}
	}
	cancel()
	f.Must("listen", <-ended)
	if len(heard) != 0 {
		t.Errorf("heard more: %v", <-heard)
	}
}
