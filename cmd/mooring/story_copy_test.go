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

			said := []string{"outbox_diverged", id, "copy", "use a new outbox"}
			for i := range ahead + 2 { // each sends all that waits again
				r.refusedAs(twin, putLine(fmt.Sprint("b", i)), said, "session", "append", ref, "--wait")
			}
			r.refusedAs(twin, "", said, "outbox", "drain")
			if st := r.statusOf(twin); len(st.Streams) != 1 || st.Streams[0].Stopped != "outbox_diverged" || st.Streams[0].Unfinished != ahead+2 {
				t.Errorf("the copy's status: %+v", st)
			}
			// The original goes on, and what the copy was given gets in through a new outbox.
			r.okAs(home, putLine("last"), "session", "append", ref, "--wait")
			r.okAs(r.otherHome("fresh"), putLine("b0"), "session", "append", ref, "--wait")
			keys := r.keys(id)
			for i := range ahead {
				if count(keys, fmt.Sprint("a", i)) != 1 {
					t.Errorf("op a%d is not there once", i)
				}
			}
			if count(keys, "common") != 1 || count(keys, "last") != 1 || count(keys, "b0") != 1 || len(keys) != 3+ahead+3 {
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
	for i := range 2 { // waits in both
		r.okAs(home, putLine(fmt.Sprint("common", i)), "session", "append", ref)
	}
	copyFolder(t, twin, home)
	for i := range 3 {
		r.okAs(home, putLine(fmt.Sprint("a", i)), "session", "append", ref)
		r.okAs(twin, putLine(fmt.Sprint("b", i)), "session", "append", ref)
	}
	r.start()
	r.okAs(twin, "", "outbox", "drain")
	r.refusedAs(home, "", []string{"outbox_diverged", "copy", "use a new outbox"}, "outbox", "drain")
	r.okAs(twin, putLine("b3"), "session", "append", ref, "--wait")
	keys := r.keys(id)
	for _, m := range []string{"common0", "common1", "b0", "b1", "b2", "b3"} {
		if count(keys, m) != 1 {
			t.Errorf("op %s is there %d times", m, count(keys, m))
		}
	}
	if len(keys) != 3+6 {
		t.Errorf("the events are of %q", keys)
	}
	// What both had is done, what only the original had still waits there.
	if st := r.statusOf(home); len(st.Streams) != 1 || st.Streams[0].Unfinished != 3 {
		t.Errorf("the original's status: %+v", st)
	}
}
