package storetest

// Page tokens.

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// testPageTokens: a token is found by its ref and hash until it is ended, its time is
// over, or newer ones of the same ref have taken its place.
func testPageTokens(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	ref, other := newRef(newSession()), newRef(newSpace())
	add := func(ref string, life time.Duration, keep int) capability.PageToken {
		t.Helper()
		token := capability.PageToken{Ref: ref, Hash: hash(), Origin: "https://pages.example:8443"}
		before := f.load(&session.ReadSet{}).Now
		var err error
		token.Expires, err = f.AddPageToken(f.ctx, token, life, keep)
		f.must("add", err)
		if after := f.load(&session.ReadSet{}).Now; token.Expires < before+life.Milliseconds() || token.Expires > after+life.Milliseconds() {
			t.Errorf("between %d and %d it is given until %d", before, after, token.Expires)
		}
		return token
	}
	there := func(token capability.PageToken) bool {
		t.Helper()
		got, now, err := f.FindPageToken(f.ctx, token.Ref, token.Hash)
		if err != nil {
			if !errors.Is(err, fault.NotFound) {
				t.Error(err)
			}
			return false
		}
		if now <= 0 || now >= token.Expires {
			t.Errorf("at %d it is there until %d", now, token.Expires)
		}
		same(f, "the token", &got, &token)
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
	check("of another hash", capability.PageToken{Ref: ref, Hash: hash()}, false)
	if _, err := f.AddPageToken(f.ctx, first, time.Hour, 3); err == nil {
		t.Error("a token is given twice")
	}

	f.must("drop", f.DropPageToken(f.ctx, other, first.Hash))
	check("when another ref's was ended", first, true)
	f.must("drop", f.DropPageToken(f.ctx, ref, first.Hash))
	check("when it was ended", first, false)
	f.must("drop again", f.DropPageToken(f.ctx, ref, first.Hash))
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
func testCollectPageTokens(t *testing.T, fresh Fresh) {
	f := begin(t, fresh)
	ref := newRef(newSession())
	add := func(life time.Duration) capability.PageToken {
		token := capability.PageToken{Ref: ref, Hash: hash(), Origin: "http://localhost:7600"}
		_, err := f.AddPageToken(f.ctx, token, life, 100)
		f.must("add", err)
		return token
	}
	kept := add(time.Hour)
	for range 5 {
		add(-time.Minute)
	}
	rounds := 0
	for more := true; more; rounds++ {
		var err error
		more, err = f.CollectPageTokens(f.ctx, 2)
		f.must("collect", err)
	}
	if rounds != 3 {
		t.Errorf("five, two at a time, take %d rounds", rounds)
	}
	if _, _, err := f.FindPageToken(f.ctx, kept.Ref, kept.Hash); err != nil {
		t.Errorf("one whose time is not over: %v", err)
	}
	ctx, cancel := context.WithCancel(f.ctx)
	cancel()
	if _, err := f.CollectPageTokens(ctx, 2); err == nil {
		t.Error("nobody waits, and it is done")
	}
}
