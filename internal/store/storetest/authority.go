// Streams, redemptions, revocation and the first start.

package storetest

import (
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

func testOpenStream(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	key := session.StreamKey{Session: newSession(), Outbox: newOutbox()}
	secret := hash()
	want := &ledger.Stream{Session: key.Session, Outbox: key.Outbox, SecretHash: secret, Incarnation: 3}
	for range 2 { // registered by the first, matched by the second
		stream, err := f.OpenStream(f.ctx, key, secret, 3)
		f.must("open stream", err)
		same(f, "stream", stream, want)
	}
	another := hash()
	for incarnation := uint64(1); incarnation < 3; incarnation++ { // another secret has a stream of its own
		stream, err := f.OpenStream(f.ctx, key, another, incarnation)
		f.must("open a stream under an id that is taken", err)
		same(f, "its own stream", stream, &ledger.Stream{Session: key.Session, Outbox: session.FallbackStream(key, another).Outbox, SecretHash: another, Incarnation: incarnation})
	}
	own := session.FallbackStream(key, another)
	stream, err := f.OpenStream(f.ctx, own, another, 2)
	f.must("open it by the id of the stream", err)
	same(f, "its own stream by id", stream, &ledger.Stream{Session: key.Session, Outbox: own.Outbox, SecretHash: another, Incarnation: 2})
	_, err = f.OpenStream(f.ctx, own, hash(), 2)
	f.code("a third secret under an id with a mark", err, fault.WrongOutbox)
	_, err = f.OpenStream(f.ctx, key, secret, 2)
	f.code("an older incarnation", err, fault.Fenced)

	want.LastSeq, want.AckedThrough = 12, 10
	f.save(&session.Changes{Streams: []*ledger.Stream{want}}, key.Session)
	stream, err = f.OpenStream(f.ctx, key, secret, 4)
	f.must("take over", err)
	want.Incarnation = 4
	same(f, "stream after the takeover", stream, want)
	_, err = f.OpenStream(f.ctx, key, secret, 3)
	f.code("the one before", err, fault.Fenced)
	same(f, "stored", f.load(&session.ReadSet{Streams: []session.StreamKey{key}}).Streams[key], want)

	// Many at once: one secret has the outbox's id, the others streams of their own.
	race := session.StreamKey{Session: newSession(), Outbox: newOutbox()}
	secrets := make([][32]byte, 8)
	opened, errs := make([]*ledger.Stream, len(secrets)), make([]error, len(secrets))
	var all sync.WaitGroup
	for i := range secrets {
		secrets[i] = hash()
		all.Go(func() { opened[i], errs[i] = f.OpenStream(f.ctx, race, secrets[i], 1) })
	}
	all.Wait()
	stored := f.load(&session.ReadSet{Streams: []session.StreamKey{race}}).Streams[race]
	for i, err := range errs {
		want := session.FallbackStream(race, secrets[i])
		if stored.SecretHash == secrets[i] {
			want = race
		}
		if err != nil || opened[i].Outbox != want.Outbox || opened[i].SecretHash != secrets[i] {
			t.Errorf("opener %d: %+v, error %v, want the stream %s", i, opened[i], err, want.Outbox)
		}
	}
}

func testFindStreams(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	g := grant(newRef(id), "")
	f.save(&session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), 0)}, Grants: []*capability.Grant{g}}, id)
	_, err := f.OpenStream(f.ctx, session.StreamKey{Session: newSession(), Outbox: newOutbox()}, hash(), 1) // a neighbour's
	f.must("open stream", err)
	secret, key := hash(), session.StreamKey{Session: id, Outbox: newOutbox()}
	for incarnation := range uint64(3) { // 0: it is not open yet
		sight, streams, err := f.FindStreams(f.ctx, session.CandidateStreams(key, secret), []string{g.ID})
		f.must("find streams", err)
		stream := streams[key]
		if (stream != nil) != (incarnation > 0) || sight.Row == nil || sight.Grants[g.ID] == nil {
			t.Errorf("found %+v, %+v", stream, sight)
		}
		if stream != nil && (!stream.IsOpenBy(secret, incarnation) || stream.IsOpenBy(secret, incarnation+1) || stream.IsOpenBy(hash(), incarnation)) {
			t.Errorf("it was opened under incarnation %d, and found as %+v", incarnation, stream)
		}
		opened, err := f.OpenStream(f.ctx, key, secret, incarnation+1)
		f.must("open stream", err)
		same(f, "the stream as opened", opened, &ledger.Stream{Session: id, Outbox: key.Outbox, SecretHash: secret, Incarnation: incarnation + 1})
	}
}

// testDecidedOpening: who decides on an opening sees what is there under the session's lock, and a refusal
// leaves nothing behind.
func testDecidedOpening(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id, none := newSession(), newSession()
	g := grant(newRef(id), "")
	f.save(&session.Changes{Grants: []*capability.Grant{g}}, id)
	secret, refusal := hash(), fault.MissingRight.With("not this one")
	open := func(key session.StreamKey, decide func(*session.StreamRequest, *session.Access, map[session.StreamKey]*ledger.Stream) error) (*ledger.Stream, error) {
		return f.Store.OpenStream(f.ctx, session.StreamRequest{Key: key, SecretHash: secret, Incarnation: 1, MaxReadOnlyStreams: 1, Refs: []string{g.ID}, Decide: decide})
	}
	for _, key := range []session.StreamKey{{Session: id, Outbox: newOutbox()}, {Session: none, Outbox: newOutbox()}} {
		if _, err := open(key, func(*session.StreamRequest, *session.Access, map[session.StreamKey]*ledger.Stream) error {
			return refusal
		}); err != error(refusal) {
			t.Errorf("refused: %v", err)
		}
		if _, streams, err := f.FindStreams(f.ctx, []session.StreamKey{key}, nil); err != nil || streams[key] != nil {
			t.Errorf("left behind: %+v, %v", streams, err)
		}
	}
	if sight, err := f.ReadAccess(f.ctx, none, nil); err != nil || sight.Row != nil {
		t.Errorf("a refused opening made %+v, %v", sight.Row, err)
	}
	key := session.StreamKey{Session: id, Outbox: newOutbox()}
	for there := range 2 {
		opened, err := open(key, func(o *session.StreamRequest, at *session.Access, streams map[session.StreamKey]*ledger.Stream) error {
			if at.Row == nil || at.Row.ID != id || at.Grants[g.ID] == nil || at.Now == 0 || len(streams) != there {
				t.Errorf("decided on %+v, %+v", at, streams)
			}
			o.ReadOnlyRef = g.ID
			return nil
		})
		f.must("open", err)
		same(f, "the stream", opened, &ledger.Stream{Session: id, Outbox: key.Outbox, SecretHash: secret, Incarnation: 1, ReadOnlyRef: g.ID})
	}
}

// testIdleStreams: a ref that can change nothing makes so many streams and no more, until
// some of them are opened under another.
func testIdleStreams(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	ref, other, most := newRef(newSession()), newRef(newSession()), 3
	open := func(idle string, key session.StreamKey, secret [32]byte) (*ledger.Stream, error) {
		return f.Store.OpenStream(f.ctx, session.StreamRequest{Key: key, SecretHash: secret, Incarnation: 1, ReadOnlyRef: idle, MaxReadOnlyStreams: most})
	}
	fresher := func() session.StreamKey { return session.StreamKey{Session: newSession(), Outbox: newOutbox()} }
	secret := hash()
	var keys []session.StreamKey
	for range most { // in whatever session
		keys = append(keys, fresher())
		stream, err := open(ref, keys[len(keys)-1], secret)
		f.must("open", err)
		if stream.ReadOnlyRef != ref {
			t.Errorf("%+v", stream)
		}
	}
	full := func(what string) {
		t.Helper()
		key := fresher()
		if _, err := open(ref, key, secret); !errors.Is(err, session.ErrReadOnlyStreams) {
			t.Errorf("%s: %v", what, err)
		}
		if st := f.load(&session.ReadSet{Streams: []session.StreamKey{key}}).Streams[key]; st != nil {
			t.Errorf("%s: made %+v", what, st)
		}
	}
	full("one too many")
	_, err := open(ref, keys[0], hash())
	if !errors.Is(err, session.ErrReadOnlyStreams) {
		t.Errorf("one too many, under an id that is taken: %v", err)
	}
	_, err = open(ref, keys[0], secret)
	f.must("what is there", err)
	_, err = open(other, fresher(), secret)
	f.must("another ref's", err)
	_, err = open("", fresher(), secret)
	f.must("one that may", err)
	stream, err := open("", keys[0], secret)
	f.must("one of them under a ref that may", err)
	same(f, "the stream then", stream, &ledger.Stream{Session: keys[0].Session, Outbox: keys[0].Outbox, SecretHash: secret, Incarnation: 1})
	stream, err = open(ref, keys[0], secret)
	f.must("and under the first again", err)
	same(f, "the stream again", stream, &ledger.Stream{Session: keys[0].Session, Outbox: keys[0].Outbox, SecretHash: secret, Incarnation: 1})
	_, err = open(ref, fresher(), secret)
	f.must("in its place", err)
	full("one too many again")
}

func testRedeem(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	row, g := liveRow(id, newSpace(), 4), grant(newRef(id), "")
	root := grant(newRef(newSpace()), "")
	f.save(&session.Changes{Sessions: []*session.Row{row}, Grants: []*capability.Grant{g, root}}, id)

	var seen *session.Redemption
	accept := func(r *session.Redemption) error { seen = r; return nil }
	used := func(ref string) uint32 {
		t.Helper()
		sight, err := f.ReadAccess(f.ctx, "", []string{ref})
		f.must("look", err)
		return sight.Grants[ref].Redemptions
	}

	f.must("redeem", f.Redeem(f.ctx, g.ID, "r1", "192.0.2.1", accept))
	if seen.AlreadyCounted || seen.Row == nil || seen.Row.Cursor != 4 || seen.Grant.ID != g.ID || seen.Grants[g.ID] == nil || seen.Now == 0 {
		t.Errorf("the first redemption saw %+v", seen)
	}
	f.must("redeem again", f.Redeem(f.ctx, g.ID, "r1", "192.0.2.1", accept))
	if !seen.AlreadyCounted || seen.Grant.Redemptions != 1 {
		t.Errorf("the same redemption saw %+v", seen)
	}
	f.must("redeem anew", f.Redeem(f.ctx, g.ID, "r2", "192.0.2.1", accept))
	if got := used(g.ID); got != 2 {
		t.Errorf("used %d times, want 2", got)
	}
	no := fault.Exhausted.With("no")
	if err := f.Redeem(f.ctx, g.ID, "r3", "192.0.2.1", func(*session.Redemption) error { return no }); err != error(no) {
		t.Errorf("a refused redemption: %v", err)
	}
	if got := used(g.ID); got != 2 {
		t.Errorf("a refused redemption was counted: %d", got)
	}

	f.must("redeem a space's ref", f.Redeem(f.ctx, root.ID, "r1", "192.0.2.1", accept))
	if seen.Row != nil || seen.Grant.ID != root.ID {
		t.Errorf("a space's redemption saw %+v", seen)
	}
	unknown := errors.New("unknown")
	err := f.Redeem(f.ctx, newRef(id), "r1", "192.0.2.1", func(r *session.Redemption) error {
		if r.Grant != nil {
			t.Errorf("a grant nobody made: %+v", r.Grant)
		}
		return unknown
	})
	if err != unknown {
		t.Errorf("an unknown ref: %v", err)
	}
	f.must("nobody's ref, admitted", f.Redeem(f.ctx, newRef(id), "r1", "192.0.2.1", accept))

	rows := f.audit(id)
	if len(rows) != 2 || rows[0].Act != capability.AuditRedeem || rows[0].Ref != g.ID || rows[0].Actor != g.Actor || rows[0].Cursor != 4 || rows[0].Peer != "192.0.2.1" {
		t.Errorf("audit of two redemptions: %v", rows)
	}
}

// testRedeemLimit: of many at once exactly as many as the ref allows.
func testRedeemLimit(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	g := grant(newRef(id), "")
	g.MaxRedemptions = 5
	f.save(&session.Changes{Grants: []*capability.Grant{g}}, id)
	admit := func(r *session.Redemption) error {
		if !r.AlreadyCounted && r.Grant.Redemptions >= r.Grant.MaxRedemptions {
			return fault.Exhausted.With("used up")
		}
		return nil
	}
	const many = 16
	errs := make([]error, many)
	var all sync.WaitGroup
	for i := range many {
		// Every id twice: the second is free if the first was counted.
		all.Go(func() { errs[i] = f.Redeem(f.ctx, g.ID, fmt.Sprintf("r%d", i/2), "192.0.2.1", admit) })
	}
	all.Wait()
	admitted := map[int]int{}
	for i, err := range errs {
		if err == nil {
			admitted[i/2]++
		} else {
			f.code("refused", err, fault.Exhausted)
		}
	}
	if len(admitted) != 5 {
		t.Errorf("%d redemption ids were admitted, want 5: %v", len(admitted), admitted)
	}
	sight, err := f.ReadAccess(f.ctx, id, []string{g.ID})
	f.must("look", err)
	if sight.Grants[g.ID].Redemptions != 5 {
		t.Errorf("used %d times, want 5", sight.Grants[g.ID].Redemptions)
	}
}

// testRedeemWithoutLimit: of a ref without a limit so many redemptions are kept and no more; of
// one below a limit, all that there may be.
func testRedeemWithoutLimit(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	free, top := grant(newRef(id), ""), grant(newRef(id), "")
	free.Redemptions = capability.MaxCountedRedemptions - 2
	top.MaxRedemptions, top.Redemptions = 2*capability.MaxCountedRedemptions, capability.MaxCountedRedemptions
	below := grant(newRef(id), top.ID)
	below.Redemptions = capability.MaxCountedRedemptions
	f.save(&session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), 4)}, Grants: []*capability.Grant{free, top, below}}, id)
	redeem := func(ref, redemption string) (seen *session.Redemption) {
		t.Helper()
		f.must("redeem", f.Redeem(f.ctx, ref, redemption, "192.0.2.1", func(r *session.Redemption) error { seen = r; return nil }))
		return seen
	}
	for _, c := range []struct {
		ref, redemption         string
		before                  uint32
		known, uncounted, audit bool
	}{
		{free.ID, "a", 998, false, false, true},
		{free.ID, "b", 999, false, false, true},
		{free.ID, "c", 1000, false, true, false},
		{free.ID, "c", 1000, false, true, false}, // no row is there of it
		{free.ID, "a", 1000, true, false, false},
		{below.ID, "a", 1000, false, false, true},
		{below.ID, "a", 1001, true, false, false},
	} {
		rows := len(f.audit(id))
		seen := redeem(c.ref, c.redemption)
		if seen.Grant.Redemptions != c.before || seen.AlreadyCounted != c.known || seen.Uncounted != c.uncounted || (len(f.audit(id)) > rows) != c.audit {
			t.Errorf("%+v: redeemed %d times before, known %t, uncounted %t, %d audit rows after %d", c, seen.Grant.Redemptions, seen.AlreadyCounted, seen.Uncounted, len(f.audit(id)), rows)
		}
	}
	no := fault.Exhausted.With("no")
	if err := f.Redeem(f.ctx, free.ID, "d", "192.0.2.1", func(*session.Redemption) error { return no }); err != error(no) {
		t.Errorf("one that is refused: %v", err)
	}
}

// testRedeemLimitAbove: what is minted from a ref uses that one's redemptions up.
func testRedeemLimitAbove(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	top := grant(newRef(id), "")
	middle, other := grant(newRef(id), top.ID), grant(newRef(id), top.ID)
	below := grant(newRef(id), middle.ID)
	top.MaxRedemptions, below.MaxRedemptions = 5, 4
	f.save(&session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), 1)}, Grants: []*capability.Grant{top, middle, other, below}}, id)
	admit := func(r *session.Redemption) error {
		if refused := capability.CheckRedemption(r.Grant, r.LimitedAncestors, r.AlreadyCounted); refused != nil {
			return refused
		}
		return nil
	}
	var all sync.WaitGroup
	errs := map[string]*[8]error{top.ID: {}, other.ID: {}, below.ID: {}}
	for ref, list := range errs {
		for i := range list {
			all.Go(func() { list[i] = f.Redeem(f.ctx, ref, fmt.Sprintf("r%d of %s", i, ref), "", admit) })
		}
	}
	all.Wait()
	admitted := 0
	for _, list := range errs {
		for _, err := range list {
			if err == nil {
				admitted++
			} else {
				f.code("refused", err, fault.Exhausted)
			}
		}
	}
	sight, err := f.ReadAccess(f.ctx, id, []string{top.ID, middle.ID, below.ID})
	f.must("look", err)
	if used := sight.Grants[top.ID].Redemptions; admitted != 5 || used != 5 || sight.Grants[middle.ID].Redemptions != 0 || sight.Grants[below.ID].Redemptions > 4 {
		t.Errorf("%d redemptions were admitted, %d counted at the top, %d in the middle, %d below", admitted, used, sight.Grants[middle.ID].Redemptions, sight.Grants[below.ID].Redemptions)
	}
	for _, ref := range []string{top.ID, below.ID, other.ID} {
		f.code("one more", f.Redeem(f.ctx, ref, "one more", "", admit), fault.Exhausted)
	}
}

// testRedeemCost: who is refused, and who comes back, has nobody's line of refs
// read: it may be long, and whoever knows an id can ask.
func testRedeemCost(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	top := grant(newRef(id), "")
	below := grant(newRef(id), top.ID)
	top.MaxRedemptions, below.MaxRedemptions = 5, 4
	f.save(&session.Changes{Sessions: []*session.Row{liveRow(id, newSpace(), 1)}, Grants: []*capability.Grant{top, below}}, id)
	var above []int
	redeem := func(answer error) error {
		above = nil
		return f.Redeem(f.ctx, below.ID, "r", "", func(r *session.Redemption) error {
			above = append(above, len(r.LimitedAncestors))
			return answer
		})
	}
	f.code("a wrong secret", redeem(fault.UnknownRef.With("wrong")), fault.UnknownRef)
	same(f, "refs above, as seen by who is refused", above, []int{0})
	f.must("redeem", redeem(nil))
	same(f, "as seen by who is counted", above, []int{0, 1})
	f.must("redeem again", redeem(nil))
	same(f, "as seen by who comes back", above, []int{0})
}

// tree makes root → a → (a1 → a11, a2), root → b, and returns the ids by name.
func (f *fixture) tree(id string) map[string]string {
	parents := [][2]string{{"root", ""}, {"a", "root"}, {"a1", "a"}, {"a11", "a1"}, {"a2", "a"}, {"b", "root"}}
	ids := map[string]string{}
	var grants []*capability.Grant
	for _, p := range parents {
		ids[p[0]] = newRef(id)
		grants = append(grants, grant(ids[p[0]], ids[p[1]]))
	}
	f.save(&session.Changes{Grants: grants}, id)
	return ids
}

func testRevoke(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id, other := newSession(), newSession()
	ids, others := f.tree(id), f.tree(other)
	cuts := func(ids map[string]string) map[string]uint64 {
		t.Helper()
		var all []string
		for _, ref := range ids {
			all = append(all, ref)
		}
		sight, err := f.ReadAccess(f.ctx, id, all)
		f.must("look", err)
		got := map[string]uint64{}
		for name, ref := range ids {
			g := sight.Grants[ref]
			if (g.Revoked != 0) != (g.RevokedBy != "") {
				t.Errorf("%s: revoked %d by %q", name, g.Revoked, g.RevokedBy)
			}
			if g.Revoked != 0 {
				got[name] = g.Cut
			}
		}
		return got
	}
	revoke := func(name string, cut uint64) session.RevokedGrant {
		return session.RevokedGrant{ID: ids[name], By: ids["root"], At: 100 + int64(cut), Cut: cut}
	}
	f.save(&session.Changes{Revoke: []session.RevokedGrant{revoke("a1", 5)}}, id)
	same(f, "after a1", cuts(ids), map[string]uint64{"a1": 5, "a11": 5})
	// What is dead already keeps its cut; a ref minted in the same group dies too.
	late := newRef(id)
	f.save(&session.Changes{Grants: []*capability.Grant{grant(late, ids["a2"])},
		Revoke: []session.RevokedGrant{revoke("a", 9), revoke("b", 10), revoke("a", 11)}}, id)
	ids["late"] = late
	same(f, "after a and b", cuts(ids), map[string]uint64{"a1": 5, "a11": 5, "a": 9, "a2": 9, "late": 9, "b": 10})
	same(f, "another session's", cuts(others), map[string]uint64{})
	f.save(&session.Changes{Revoke: []session.RevokedGrant{{ID: newRef(id), By: "x", At: 1, Cut: 1}}}, id) // nobody's: nothing
	sight, err := f.ReadAccess(f.ctx, id, []string{ids["late"]})
	f.must("look", err)
	if g := sight.Grants[ids["late"]]; g.Revoked != 109 || g.RevokedBy != ids["root"] {
		t.Errorf("revoked: %+v", g)
	}
}

func testLineages(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	id := newSession()
	ids := f.tree(id)
	// The session's owner ref comes from the space's, in another target.
	space := grant(newRef(newSpace()), "")
	owner := grant(newRef(id), space.ID)
	child := grant(newRef(id), owner.ID)
	f.save(&session.Changes{Grants: []*capability.Grant{space, owner, child}}, id)
	for want, w := range map[*session.ReadSet][]string{
		{Lineages: []string{ids["a11"]}}:                              {ids["a11"], ids["a1"], ids["a"], ids["root"]},
		{Lineages: []string{ids["root"]}}:                             {ids["root"]},
		{Lineages: []string{ids["a2"], ids["b"]}}:                     {ids["a2"], ids["a"], ids["b"], ids["root"]},
		{Lineages: []string{child.ID}}:                                {child.ID, owner.ID, space.ID},
		{Lineages: []string{newRef(id)}}:                              {},
		{Lineages: []string{ids["a"]}, Grants: []string{ids["root"]}}: {ids["a"], ids["root"]},
	} {
		rows := f.load(want)
		got, expected := map[string]bool{}, map[string]bool{}
		for ref := range rows.Grants {
			got[ref] = true
		}
		for _, ref := range w {
			expected[ref] = true
		}
		same(f, fmt.Sprintf("lineage of %v", want.Lineages), got, expected)
	}
}

func testInit(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	root := grant(newRef(newSpace()), "")
	root.Created = 0
	for _, want := range []bool{true, false} {
		space, created, err := f.Init(f.ctx, root)
		f.must("init", err)
		if space != root.Target || created != want {
			t.Errorf("space %s, created %v, want %s, %v", space, created, root.Target, want)
		}
	}
	space, created, err := f.Init(f.ctx, grant(newRef(newSpace()), ""))
	f.must("init with another root", err)
	if space != root.Target || created {
		t.Errorf("a later start: space %s, created %v", space, created)
	}
	sight, err := f.ReadAccess(f.ctx, space, []string{root.ID})
	f.must("look", err)
	stored := sight.Grants[root.ID]
	if stored == nil || stored.Created == 0 {
		t.Fatalf("the root's grant: %+v", stored)
	}
	root.Created, root.Rights = stored.Created, root.Rights|capability.Manage // which it has without being stored with it
	same(f, "root", stored, root)
}
