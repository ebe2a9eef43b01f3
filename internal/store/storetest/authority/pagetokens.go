package authority

// Page tokens.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store/storetest/harness"
)

// testPageTokens: a token is found by its ref and hash until it is ended, its time is
// over, or newer ones of the same ref have taken its place.
func testPageTokens(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	ref, other := harness.NewRef(harness.NewSession()), harness.NewRef(harness.NewSpace())
	add := func(ref string, life time.Duration, keep int) capability.PageToken {
		t.Helper()
		token := capability.PageToken{Ref: ref, Hash: harness.Hash(), Origin: "https://pages.example:8443"}
		before := f.Load(&session.ReadSet{}).Now
		var err error
		token.Expires, err = f.AddPageToken(f.Ctx, token, life, keep)
		f.Must("add", err)
		if after := f.Load(&session.ReadSet{}).Now; token.Expires < before+life.Milliseconds() || token.Expires > after+life.Milliseconds() {
			t.Errorf("between %d and %d it is given until %d", before, after, token.Expires)
		}
		return token
	}
	there := func(token capability.PageToken) bool {
		t.Helper()
		got, now, err := f.FindPageToken(f.Ctx, token.Ref, token.Hash)
		if err != nil {
			if !errors.Is(err, fault.NotFound) {
				t.Error(err)
			}
			return false
		}
		if now <= 0 || now >= token.Expires {
			t.Errorf("at %d it is there until %d", now, token.Expires)
		}
		harness.Same(f, "the token", &got, &token)
		return true
	}
	check := func(what string, token capability.PageToken, want bool) {
		t.Helper()
		if there(token) != want {
			t.Errorf("%s: it is there: %v", what, !want)
		}
	}

	first, of := add(ref, 12*time.Hour, 3), add(other, time.Hour, 3)
	check("the first", first, true)
	check("another ref's", of, true)
	check("under another ref", capability.PageToken{Ref: other, Hash: first.Hash}, false)
	check("of another hash", capability.PageToken{Ref: ref, Hash: harness.Hash()}, false)
	if _, err := f.AddPageToken(f.Ctx, first, time.Hour, 3); err == nil {
		t.Error("a token is given twice")
	}

	f.Must("drop", f.DropPageToken(f.Ctx, other, first.Hash))
	check("when another ref's was ended", first, true)
	f.Must("drop", f.DropPageToken(f.Ctx, ref, first.Hash))
	check("when it was ended", first, false)
	f.Must("drop again", f.DropPageToken(f.Ctx, ref, first.Hash))
	check("another ref's, still", of, true)

	over := add(ref, 0, 3)
	check("one without any time", over, false)

	var all []capability.PageToken
	for i := range 5 { // the longer they last, the later they were given
		all = append(all, add(ref, time.Duration(i+1)*time.Hour, 3))
	}
	for i, token := range all {
		check("of five, of which three stay", token, i >= 2)
	}
	check("another ref's, however many there are", of, true)
}

// testCollectPageTokens: what is over goes, and nothing else.
func testCollectPageTokens(t *testing.T, fresh harness.Fresh) {
	f := harness.Begin(t, fresh)
	ref := harness.NewRef(harness.NewSession())
	add := func(life time.Duration) capability.PageToken {
		token := capability.PageToken{Ref: ref, Hash: harness.Hash(), Origin: "http://localhost:7600"}
		_, err := f.AddPageToken(f.Ctx, token, life, 100)
		f.Must("add", err)
		return token
	}
	kept := add(time.Hour)
	for range 5 {
		add(-time.Minute)
	}
	rounds := 0
	for more := true; more; rounds++ {
		var err error
		more, err = f.CollectPageTokens(f.Ctx, 2)
		f.Must("collect", err)
	}
	if rounds != 3 {
		t.Errorf("five, two at a time, take %d rounds", rounds)
	}
	if _, _, err := f.FindPageToken(f.Ctx, kept.Ref, kept.Hash); err != nil {
		t.Errorf("one whose time is not over: %v", err)
	}
	ctx, cancel := context.WithCancel(f.Ctx)
	cancel()
	if _, err := f.CollectPageTokens(ctx, 2); err == nil {
		t.Error("nobody waits, and it is done")
	}
}
