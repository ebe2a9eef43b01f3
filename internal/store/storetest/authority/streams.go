// Streams: by whom they are opened, and which are idle.

package authority

import (
	"errors"
	"sync"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
	"github.com/mooring-rpc/mooring/ledger"
)

func testOpenStream(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	key := session.StreamKey{Session: harness.NewSession(), Outbox: harness.NewOutbox()}
	secret := harness.Hash()
	want := &ledger.Stream{Session: key.Session, Outbox: key.Outbox, SecretHash: secret, Incarnation: 3}
	for range 2 { // registered by the first, matched by the second
		stream, err := f.OpenStream(f.Ctx, key, secret, 3)
		f.Must("open stream", err)
		harness.Same(f, "stream", stream, want)
	}
	another := harness.Hash()
	for incarnation := uint64(1); incarnation < 3; incarnation++ { // another secret has a stream of its own
		stream, err := f.OpenStream(f.Ctx, key, another, incarnation)
		f.Must("open a stream under an id that is taken", err)
		harness.Same(f, "its own stream", stream, &ledger.Stream{Session: key.Session, Outbox: session.FallbackStream(key, another).Outbox, SecretHash: another, Incarnation: incarnation})
	}
	own := session.FallbackStream(key, another)
	stream, err := f.OpenStream(f.Ctx, own, another, 2)
	f.Must("open it by the id of the stream", err)
	harness.Same(f, "its own stream by id", stream, &ledger.Stream{Session: key.Session, Outbox: own.Outbox, SecretHash: another, Incarnation: 2})
	_, err = f.OpenStream(f.Ctx, own, harness.Hash(), 2)
	f.WantCode("a third secret under an id with a mark", err, fault.WrongOutbox)
	_, err = f.OpenStream(f.Ctx, key, secret, 2)
	f.WantCode("an older incarnation", err, fault.Fenced)

	want.LastSeq, want.AckedThrough = 12, 10
	f.Save(&session.Changes{Streams: []*ledger.Stream{want}}, key.Session)
	stream, err = f.OpenStream(f.Ctx, key, secret, 4)
	f.Must("take over", err)
	want.Incarnation = 4
	harness.Same(f, "stream after the takeover", stream, want)
	_, err = f.OpenStream(f.Ctx, key, secret, 3)
	f.WantCode("the one before", err, fault.Fenced)
	harness.Same(f, "stored", f.Load(&session.ReadSet{Streams: []session.StreamKey{key}}).Streams[key], want)

	// Many at once: one secret has the outbox's id, the others streams of their own.
	race := session.StreamKey{Session: harness.NewSession(), Outbox: harness.NewOutbox()}
	secrets := make([][32]byte, 8)
	opened, errs := make([]*ledger.Stream, len(secrets)), make([]error, len(secrets))
	var all sync.WaitGroup
	for i := range secrets {
		secrets[i] = harness.Hash()
		all.Go(func() { opened[i], errs[i] = f.OpenStream(f.Ctx, race, secrets[i], 1) })
	}
	all.Wait()
	stored := f.Load(&session.ReadSet{Streams: []session.StreamKey{race}}).Streams[race]
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

func testFindStreams(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id := harness.NewSession()
	g := harness.Grant(harness.NewRef(id), "")
	f.Save(&session.Changes{Sessions: []*session.Row{harness.LiveRow(id, harness.NewSpace(), 0)}, Grants: []*capability.Grant{g}}, id)
	_, err := f.OpenStream(f.Ctx, session.StreamKey{Session: harness.NewSession(), Outbox: harness.NewOutbox()}, harness.Hash(), 1) // a neighbour's
	f.Must("open stream", err)
	secret, key := harness.Hash(), session.StreamKey{Session: id, Outbox: harness.NewOutbox()}
	for incarnation := range uint64(3) { // 0: it is not open yet
		sight, streams, err := f.FindStreams(f.Ctx, session.CandidateStreams(key, secret), []string{g.ID})
		f.Must("find streams", err)
		stream := streams[key]
		if (stream != nil) != (incarnation > 0) || sight.Row == nil || sight.Grants[g.ID] == nil {
			t.Errorf("found %+v, %+v", stream, sight)
		}
		if stream != nil && (!stream.IsOpenBy(secret, incarnation) || stream.IsOpenBy(secret, incarnation+1) || stream.IsOpenBy(harness.Hash(), incarnation)) {
			t.Errorf("it was opened under incarnation %d, and found as %+v", incarnation, stream)
		}
		opened, err := f.OpenStream(f.Ctx, key, secret, incarnation+1)
		f.Must("open stream", err)
		harness.Same(f, "the stream as opened", opened, &ledger.Stream{Session: id, Outbox: key.Outbox, SecretHash: secret, Incarnation: incarnation + 1})
	}
}

// testDecidedOpening: who decides on an opening sees what is there under the session's lock, and a refusal
// leaves nothing behind.
func testDecidedOpening(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	id, none := harness.NewSession(), harness.NewSession()
	g := harness.Grant(harness.NewRef(id), "")
	f.Save(&session.Changes{Grants: []*capability.Grant{g}}, id)
	secret, refusal := harness.Hash(), fault.MissingRight.With("not this one")
	open := func(key session.StreamKey, decide func(*session.StreamRequest, *session.Access, map[session.StreamKey]*ledger.Stream) error) (*ledger.Stream, error) {
		return f.Store.OpenStream(f.Ctx, session.StreamRequest{Key: key, SecretHash: secret, Incarnation: 1, MaxReadOnlyStreams: 1, Refs: []string{g.ID}, Decide: decide})
	}
	for _, key := range []session.StreamKey{{Session: id, Outbox: harness.NewOutbox()}, {Session: none, Outbox: harness.NewOutbox()}} {
		if _, err := open(key, func(*session.StreamRequest, *session.Access, map[session.StreamKey]*ledger.Stream) error {
			return refusal
		}); err != error(refusal) {
			t.Errorf("refused: %v", err)
		}
		if _, streams, err := f.FindStreams(f.Ctx, []session.StreamKey{key}, nil); err != nil || streams[key] != nil {
			t.Errorf("left behind: %+v, %v", streams, err)
		}
	}
	if sight, err := f.ReadAccess(f.Ctx, none, nil); err != nil || sight.Row != nil {
		t.Errorf("a refused opening made %+v, %v", sight.Row, err)
	}
	key := session.StreamKey{Session: id, Outbox: harness.NewOutbox()}
	for there := range 2 {
		opened, err := open(key, func(o *session.StreamRequest, at *session.Access, streams map[session.StreamKey]*ledger.Stream) error {
			if at.Row == nil || at.Row.ID != id || at.Grants[g.ID] == nil || at.Now == 0 || len(streams) != there {
				t.Errorf("decided on %+v, %+v", at, streams)
			}
			o.ReadOnlyRef = g.ID
			return nil
		})
		f.Must("open", err)
		harness.Same(f, "the stream", opened, &ledger.Stream{Session: id, Outbox: key.Outbox, SecretHash: secret, Incarnation: 1, ReadOnlyRef: g.ID})
	}
}

// testIdleStreams: a ref that can change nothing makes so many streams and no more, until
// some of them are opened under another.
func testIdleStreams(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	ref, other, most := harness.NewRef(harness.NewSession()), harness.NewRef(harness.NewSession()), 3
	open := func(idle string, key session.StreamKey, secret [32]byte) (*ledger.Stream, error) {
		return f.Store.OpenStream(f.Ctx, session.StreamRequest{Key: key, SecretHash: secret, Incarnation: 1, ReadOnlyRef: idle, MaxReadOnlyStreams: most})
	}
	fresher := func() session.StreamKey {
		return session.StreamKey{Session: harness.NewSession(), Outbox: harness.NewOutbox()}
	}
	secret := harness.Hash()
	var keys []session.StreamKey
	for range most { // in whatever session
		keys = append(keys, fresher())
		stream, err := open(ref, keys[len(keys)-1], secret)
		f.Must("open", err)
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
		if st := f.Load(&session.ReadSet{Streams: []session.StreamKey{key}}).Streams[key]; st != nil {
			t.Errorf("%s: made %+v", what, st)
		}
	}
	full("one too many")
	_, err := open(ref, keys[0], harness.Hash())
	if !errors.Is(err, session.ErrReadOnlyStreams) {
		t.Errorf("one too many, under an id that is taken: %v", err)
	}
	_, err = open(ref, keys[0], secret)
	f.Must("what is there", err)
	_, err = open(other, fresher(), secret)
	f.Must("another ref's", err)
	_, err = open("", fresher(), secret)
	f.Must("one that may", err)
	stream, err := open("", keys[0], secret)
	f.Must("one of them under a ref that may", err)
	harness.Same(f, "the stream then", stream, &ledger.Stream{Session: keys[0].Session, Outbox: keys[0].Outbox, SecretHash: secret, Incarnation: 1})
	stream, err = open(ref, keys[0], secret)
	f.Must("and under the first again", err)
	harness.Same(f, "the stream again", stream, &ledger.Stream{Session: keys[0].Session, Outbox: keys[0].Outbox, SecretHash: secret, Incarnation: 1})
	_, err = open(ref, fresher(), secret)
	f.Must("in its place", err)
	full("one too many again")
}
