package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
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

// TestFollowersNoteDeltas: what a follower of a UI message stream finds when it comes is a delta as a whole, each that is
// expected is one by one, and all else is none.
func TestFollowersNoteDeltas(t *testing.T) {
	t.Parallel()
	fs := &followers{}
	f := &follower{of: fs, first: 3, seen: make(chan struct{})}
	fs.all = append(fs.all, f)
	note := f.noteDeltas()
	take := func(line string) {
		t.Helper()
		if err := note(line); err != nil {
			t.Error(err)
		}
	}
	delta := func(n int) string {
		return `data: {"type":"text-delta","id":"text","delta":"` + strings.Repeat("x", n*deltaBytes) + `"}`
	}
	for _, line := range []string{": following", "", `data: {"type":"start","messageId":"turn_1"}`, `data: {"type":"text-start","id":"text"}`, delta(3)} {
		take(line)
	}
	<-f.seen
	fs.expect(&expectation{Events: 2})
	take(delta(1))
	if left := fs.left.Load(); left != 1 {
		t.Errorf("%d are left, not 1", left)
	}
	take(delta(1))
	if last, err := fs.await(t.Context()); err != nil || last != f.times[1] {
		t.Errorf("the last came at %d, %v", last, err)
	}
	if err := note(`data: {"type":"text-delta","id":"text"}`); err == nil {
		t.Error("a delta without a text is taken")
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

// TestFollowersFollowFromAnEvent: who is to have one before it counts as following does not follow with one of before.
func TestFollowersFollowFromAnEvent(t *testing.T) {
	t.Parallel()
	f := &follower{first: 3, seen: make(chan struct{})}
	f.note(2)
	select {
	case <-f.seen:
		t.Error("it follows with event 2")
	default:
	}
	f.note(3)
	<-f.seen
}

// TestStoppedConnection: what comes after the stop is not handed out, however long one waits, and not counted.
func TestStoppedConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fs := &followers{stopped: make(chan struct{})}
		here, there := net.Pipe()
		c := &watchedConn{Conn: here, of: fs, closed: make(chan struct{})}
		read := make(chan error, 2)
		for range 2 { // the second is under way when they are to stop
			if len(read) > 0 {
				fs.stop()
			}
			go func() {
				_, err := c.Read(make([]byte, 8))
				read <- err
			}()
			if _, err := there.Write(make([]byte, 5)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if err := <-read; err != nil || len(read) > 0 || fs.received() != 5 {
			t.Errorf("%v, %d more, %d counted", err, len(read), fs.received())
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-read; !errors.Is(err, net.ErrClosed) || fs.received() != 5 {
			t.Errorf("%v, %d counted", err, fs.received())
		}
	})
}

// TestFigures: the ratio is the median of the rounds' ratios, not that of the medians; what has no counterpart has none.
func TestFigures(t *testing.T) {
	t.Parallel()
	f := compared("p99, ms", "quiet", []float64{10, 20, 60}, []float64{10, 5, 20}, 1, "ratio ≤ 2")
	if f.of != 20 || f.than != 10 || f.ratio != 3 {
		t.Errorf("%+v", f)
	}
	f.line = "some"
	var b strings.Builder
	writeFigures(&b, []figure{f, {line: "some", what: "KB", of: 7.6}})
	for _, line := range []string{"| some | p99, ms | 20.0 | quiet | 10.0 | 3.00 | 1.00, 4.00, 3.00 | ratio ≤ 2 |\n", "| some | KB | 8 | – | – | – | – | – |\n"} {
		if !strings.Contains(b.String(), line) {
			t.Errorf("no %s in\n%s", line, b.String())
		}
	}
}

// TestOldCommit is the one that the Makefile names too.
func TestOldCommit(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "\nOLD     ?= "+oldCommit+"\n") {
		t.Errorf("the Makefile's OLD is not %s", oldCommit)
	}
}

// TestLabels: no two lines of the tables have one name.
func TestLabels(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, c := range cases() {
		if known[c.label()] || c.events%c.batch != 0 {
			t.Errorf("%s twice, or %d events in batches of %d", c.label(), c.events, c.batch)
		}
		known[c.label()] = true
	}
	for _, s := range specials(oldCommit) {
		if known[s.label()] {
			t.Errorf("%s twice", s.label())
		}
		known[s.label()] = true
	}
}
