package faultproxy

// One client's connection and the one to the server that belongs to it.

import (
	"context"
	"errors"
	"io"
	"net"
	"time"
)

const (
	dialTimeout = 5 * time.Second
	// linger is how long a link that was cut gently stays half open, so that no
	// reset overtakes the last bytes.
	linger = time.Second
)

type state int

const (
	open      state = iota
	finishing       // cut gently: nothing more is handed on, the rest is read and dropped
	ended           // both connections are closed
)

// link is guarded by its proxy's mutex, but for the connections, which have
// locks of their own, and server's being set before the pumps start.
type link struct {
	proxy  *Proxy
	state  state
	client *net.TCPConn
	server *net.TCPConn // nil while dialling
	ctx    context.Context
	cancel context.CancelFunc // at finish and reset: ends dialling and delays

	forwarded [2]int64 // bytes handed on, by Direction
}

// accept takes connections until the listener is closed.
func (p *Proxy) accept() {
	for {
		conn, err := p.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // the client went away again before it was taken
		}
		p.admit(conn.(*net.TCPConn))
	}
}

// admit makes a connection a link, or drops it.
func (p *Proxy) admit(client *net.TCPConn) {
	l := &link{proxy: p, client: client}
	l.ctx, l.cancel = context.WithCancel(context.Background())
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stats.Accepted++
	if p.refuse || p.closed {
		p.stats.Refused++
		l.reset()
		return
	}
	p.links[l] = struct{}{}
	target := p.target
	p.goroutines.Go(func() { l.run(target) })
}

// run connects to the server, moves bytes both ways and returns when both have
// ended.
func (l *link) run(target string) {
	p := l.proxy
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.links, l)
		l.close()
	}()
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(l.ctx, "tcp", target)
	p.mu.Lock()
	if err == nil {
		l.server = conn.(*net.TCPConn)
	}
	if err != nil || l.state != open { // no server there, or cut meanwhile
		if l.state == open {
			p.stats.Refused++
		}
		l.reset()
		l.close()
		p.mu.Unlock()
		return
	}
	p.mu.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); l.pump(ToServer, l.client, l.server) }()
	l.pump(ToClient, l.server, l.client)
	<-done
}

// pump moves the bytes of one direction until their source ends or the link is
// cut.
func (l *link) pump(d Direction, src, dst *net.TCPConn) {
	p := l.proxy
	buf := make([]byte, 32<<10)
	for {
		n, err := src.Read(buf)
		if n > 0 {
			l.wait(p.currentDelay())
			pass, spent := p.allow(l, d, n)
			if pass > 0 {
				if _, werr := dst.Write(buf[:pass]); werr != nil {
					err = werr
				}
			}
			if spent != nil {
				p.cutFor(d, spent)
			}
		}
		switch p.after(l, d, err) {
		case goOn:
		case endSource: // the end of one direction is handed on as such
			dst.CloseWrite()
			return
		case drain:
			dst.CloseWrite()
			src.SetReadDeadline(time.Now().Add(linger))
			io.Copy(io.Discard, src)
			return
		case hold: // a black hole swallows the end too
			<-l.ctx.Done()
			return
		case stop:
			return
		}
	}
}

// allow says how many of n bytes that came to hand on, and which fault, if any,
// has run out with them and is to be spent once they are written.
func (p *Proxy) allow(l *link, d Direction, n int) (pass int, spent *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faults[d]
	switch {
	case l.state != open:
		return 0, nil
	case f == nil:
		l.forward(d, int64(n))
		return n, nil
	case f.left < 0:
		k := min(int64(n), max(f.first-l.forwarded[d], 0))
		l.forward(d, k)
		p.stats.Swallowed[d] += int64(n) - k
		return int(k), nil
	case f.left == 0: // another link's last bytes are being written
		return 0, nil
	}
	k := min(int64(n), f.left)
	f.left -= k
	if f.left == 0 {
		spent = f
	}
	if f.discard {
		p.stats.Swallowed[d] += k
		return 0, spent
	}
	l.forward(d, k)
	return int(k), spent
}

// forward counts bytes that are handed on. The proxy's mutex is held.
func (l *link) forward(d Direction, n int64) {
	l.forwarded[d] += n
	l.proxy.stats.Forwarded[d] += n
}

// cutFor cuts all links, unless a cut or another fault came first.
func (p *Proxy) cutFor(d Direction, f *fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.faults[d] == f {
		p.cutLocked(!f.discard)
	}
}

// step is what a pump does next.
type step int

const (
	goOn step = iota
	endSource
	drain
	hold
	stop
)

// after says what follows a read and write that ended with err.
func (p *Proxy) after(l *link, d Direction, err error) step {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.faults[d]
	switch {
	case l.state == finishing:
		return drain
	case l.state == ended:
		return stop
	case err == nil:
		return goOn
	case f != nil && f.discard:
		return hold
	case err == io.EOF:
		return endSource
	default: // a reset is handed on as a reset
		l.reset()
		return stop
	}
}

func (p *Proxy) currentDelay() time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.delay
}

// wait waits for d, or until the link is cut.
func (l *link) wait(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.ctx.Done():
	}
}

// finish wakes the pumps, to end their directions and let the rest drain away.
// While dialling there is nothing to drain. The proxy's mutex is held.
func (l *link) finish() {
	if l.server == nil {
		l.reset()
		return
	}
	l.state = finishing
	l.cancel()
	now := time.Now()
	l.client.SetReadDeadline(now)
	l.server.SetReadDeadline(now)
	l.client.SetWriteDeadline(now.Add(linger))
	l.server.SetWriteDeadline(now.Add(linger))
}

// reset closes both connections so that their peers see a reset. The proxy's
// mutex is held.
func (l *link) reset() {
	l.client.SetLinger(0)
	if l.server != nil {
		l.server.SetLinger(0)
	}
	l.close()
}

// close closes both connections. The proxy's mutex is held, or the link is
// nobody else's.
func (l *link) close() {
	l.state = ended
	l.cancel()
	l.client.Close()
	if l.server != nil {
		l.server.Close()
	}
}
