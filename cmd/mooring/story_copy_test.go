//go:build unix

// A home folder that is copied, with the outbox in it, and both are used.

package main

import (
	"fmt"
	"testing"
)

func TestACopiedOutboxStopsAndMixesNothingIn(t *testing.T) {
	t.Parallel()
	// How many ops the original sends before the copy does: the server still has
	// the outcome of the first, and has long forgotten the first of many.
	for _, ahead := range []int{1, 4} {
		t.Run(fmt.Sprintf("%d ahead", ahead), func(t *testing.T) {
			t.Parallel()
			r := newCLI(t, "")
			id := r.create("ses_copied")
			ref := r.shareTo("agent", id, "--rights", "read,append")
			home, twin := r.otherHome("agent"), r.otherHome("twin")
			r.okAs(home, putLine("common"), "session", "append", ref, "--wait")
			copyFolder(t, twin, home)
			for i := range ahead {
				r.okAs(home, putLine(fmt.Sprint("a", i)), "session", "append", ref, "--wait")
			}

			message := []string{"outbox_diverged", id, "copy", "mooring outbox reconcile"}
			r.refusedAs(twin, putLine("b0"), message, "session", "append", ref, "--wait")
			r.refusedAs(twin, manyLines("c", ahead+1), message, "session", "append", ref, "--wait") // b0 goes before them
			r.refusedAs(twin, "", message, "outbox", "drain")
			if st := r.statusOf(twin); len(st.Streams) != 1 || st.Streams[0].Stopped != "outbox_diverged" || st.Streams[0].Unfinished != ahead+2 {
				t.Errorf("the copy's status: %+v", st)
			}
			// The original goes on, and what the copy was given gets in through a stream of its own.
			r.okAs(home, putLine("last"), "session", "append", ref, "--wait")
			r.okAs(twin, "", "outbox", "reconcile", "--yes")
			r.okAs(twin, "", "outbox", "drain")
			r.okAs(home, putLine("lasts"), "session", "append", ref, "--wait")
			keys := r.keys(id)
			eachOnce(t, keys, "a", ahead)
			eachOnce(t, keys, "c", ahead+1)
			if count(keys, "common") != 1 || count(keys, "last") != 1 || count(keys, "b0") != 1 || len(keys) != 3+ahead+4+ahead+1 {
				t.Errorf("the events are of %q", keys)
			}
		})
	}
}

func TestACopyThatComesFirstStopsTheOriginal(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_copied")
	ref := r.shareTo("agent", id, "--rights", "read,append")
	home, twin := r.otherHome("agent"), r.otherHome("twin")
	r.okAs(home, "", "redeem", ref)
	r.stop()
	r.okAs(home, manyLines("common", 2), "session", "append", ref) // waits in both
	copyFolder(t, twin, home)
	r.okAs(home, manyLines("a", 3), "session", "append", ref)
	r.okAs(twin, manyLines("b", 3), "session", "append", ref)
	r.start()
	r.okAs(twin, "", "outbox", "drain")
	r.refusedAs(home, "", []string{"outbox_diverged", "copy", "mooring outbox reconcile"}, "outbox", "drain")
	r.okAs(twin, putLine("b3"), "session", "append", ref, "--wait")
	keys := r.keys(id)
	eachOnce(t, keys, "common", 2)
	eachOnce(t, keys, "b", 4)
	if len(keys) != 3+6 {
		t.Errorf("the events are of %q", keys)
	}
	// What both had is done, what only the original had still waits there.
	if st := r.statusOf(home); len(st.Streams) != 1 || st.Streams[0].Unfinished != 3 {
		t.Errorf("the original's status: %+v", st)
	}
}
