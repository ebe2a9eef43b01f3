package main

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"
)

// TestMain is the program itself in a child that a test has started.
func TestMain(m *testing.M) {
	if os.Getenv(envChild) == "" {
		os.Exit(m.Run())
	}
	if err := runChild(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// TestFollowersNoteEvents: each that is expected once, whether they come one by one or together.
func TestFollowersNoteEvents(t *testing.T) {
	t.Parallel()
	fs := &followers{}
	for topic := range 2 {
		f := &follower{of: fs, topic: topic, seen: make(chan struct{})}
		fs.all = append(fs.all, f)
		f.note(3) // of before
		<-f.seen
	}
	fs.expect(&expectation{Events: 3})
	commits := make([][]int64, 2)
	for i, f := range fs.all {
		f.note(4)
		f.note(4)
		commits[i] = []int64{f.times[0] - 1000, f.times[0] - 2000, f.times[0] - 3000}
		f.note(6)
		if f.times[1] == 0 || f.times[1] != f.times[2] {
			t.Errorf("times %v", f.times)
		}
	}
	if last, err := fs.await(t.Context()); err != nil || last != fs.all[1].times[2] {
		t.Errorf("the last came at %d, %v", last, err)
	}
	if q := fs.delays(commits); q[0] < 1000 || q[3] < 3000 || q[3] < q[0] {
		t.Errorf("delays %v", q)
	}
}

func TestSinceFirst(t *testing.T) {
	t.Parallel()
	if got, want := sinceFirst([][]int64{{105, 110}, {100, 130}}), [][]int64{{5, 10}, {0, 30}}; !reflect.DeepEqual(got, want) {
		t.Errorf("%v, not %v", got, want)
	}
}

// TestWrongArguments are refused in a line that says what is wrong.
func TestWrongArguments(t *testing.T) {
	t.Setenv(envURL, "")
	for args, want := range map[string]string{"--rounds 0": "--rounds", "--db mysql": "mysql", "--db sqlite --only (": "--only", "sqlite": `"sqlite"`, "--db both": envURL} {
		if _, err := parse(strings.Fields(args), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", args, err)
		}
	}
}

// TestLabels: no two lines of the table have one name.
func TestLabels(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, c := range cases() {
		if known[c.label()] || c.events%c.batch != 0 {
			t.Errorf("%s twice, or %d events in batches of %d", c.label(), c.events, c.batch)
		}
		known[c.label()] = true
	}
}
