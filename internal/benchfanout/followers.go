package main

// How followers follow: on each wire, and on the bare servers.

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
	"strconv"
	"strings"
	"sync"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/aisdk"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/outbox"
)

const (
	wireCapnp   = "capnp"
	wireCapnweb = "capnweb"
	wireSSE     = "sse"
	wirePage    = "page"
	wireAISDK   = "ai-sdk"
	wireBare    = "bare"
	wireBareSSE = "bare sse"
)

// connector returns what connects one follower, and serves it until ctx ends.
func (fs *followers) connector(ctx context.Context, o *following) (func(ctx context.Context, address string, topics []*follower) error, error) {
	dial := new(net.Dialer).DialContext
	if o.Count || o.Stops {
		dial = fs.dialWatched
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
		if o.Count || o.Stops {
			config.DialContext = dial
		}
		return func(ctx context.Context, address string, topics []*follower) error {
			return followCapnp(ctx, config, address, refs, topics, o.FromEnd)
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
			url, header, handle := "http://"+address+"/?topics=1", http.Header{"Accept": {"text/event-stream"}}, f.noteEvents
			switch o.Wire {
			case wireSSE:
				after := uint64(0)
				if o.FromEnd {
					after = f.first - 1
				}
				url = "http://" + address + "/api/v1/sessions/" + refs[t].Target() + "/events?after=" + strconv.FormatUint(after, 10)
				header.Set("Authorization", "Bearer "+refs[t].Text())
			case wirePage:
				url = "http://" + address + "/s/" + refs[t].ID + "/live?after=0"
				header.Set("Mooring-Token", token)
			case wireAISDK:
				url, handle = "http://"+address+aisdk.Chat+"/"+refs[t].Target()+"/stream", f.noteDeltas()
				header.Set("Authorization", "Bearer "+refs[t].Text())
			}
			wg.Go(func() { errs[t] = followSSE(ctx, web, url, header, handle) })
		}
		wg.Wait()
		return errors.Join(errs...)
	}, nil
}

// dialWatched counts what is received, until it is to be received no more.
func (fs *followers) dialWatched(ctx context.Context, network, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: conn, of: fs, closed: make(chan struct{})}, nil
}

type watchedConn struct {
	net.Conn
	of     *followers
	once   sync.Once
	closed chan struct{}
}

func (c *watchedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	select {
	case <-c.of.stopped:
		<-c.closed
		return 0, net.ErrClosed
	default:
	}
	c.of.bytes.Add(int64(n))
	return n, err
}

func (c *watchedConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

// followCapnp follows with the Go client.
func followCapnp(ctx context.Context, config client.Config, address string, refs []capability.Ref, topics []*follower, fromEnd bool) (err error) {
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
		options := client.SubscribeOptions{}
		if fromEnd {
			options.After = f.first - 1
		}
		wg.Go(func() {
			ended <- s.Subscribe(ctx, options, func(e client.Event) error {
				if fromEnd && e.Cursor < f.first {
					return fmt.Errorf("event %d came, which is before the end", e.Cursor)
				}
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

// followSSE has the lines of a stream of server-sent events handled.
func followSSE(ctx context.Context, web *http.Client, url string, header http.Header, handle func(line string) error) (err error) {
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
		if err := handle(lines.Text()); err != nil {
			return err
		}
	}
	return lines.Err()
}

// noteEvents handles a stream of events; that up to which it is known is in their ids.
func (f *follower) noteEvents(line string) error {
	switch id, ok := strings.CutPrefix(line, "id: "); {
	case ok:
		n, err := strconv.ParseUint(id, 10, 64)
		if err != nil {
			return err
		}
		f.note(n)
	case line == ": following": // of a bare server, which has no event yet
		f.begin()
	}
	return nil
}

// noteDeltas handles a UI message stream, whose only text grows by deltaBytes with each event: its chunks have no number, and
// what a follower finds when it comes is a delta as a whole.
func (f *follower) noteDeltas() func(line string) error {
	length := 0
	return func(line string) error {
		chunk, ok := strings.CutPrefix(line, `data: {"type":"text-delta",`)
		if !ok {
			return nil
		}
		_, text, _ := strings.Cut(chunk, `"delta":"`)
		if text, ok = strings.CutSuffix(text, `"}`); !ok {
			return fmt.Errorf("a delta without its text: %s", line)
		}
		length += len(text)
		f.note(uint64(length / deltaBytes))
		return nil
	}
}
