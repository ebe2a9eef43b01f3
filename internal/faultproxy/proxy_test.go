package faultproxy

// Every fault, over real sockets, from both ends of the link.

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = time.Minute

// rig is a proxy with a server behind it whose connections the test holds.
type rig struct {
	*Proxy
	t        *testing.T
	listener net.Listener
}

func newRig(t *testing.T) *rig {
	t.Helper()
	l := listen(t)
	p, err := Listen(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return &rig{Proxy: p, t: t, listener: l}
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

// connect returns both ends of a new link.
func (r *rig) connect() (client, server *net.TCPConn) {
	r.t.Helper()
	client = dial(r.t, r.Addr())
	return client, accept(r.t, r.listener)
}

func dial(t *testing.T, addr string) *net.TCPConn {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	return ready(t, conn, err)
}

func accept(t *testing.T, l net.Listener) *net.TCPConn {
	t.Helper()
	l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
	conn, err := l.Accept()
	return ready(t, conn, err)
}

func ready(t *testing.T, conn net.Conn, err error) *net.TCPConn {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { conn.Close() })
	return conn.(*net.TCPConn)
}

// pass writes text at one end and reads it at the other.
func pass(t *testing.T, from, to net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(from, text); err != nil {
		t.Fatalf("write %q: %v", text, err)
	}
	got := make([]byte, len(text))
	if _, err := io.ReadFull(to, got); err != nil || string(got) != text {
		t.Fatalf("read %q, %v; want %q", got, err, text)
	}
}

// broken fails the test unless reading ends, in time and without any data.
func broken(t *testing.T, who string, conn net.Conn) {
	t.Helper()
	n, err := conn.Read(make([]byte, 1))
	var timeout net.Error
	if n != 0 || err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Errorf("%s read %d bytes, %v; want a broken link", who, n, err)
	}
}

func closed(t *testing.T, cut <-chan struct{}) {
	t.Helper()
	select {
	case <-cut:
	case <-time.After(patience):
		t.Fatal("the cut is not told")
	}
}

// dropped fails the test unless the proxy ends a new connection at once. The
// client may notice while it is still connecting.
func dropped(t *testing.T, addr string) {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, patience)
	if err == nil {
		broken(t, "dropped client", ready(t, conn, nil))
	}
}

// until polls for a state that has no event of its own.
func (r *rig) until(what string, cond func(Stats) bool) {
	r.t.Helper()
	deadline := time.Now().Add(patience)
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for !cond(r.Stats()) {
		if time.Now().After(deadline) {
			r.t.Fatalf("not in time: %s; %+v", what, r.Stats())
		}
		<-tick.C
	}
}

func TestForwardsEveryByteBothWays(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server := r.connect()
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	for _, way := range []struct {
		d        Direction
		from, to *net.TCPConn
	}{{ToServer, client, server}, {ToClient, server, client}} {
		sent := make(chan error, 1)
		go func() {
			_, err := way.from.Write(want)
			sent <- errors.Join(err, way.from.CloseWrite())
		}()
		// Reading to the end also shows that the half close is handed on alone.
		got, err := io.ReadAll(way.to)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%s: %d bytes, %v; want %d", way.d, len(got), err, len(want))
		}
		if err := <-sent; err != nil {
			t.Fatal(err)
		}
		if n := r.Stats().Forwarded[way.d]; n != int64(len(want)) {
			t.Errorf("%s: counted %d bytes, want %d", way.d, n, len(want))
		}
	}
	r.until("the link is over", func(s Stats) bool { return s.Open == 0 })
	if s := r.Stats(); s.Accepted != 1 || s.Cuts != 0 || s.Refused != 0 {
		t.Errorf("counters: %+v", s)
	}
}

func TestCutBreaksAllLinksAndNewOnesWork(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c1, s1 := r.connect()
	c2, s2 := r.connect()
	pass(t, c1, s1, "one")
	pass(t, s2, c2, "two")
	if n := r.Cut(); n != 2 {
		t.Errorf("cut %d links, want 2", n)
	}
	for who, conn := range map[string]net.Conn{"client 1": c1, "server 1": s1, "client 2": c2, "server 2": s2} {
		broken(t, who, conn)
	}
	if s := r.Stats(); s.Open != 0 || s.Cuts != 2 {
		t.Errorf("counters: %+v", s)
	}
	if n := r.Cut(); n != 0 {
		t.Errorf("a second cut cut %d links", n)
	}
	c3, s3 := r.connect()
	pass(t, c3, s3, "three")
}

func TestCutAfterIsExactToTheByte(t *testing.T) {
	t.Parallel()
	for _, d := range []Direction{ToServer, ToClient} {
		for _, n := range []int{0, 1, 7, 100_000} {
			t.Run(fmt.Sprintf("%s/%d", d, n), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				client, server := r.connect()
				from, to := client, server
				if d == ToClient {
					from, to = server, client
				}
				pass(t, client, server, "before")
				pass(t, server, client, "before")
				cut := r.CutAfter(d, int64(n))
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					from.Write(bytes.Repeat([]byte("x"), n+1000)) // fails or not, as it comes
				}()
				got, err := io.ReadAll(to)
				if len(got) != n || err != nil {
					t.Errorf("%d bytes arrived, %v; want %d and the end", len(got), err, n)
				}
				closed(t, cut)
				<-sent
				to.Close()
				broken(t, "sender", from)
				c, s := r.connect()
				pass(t, c, s, "after")
				if s := r.Stats(); s.Cuts != 1 || s.Forwarded[d] != int64(n+len("before"))+after(d) {
					t.Errorf("counters: %+v", s)
				}
			})
		}
	}
}

// after is how much the last exchange of the test above adds to a direction.
func after(d Direction) int64 {
	if d == ToServer {
		return int64(len("after"))
	}
	return 0
}

func TestCutAfterCountsOverPiecesAndLinks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c1, s1 := r.connect()
	c2, s2 := r.connect()
	cut := r.CutAfter(ToServer, 10)
	pass(t, c1, s1, "1234")
	pass(t, s1, c1, "the other way does not count")
	pass(t, c2, s2, "56789")
	select {
	case <-cut:
		t.Fatal("cut after 9 bytes")
	default:
	}
	pass(t, c1, s1, "0")
	closed(t, cut)
	broken(t, "client 1", c1)
	broken(t, "client 2", c2)
	broken(t, "server 2", s2)
}

func TestBlackholeSwallowsAcksThenCuts(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server := r.connect()
	pass(t, client, server, "request 1")
	pass(t, server, client, "ack 1")
	cut := r.Blackhole(ToClient, int64(len("ack 2")))
	pass(t, client, server, "request 2")
	if _, err := io.WriteString(server, "ack 2"); err != nil {
		t.Fatal(err)
	}
	closed(t, cut)
	broken(t, "client", client)
	broken(t, "server", server)
	if s := r.Stats(); s.Swallowed != [2]int64{ToClient: 5} || s.Cuts != 1 {
		t.Errorf("counters: %+v", s)
	}
	client, server = r.connect()
	pass(t, server, client, "not swallowed any more")
}

func TestBlackholeAfterLetsEveryLinkBegin(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	c1, s1 := r.connect()
	pass(t, s1, c1, "handshake, ack")
	cut := r.BlackholeAfter(ToClient, int64(len("handshake")))
	c2, s2 := r.connect()
	pass(t, c1, s1, "the other way")
	for _, write := range []struct {
		to   *net.TCPConn
		text string
	}{{s1, " lost"}, {s2, "hand"}, {s2, "shake, lost"}} {
		if _, err := io.WriteString(write.to, write.text); err != nil {
			t.Fatal(err)
		}
	}
	got := make([]byte, len("handshake"))
	if _, err := io.ReadFull(c2, got); err != nil || string(got) != "handshake" {
		t.Errorf("the new link handed on %q, %v", got, err)
	}
	r.until("the rest is swallowed", func(s Stats) bool { return s.Swallowed[ToClient] == int64(len(" lost")+len(", lost")) })
	if n := r.Cut(); n != 2 {
		t.Errorf("cut %d links, want 2", n)
	}
	closed(t, cut)
	broken(t, "client 1", c1)
	broken(t, "client 2", c2)
	client, server := r.connect()
	pass(t, server, client, "not swallowed any more")
}

func TestBlackholeHidesTheServersEndUntilCut(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server := r.connect()
	cut := r.Blackhole(ToClient, 0)
	if _, err := io.WriteString(server, "lost"); err != nil {
		t.Fatal(err)
	}
	server.Close()
	r.until("the bytes are swallowed", func(s Stats) bool { return s.Swallowed[ToClient] == 4 })
	client.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
	var timeout net.Error
	if _, err := client.Read(make([]byte, 1)); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("the client sees %v though nothing comes through", err)
	}
	client.SetReadDeadline(time.Now().Add(patience))
	if n := r.Cut(); n != 1 {
		t.Errorf("cut %d links, want 1", n)
	}
	closed(t, cut)
	broken(t, "client", client)
}

func TestALaterFaultTakesTheEarlierOnesPlace(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server := r.connect()
	first := r.CutAfter(ToServer, 1)
	second := r.Blackhole(ToServer, 3)
	if _, err := io.WriteString(client, "abc"); err != nil {
		t.Fatal(err)
	}
	closed(t, first)
	closed(t, second)
	broken(t, "server", server)
	if s := r.Stats(); s.Swallowed[ToServer] != 3 || s.Forwarded[ToServer] != 0 {
		t.Errorf("counters: %+v", s)
	}
}

func TestRefuseKeepsOpenLinks(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server := r.connect()
	r.Refuse(true)
	dropped(t, r.Addr())
	pass(t, client, server, "still open")
	r.Refuse(false)
	c, s := r.connect()
	pass(t, c, s, "welcome")
	if got := r.Stats(); got.Refused != 1 || got.Accepted != 3 || got.Open != 2 {
		t.Errorf("counters: %+v", got)
	}
}

func TestTargetMayGoAwayAndChange(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.listener.Close()
	dropped(t, r.Addr())
	r.until("the refusal is counted", func(s Stats) bool { return s.Refused == 1 })
	other := listen(t)
	r.SetTarget(other.Addr().String())
	client := dial(t, r.Addr())
	pass(t, client, accept(t, other), "at the new place")
}

func TestDelayHoldsBackAndCutDoesNotWaitForIt(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server := r.connect()
	const delay = 50 * time.Millisecond
	r.SetDelay(delay)
	began := time.Now()
	pass(t, client, server, "slow")
	if took := time.Since(began); took < delay {
		t.Errorf("arrived after %v, want at least %v", took, delay)
	}
	r.SetDelay(time.Hour)
	if _, err := io.WriteString(client, "never"); err != nil {
		t.Fatal(err)
	}
	r.Cut()
	broken(t, "server", server)
	// Close, in the cleanup, shows that nothing waits for the hour to pass.
}

func TestAResetIsHandedOn(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server := r.connect()
	pass(t, client, server, "hello")
	client.SetLinger(0)
	client.Close()
	if _, err := server.Read(make([]byte, 1)); err == nil || err == io.EOF {
		t.Errorf("the server sees %v, want a reset", err)
	}
	if s := r.Stats(); s.Cuts != 0 {
		t.Errorf("a client's own reset was counted as a cut: %+v", s)
	}
}

func TestCloseEndsWhatLingers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	client, server := r.connect()
	pass(t, client, server, "hello")
	closed(t, r.CutAfter(ToServer, 0)) // both ends stay open: the link lingers
	began := time.Now()
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); took > linger/2 {
		t.Errorf("close took %v", took)
	}
	if err := r.Close(); err != nil {
		t.Errorf("second close: %v", err)
	}
	closed(t, r.CutAfter(ToServer, 5)) // of a closed proxy: at once
}
