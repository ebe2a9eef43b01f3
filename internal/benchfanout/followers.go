package main

// The followers, all in one process: when each event reached each of them.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/outbox"
)

// following says who follows what.
type following struct {
	Wire      string   // of which the followers are
	Addresses []string // of servers, to which they are spread
	Refs      []string // of Mooring's sessions, each a topic that all of them follow
	Topics    int      // of a bare server
	Followers int      // each with a connection of its own, or on HTTP with one for each topic
	Dir       string   // of an outbox, which the Go client has to have
	Count     bool     // bytes, which takes more CPU
}

const (
	wireCapnp   = "capnp"
	wireCapnweb = "capnweb"
	wireSSE     = "sse"
	wirePage    = "page"
	wireBare    = "bare"
	wireBareSSE = "bare sse"
)

// expectation is what is to come.
type expectation struct{ Events int } // of each topic

// followers are connected.
type followers struct {
	cancel  context.CancelFunc
	all     []*follower // of one topic each: a connection's are in a row
	ended   chan error  // the first that ended too early
	wg      sync.WaitGroup
	bytes   atomic.Int64
	onClose []func() error

	left atomic.Int64  // events that have not reached a follower
	done chan struct{} // closed when left is 0
}

// follower is one connection's view of one topic.
type follower struct {
	of    *followers
	topic int
	seen  chan struct{} // closed when it follows
	once  sync.Once

	mu    sync.Mutex
	last  uint64  // event that was seen
	base  uint64  // event before the first that is expected
	times []int64 // when those came
}

// begin records that the follower follows.
func (f *follower) begin() { f.once.Do(func() { close(f.seen) }) }

// note records that the events up to number n have come.
func (f *follower) note(n uint64) {
	now := time.Now().UnixNano()
	f.begin()
	f.mu.Lock()
	defer f.mu.Unlock()
	count := 0
	for f.last < n {
		if i := f.last - f.base; i < uint64(len(f.times)) {
			f.times[i], count = now, count+1
		}
		f.last++
	}
	if count > 0 && f.of.left.Add(-int64(count)) == 0 {
		close(f.of.done)
	}
}

// connecting is how many followers connect at a time.
const connecting = 32

// follow connects followers and waits until each has seen an event of each topic.
func follow(ctx context.Context, o *following) (_ *followers, err error) {
	ctx, cancel := context.WithCancel(ctx)
	fs := &followers{cancel: cancel, ended: make(chan error, 1)}
	defer func() {
		if err != nil {
			err = errors.Join(err, fs.close())
		}
	}()
	connect, err := fs.connector(ctx, o)
	if err != nil {
		return nil, err
	}
	slots := make(chan struct{}, connecting)
	var starting sync.WaitGroup
	for n := range o.Followers {
		topics := make([]*follower, max(len(o.Refs), o.Topics))
		for t := range topics {
			topics[t] = &follower{of: fs, topic: t, seen: make(chan struct{})}
		}
		fs.all = append(fs.all, topics...)
		slots <- struct{}{}
		starting.Go(func() {
			defer func() { <-slots }()
			fs.wg.Go(func() {
				if err := connect(ctx, o.Addresses[n%len(o.Addresses)], topics); ctx.Err() == nil {
					select {
					case fs.ended <- fmt.Errorf("follower %d: %w", n, errors.Join(err, io.ErrUnexpectedEOF)):
					default:
					}
					cancel()
				}
			})
			for _, f := range topics {
				select {
				case <-f.seen:
				case <-ctx.Done():
					return
				}
			}
		})
	}
	starting.Wait()
	return fs, fs.failed(ctx)
}

// failed is why a follower ended too early.
func (fs *followers) failed(ctx context.Context) error {
	select {
	case err := <-fs.ended:
		return err
	default:
		return ctx.Err()
	}
}

// expect begins to note when events come. None may be on its way.
func (fs *followers) expect(e *expectation) {
	fs.done = make(chan struct{})
	fs.left.Store(int64(len(fs.all) * e.Events))
	fs.bytes.Store(0)
	for _, f := range fs.all {
		f.mu.Lock()
		f.base, f.times = f.last, make([]int64, e.Events)
		f.mu.Unlock()
	}
}

// await waits until all has come, and returns when the last did.
func (fs *followers) await(ctx context.Context) (last int64, err error) {
	select {
	case <-fs.done:
	case err := <-fs.ended:
		return 0, err
	case <-ctx.Done():
		return 0, ctx.Err()
	}
	for _, f := range fs.all {
		last = max(last, slices.Max(f.times))
	}
	return last, nil
}

func (fs *followers) received() int64 { return fs.bytes.Load() }

// delays returns p50, p99, p99.9 and the longest of the times from commits to followers.
func (fs *followers) delays(commits [][]int64) []int64 {
	var all []int64
	for _, f := range fs.all {
		for i, t := range f.times {
			all = append(all, t-commits[f.topic][i])
		}
	}
	slices.Sort(all)
	var q []int64
	for _, p := range []float64{0.5, 0.99, 0.999, 1} {
		q = append(q, all[min(int(p*float64(len(all))), len(all)-1)])
	}
	return q
}

func (fs *followers) close() error {
	fs.cancel()
	fs.wg.Wait()
	var err error
	for _, f := range slices.Backward(fs.onClose) {
		err = errors.Join(err, f())
	}
	return err
}

// connector returns what connects one follower, and serves it until ctx ends.
func (fs *followers) connector(ctx context.Context, o *following) (func(ctx context.Context, address string, topics []*follower) error, error) {
	dial := new(net.Dialer).DialContext
	if o.Count {
		dial = fs.dialCounting
	}
	transport := &http.Transport{DialContext: dial, DisableCompression: true}
	fs.onClose = append(fs.onClose, func() error { transport.CloseIdleConnections(); return nil })
	web := &http.Client{Transport: transport}
	refs := make([]capability.Ref, len(o.Refs))
	for i, text := range o.Refs {
		var err error
		if refs[i], err = capability.ParseRef(text); err != nil {
			return nil, err
		}
	}
	switch o.Wire {
	case wireCapnp:
		box, err := sqliteclient.Outbox(o.Dir)(ctx, outbox.Config{})
		if err != nil {
			return nil, err
		}
		fs.onClose = append(fs.onClose, box.Close)
		config := client.Config{Outbox: box, Offline: true}
		if o.Count {
			config.DialContext = dial
		}
		return func(ctx context.Context, address string, topics []*follower) error {
			return followCapnp(ctx, config, address, refs, topics)
		}, nil
	case wireCapnweb:
		return func(ctx context.Context, address string, topics []*follower) error {
			return followCapnweb(ctx, web, address, refs, topics)
		}, nil
	case wireBare:
		return func(ctx context.Context, address string, topics []*follower) error {
			return followBare(ctx, web, address, topics)
		}, nil
	}
	var token string
	if o.Wire == wirePage {
		var err error
		if token, err = openPage(ctx, web, o.Addresses[0], refs[0]); err != nil {
			return nil, err
		}
	}
	return func(ctx context.Context, address string, topics []*follower) error {
		var wg sync.WaitGroup
		errs := make([]error, len(topics))
		for t, f := range topics {
			url, header := "http://"+address+"/?topics=1", http.Header{"Accept": {"text/event-stream"}}
			switch o.Wire {
			case wireSSE:
				url = "http://" + address + "/api/v1/sessions/" + refs[t].Target() + "/events?after=0"
				header.Set("Authorization", "Bearer "+refs[t].Text())
			case wirePage:
				url = "http://" + address + "/s/" + refs[t].ID + "/live?after=0"
				header.Set("Mooring-Token", token)
			}
			wg.Go(func() { errs[t] = f.followSSE(ctx, web, url, header) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}, nil
}

// dialCounting counts what is received.
func (fs *followers) dialCounting(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, &fs.bytes}, nil
}

type countedConn struct {
	net.Conn
	received *atomic.Int64
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.received.Add(int64(n))
	return n, err
}

// followCapnp follows with the Go client.
func followCapnp(ctx context.Context, config client.Config, address string, refs []capability.Ref, topics []*follower) (err error) {
	c, err := client.Open(ctx, config)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var wg sync.WaitGroup
	defer wg.Wait()
	ended := make(chan error, len(topics))
	for t, f := range topics {
		ref := refs[t]
		ref.Hosts = []string{address}
		s, err := c.Session(ctx, ref)
		if err != nil {
			return err
		}
		wg.Go(func() {
			ended <- s.Subscribe(ctx, client.SubscribeOptions{}, func(e client.Event) error {
				f.note(e.Cursor)
				return nil
			})
		})
	}
	return <-ended
}

// followCapnweb follows as a browser's program does, in Go.
func followCapnweb(ctx context.Context, web *http.Client, address string, refs []capability.Ref, topics []*follower) error {
	t, err := capnweb.Dial(ctx, "ws://"+address+"/rpc", capnweb.DialOptions{HTTPClient: web})
	if err != nil {
		return err
	}
	conn := capnweb.NewConn(t, capnweb.Config{})
	ended := make(chan error, len(topics)+1)
	defer conn.Close("the benchmark is over")
	go func() { ended <- conn.Run(ctx) }()
	for i, f := range topics {
		answer := conn.Main().Call(ctx, "restore", refs[i].Text()).Call(ctx, "subscribe", map[string]any{"understands": session.AllFeatures.Names()}, capnwebSink{f, ended})
		if _, err := answer.Await(ctx); err != nil {
			return err
		}
	}
	return <-ended
}

// capnwebSink is a follower that is called as a function.
type capnwebSink struct {
	f     *follower
	ended chan<- error
}

// Serve implements capnweb.Object.
func (k capnwebSink) Serve(c *capnweb.Call) {
	call, _ := c.Args()[0].(map[string]any)
	if why := call["ended"]; why != nil {
		k.ended <- fmt.Errorf("ended: %v", why)
	}
	events, _ := call["events"].([]any)
	for _, e := range events {
		switch cursor := e.(map[string]any)["cursor"].(type) {
		case float64:
			k.f.note(uint64(cursor))
		case *big.Int:
			k.f.note(cursor.Uint64())
		}
	}
	c.Return(nil)
}

// followBare follows a bare server.
func followBare(ctx context.Context, web *http.Client, address string, topics []*follower) error {
	c, _, err := websocket.Dial(ctx, "ws://"+address+"/?topics="+strconv.Itoa(len(topics)), &websocket.DialOptions{HTTPClient: web, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = c.CloseNow() })() // cheaper than to give the context to each read
	m := make([]byte, 64<<10)
	for {
		_, r, err := c.Reader(context.Background())
		if err != nil {
			return err
		}
		for n := 0; ; {
			k, err := r.Read(m[n:])
			if n += k; err == io.EOF {
				break
			} else if err != nil {
				return err
			}
		}
		t := binary.BigEndian.Uint32(m)
		if t == ^uint32(0) { // connected: event 0 of each
			for _, f := range topics {
				f.begin()
			}
			continue
		}
		topics[t].note(uint64(binary.BigEndian.Uint32(m[4:])) + 1)
	}
}

// openPage opens a session's page, and returns its token.
func openPage(ctx context.Context, web *http.Client, address string, ref capability.Ref) (string, error) {
	body, err := json.Marshal(map[string]string{"secret": ref.Secret.RevealText()})
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+address+"/s/"+ref.ID+"/open", bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	for name, value := range map[string]string{"Content-Type": "application/json", "X-Mooring": "1", "Sec-Fetch-Site": "same-origin"} {
		req.Header.Set(name, value)
	}
	resp, err := web.Do(req)
	if err != nil {
		return "", err
	}
	var opened struct{ Token string }
	err = errors.Join(json.NewDecoder(resp.Body).Decode(&opened), resp.Body.Close())
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, fmt.Errorf("the page did not open: %s", resp.Status))
	}
	return opened.Token, err
}

// followSSE follows a stream of events; that up to which it is known is in their ids.
func (f *follower) followSSE(ctx context.Context, web *http.Client, url string, header http.Header) (err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	req.Header = header
	resp, err := web.Do(req)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, resp.Body.Close()) }()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 1000))
		return fmt.Errorf("%s: %s", resp.Status, text)
	}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		switch id, ok := strings.CutPrefix(lines.Text(), "id: "); {
		case ok:
			n, err := strconv.ParseUint(id, 10, 64)
			if err != nil {
				return err
			}
			f.note(n)
		case lines.Text() == ": following": // of a bare server, which has no event yet
			f.begin()
		}
	}
	return lines.Err()
}
