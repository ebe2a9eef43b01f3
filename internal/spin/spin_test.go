package spin

import (
	"crypto/tls"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"
)

// These tests share what counts all that ask, so none of them is parallel.

func TestRhythm(t *testing.T) {
	const T, H, L = timed, here, late
	repeat := func(o outcome, n int) (all []outcome) {
		for range n {
			all = append(all, o)
		}
		return all
	}
	for name, c := range map[string]struct {
		from  rhythm
		came  []outcome // of the attempts, one after the other
		reads int
		tries int // of so many reads
	}{
		"an answer each time":            {from: rhythm{credit: 1}, came: repeat(T, 100), reads: 100, tries: 100},
		"nothing ever":                   {from: rhythm{credit: 1}, came: repeat(L, 100), reads: 1 + 10*skips, tries: 1 + 10},
		"an attempt pays after all":      {came: append([]outcome{L}, repeat(T, 100)...), reads: 2*skips + 5, tries: 2 + 5},
		"two of three":                   {from: rhythm{credit: 2}, came: []outcome{T, T, L, T, T, L, T, T, L, T, T, L}, reads: 12, tries: 12},
		"one of two is not enough":       {from: rhythm{credit: 4}, came: []outcome{T, L, T, L, T, L, T, L, T, L}, reads: 8 + skips, tries: 8 + 1},
		"a pause after much that was so": {from: rhythm{credit: mostCredit}, came: repeat(L, 10), reads: mostCredit/lateCosts + skips - 1, tries: mostCredit / lateCosts},
		"always here already":            {from: rhythm{credit: mostCredit}, came: repeat(H, 100), reads: mostCredit + skips, tries: mostCredit + 1},
	} {
		t.Run(name, func(t *testing.T) {
			r, tries := c.from, 0
			for range c.reads {
				if r.tries() {
					r.learn(c.came[tries])
					tries++
				}
			}
			if tries != c.tries {
				t.Errorf("%d attempts in %d reads, want %d", tries, c.reads, c.tries)
			}
		})
	}
}

func TestSpin(t *testing.T) {
	for _, network := range []string{"tcp", "unix", "tls"} {
		t.Run(network, func(t *testing.T) {
			ours, theirs := sockets(t, strings.Replace(network, "tls", "tcp", 1))
			w := newWaiter(ours, 1)
			if network == "tls" { // which need not have been spoken yet to be waited for
				w = newWaiter(tls.Server(ours, &tls.Config{}), 1)
			}
			if w == nil {
				t.Fatal("there is nothing to wait with")
			}
			from := time.Now()
			if got := w.spin(); got != late {
				t.Errorf("nothing was said, and spin gave %d", got)
			}
			if took := time.Since(from); took < longest {
				t.Errorf("it gave up after %v", took)
			}
			say(t, theirs)
			if got := await(w); got != here {
				t.Errorf("something was said before, and spin gave %d", got)
			}
			if n, err := ours.Read(make([]byte, 8)); n != 1 || err != nil {
				t.Errorf("the byte is gone: %d, %v", n, err)
			}
			theirs.Close()
			if got := await(w); got != here {
				t.Errorf("the peer is gone, and spin gave %d", got)
			}
			ours.Close()
			if got := w.spin(); got != here {
				t.Errorf("the connection is closed, and spin gave %d", got)
			}
		})
	}
}

// await spins until something is there when it begins.
func await(w *Waiter) outcome {
	got := late
	for deadline := time.Now().Add(10 * time.Second); got != here && time.Now().Before(deadline); {
		got = w.spin()
	}
	return got
}

func TestAnswersInTime(t *testing.T) {
	ours, theirs := sockets(t, "tcp")
	go func() { // an echo
		b := make([]byte, 1)
		for {
			if _, err := theirs.Read(b); err != nil {
				return
			}
			if _, err := theirs.Write(b); err != nil {
				return
			}
		}
	}()
	w := newWaiter(ours, 1)
	b := make([]byte, 1)
	for deadline := time.Now().Add(10 * time.Second); ; {
		say(t, ours)
		got := w.spin()
		if _, err := ours.Read(b); err != nil {
			t.Fatal(err)
		}
		if got == timed {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("an echo never came while it was waited for")
		}
	}
}

func TestWhoIsSilentIsNotAsked(t *testing.T) {
	ours, _ := sockets(t, "tcp")
	w := New(ours)
	if w == nil { // one processor
		w = newWaiter(ours, 1)
	}
	asked, ask := 0, w.ask
	w.ask = func(fd uintptr) bool { asked++; return ask(fd) }
	w.Wait()
	if asked == 0 {
		t.Error("a new connection is not asked at all")
	}
	asked = 0
	for range skips - 1 {
		w.Wait()
	}
	if asked > 0 {
		t.Errorf("a silent connection was asked %d times more", asked)
	}
	if w.Wait(); asked == 0 {
		t.Error("a silent connection is never asked again")
	}
}

func TestFewAskAtOnce(t *testing.T) {
	ours, _ := sockets(t, "tcp")
	w := newWaiter(ours, 1)
	asked := false
	w.ask = func(uintptr) bool { asked = true; return true }
	spinning.Add(1)
	w.Wait()
	spinning.Add(-1)
	if asked {
		t.Error("it asks beside another")
	}
	if w.Wait(); !asked {
		t.Error("it does not ask when the other has done")
	}
	if n := spinning.Load(); n != 0 {
		t.Errorf("%d are asking still", n)
	}
}

func TestNothingToWaitWith(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	ours, _ := sockets(t, "tcp")
	for name, w := range map[string]*Waiter{
		"a pipe in memory": newWaiter(a, 1), "nothing": newWaiter(nil, 1), "one processor": newWaiter(ours, 0),
	} {
		if w != nil {
			t.Errorf("%s has a waiter", name)
		}
		w.Wait() // and it is fine to have none
	}
	if has, should := New(ours) != nil, runtime.GOMAXPROCS(0) > 1; has != should {
		t.Errorf("with %d processors a socket has a waiter: %t", runtime.GOMAXPROCS(0), has)
	}
}

func TestAskingAllocatesNothing(t *testing.T) {
	ours, _ := sockets(t, "tcp")
	w := newWaiter(ours, 1)
	if n := testing.AllocsPerRun(10, func() { w.spin() }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func say(t *testing.T, c net.Conn) {
	t.Helper()
	if _, err := c.Write([]byte{1}); err != nil {
		t.Fatal(err)
	}
}

// sockets gives the two ends of a connection.
func sockets(t *testing.T, network string) (ours, theirs net.Conn) {
	t.Helper()
	address := "127.0.0.1:0"
	if network == "unix" {
		address = filepath.Join(t.TempDir(), "s")
	}
	l, err := net.Listen(network, address)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if theirs, err = net.Dial(network, l.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { theirs.Close() })
	if ours, err = l.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ours.Close() })
	return ours, theirs
}
