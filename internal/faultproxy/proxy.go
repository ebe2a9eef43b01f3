// Package faultproxy is a TCP proxy that breaks links on purpose, to the byte,
// for tests and for the demo.
//
// A test puts it between a client and a server and decides when the links are
// cut, what gets lost and which way. A fault may be set for the moment (Cut) or
// for a byte to come (CutAfter, Blackhole); every fault is over with the cut it
// ends in, and the client may connect again.
//
// It is a small one of our own because the ready-made proxies (toxiproxy, comcast)
// work with probabilities and times, run behind an HTTP interface and cannot
// promise that exactly n bytes of one direction arrived and the rest did not,
// which is what a test of "the server has committed, the ack was lost" needs.
package faultproxy

import (
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// Direction is which way bytes go.
type Direction int

const (
	ToServer Direction = iota // what the client sends
	ToClient                  // what the server sends
)

func (d Direction) String() string {
	if d == ToServer {
		return "to server"
	}
	return "to client"
}

// Stats counts from the proxy's beginning. The pairs are indexed by Direction.
type Stats struct {
	Accepted  int      // connections taken from clients
	Refused   int      // connections dropped at once: Refuse, or no server there
	Cuts      int      // links ended by a fault
	Open      int      // links at this moment
	Forwarded [2]int64 // bytes handed on
	Swallowed [2]int64 // bytes read and thrown away by Blackhole and BlackholeAfter
}

// Proxy listens on a port of its own on 127.0.0.1. Its methods are safe together
// and take effect before they return: what reaches the proxy later is treated by
// the new rule, and after Cut no link of before is open.
type Proxy struct {
	listener   net.Listener
	goroutines sync.WaitGroup // the accept loop and every link's goroutines

	mu     sync.Mutex // guards what follows; held over no read and no dial
	target string
	links  map[*link]struct{} // all whose goroutines run, the cut ones too
	refuse bool
	delay  time.Duration
	closed bool
	faults [2]*fault
	stats  Stats
}

// fault is what is to happen to one direction's bytes.
type fault struct {
	discard bool            // throw the bytes away instead of handing them on
	left    int64           // bytes until the cut; negative: no cut
	first   int64           // without a cut: bytes that every link hands on before it swallows
	waiting []chan struct{} // closed at the cut; also those of the faults it replaced
}

// Listen starts a proxy to the server at target ("127.0.0.1:7600"), which need
// not be there yet.
func Listen(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("fault proxy: %w", err)
	}
	p := &Proxy{listener: l, target: target, links: map[*link]struct{}{}}
	p.goroutines.Go(p.accept)
	return p, nil
}

// Addr returns the address that clients connect to. It stays the same.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// SetTarget sends the connections to come to another server.
func (p *Proxy) SetTarget(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

// Refuse makes the proxy drop new connections at once, or take them again. The
// links that are open stay.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// SetDelay holds every piece of data back for d, both ways, from the next piece
// on. Pieces are not delayed in parallel: it is also a limit of speed.
func (p *Proxy) SetDelay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut breaks all links now, as a lost connection does: both sides see a reset,
// bytes under way are lost. It also ends every fault that was set. It returns
// how many links it cut.
func (p *Proxy) Cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.cutLocked(false)
}

// CutAfter lets n more bytes pass in a direction, counted over all links, and
// cuts all links right after the n-th, or now if n is 0. The n bytes arrive:
// their receiver reads them and then the end of the stream. The channel is
// closed at the cut, also if that comes for another reason. A later CutAfter or
// Blackhole of the same direction takes its place.
func (p *Proxy) CutAfter(d Direction, n int64) <-chan struct{} {
	return p.setFault(d, &fault{left: max(n, 0)})
}

// Blackhole swallows the next n bytes in a direction, counted over all links,
// and then cuts all links. With n of 0 or less it swallows until Cut. Swallowed
// bytes are read, so their sender is never held up. The channel is as CutAfter's.
func (p *Proxy) Blackhole(d Direction, n int64) <-chan struct{} {
	if n <= 0 {
		n = -1
	}
	return p.setFault(d, &fault{discard: true, left: n})
}

// BlackholeAfter swallows until Cut what comes on a link in a direction after the
// first n bytes since it was opened. So the links to come may still get through
// their handshakes. The channel is as CutAfter's.
func (p *Proxy) BlackholeAfter(d Direction, n int64) <-chan struct{} {
	return p.setFault(d, &fault{discard: true, left: -1, first: n})
}

func (p *Proxy) setFault(d Direction, f *fault) <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := make(chan struct{})
	if old := p.faults[d]; old != nil {
		f.waiting = old.waiting
	}
	f.waiting = append(f.waiting, cut)
	p.faults[d] = f
	if f.left == 0 || p.closed {
		p.cutLocked(!f.discard)
	}
	return cut
}

// cutLocked ends all open links, gently or with a reset, and all faults. It
// returns how many links there were.
func (p *Proxy) cutLocked(gently bool) int {
	n := 0
	for l := range p.links {
		if l.state != open {
			continue
		}
		n++
		if gently {
			l.finish()
		} else {
			l.reset()
		}
	}
	p.stats.Cuts += n
	for d, f := range p.faults {
		if f != nil {
			for _, cut := range f.waiting {
				close(cut)
			}
			p.faults[d] = nil
		}
	}
	return n
}

// Stats returns the counters of this moment.
func (p *Proxy) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.stats
	for l := range p.links {
		if l.state == open {
			s.Open++
		}
	}
	return s
}

// Close cuts all links, stops listening and returns when every goroutine of the
// proxy has ended. A second Close does nothing.
func (p *Proxy) Close() error {
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.cutLocked(false)
	for l := range p.links {
		l.reset() // also those that are being let go gently
	}
	p.mu.Unlock()
	var err error
	if first {
		err = p.listener.Close()
	}
	p.goroutines.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
