// Package slowreader has readers who follow a session and take nothing until they want to, for tests: over every way of
// following that people and plain HTTP have.
package slowreader

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"

	"github.com/coder/websocket"
)

// Target is what is followed: a public share and a session, both of which get events that put {"n": 1, "text": "xxx…"},
// {"n": 2, …} and so on, one each. They may be the same.
type Target struct {
	Host    string // HOST:PORT
	Share   string // public id
	Session string
	Bearer  string // for it
}

// Endpoint is a way of following.
type Endpoint struct {
	Name        string
	LongTimeout bool // who takes nothing may do so for half a minute; else for ten seconds
	Replays     bool // who comes later gets what was there before
	path        func(Target) string
	ws          bool
	kind        kind
}

// kind is what comes.
type kind int

const (
	pages kind = iota // frames of a page
	items             // opencode's arrays
	plain             // the events
)

// Endpoints are all there are.
var Endpoints = []Endpoint{
	{Name: "a page's WebSocket", Replays: true, LongTimeout: true, kind: pages, ws: true, path: func(t Target) string { return "/share/" + t.Share + "/live?after=0" }},
	{Name: "a page's events", Replays: true, LongTimeout: true, kind: pages, path: func(t Target) string { return "/share/" + t.Share + "/live?after=0" }},
	{Name: "opencode's WebSocket", LongTimeout: true, kind: items, ws: true, path: func(t Target) string { return "/ws/" + t.Share }},
	{Name: "the API's events", Replays: true, kind: plain, path: func(t Target) string { return "/api/v1/sessions/" + t.Session + "/events?after=0" }},
}

// Reader is one who follows.
type Reader struct {
	Endpoint Endpoint
	conn     *net.TCPConn
	body     *bufio.Reader
	ws       *websocket.Conn
	stop     func()
}

// Open follows; nothing is read of it.
func (t Target) Open(ctx context.Context, d Endpoint) (*Reader, error) {
	r := &Reader{Endpoint: d}
	transport := &http.Transport{DisableKeepAlives: true, ReadBufferSize: 512, WriteBufferSize: 512, DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
		c, err := new(net.Dialer).DialContext(ctx, network, addr)
		if err == nil {
			r.conn = c.(*net.TCPConn)
			err = r.conn.SetReadBuffer(4 << 10) // what the system takes for who does not read
		}
		return c, err
	}}
	client := &http.Client{Transport: transport}
	if d.ws {
		ws, _, err := websocket.Dial(ctx, "ws://"+t.Host+d.path(t), &websocket.DialOptions{HTTPClient: client, HTTPHeader: http.Header{"Origin": {"http://" + t.Host}}})
		if err != nil {
			return nil, err
		}
		ws.SetReadLimit(-1)
		r.ws, r.stop = ws, func() { _ = ws.CloseNow() }
		return r, nil
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+t.Host+d.path(t), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Authorization", "Bearer "+t.Bearer)
	res, err := client.Do(req)
	if err != nil {
		return nil, err
	}
	r.body, r.stop = bufio.NewReader(res.Body), func() { _ = res.Body.Close() }
	if res.StatusCode != http.StatusOK {
		r.stop()
		return nil, fmt.Errorf("GET %s: %s", d.path(t), res.Status)
	}
	return r, nil
}

// Close ends it.
func (r *Reader) Close() { r.stop() }

// Read reads until the last event has come. The events have to come one after the other, each once.
func (r *Reader) Read(ctx context.Context, first, last int) error {
	n, err := r.read(ctx, first, last)
	if err != nil {
		return fmt.Errorf("%s, after %d of %d: %w", r.Endpoint.Name, n, last, err)
	}
	return nil
}

// ReadAll reads until the stream ends, and returns the last event that has come, and how it has ended.
func (r *Reader) ReadAll(ctx context.Context, first int) (last int, err error) {
	return r.read(ctx, first, math.MaxInt)
}

func (r *Reader) read(ctx context.Context, first, last int) (n int, err error) {
	stop := context.AfterFunc(ctx, r.stop)
	defer stop()
	_ = r.conn.SetReadBuffer(1 << 20)
	cursor, n := 0, first-1
	if r.ws != nil && r.Endpoint.kind == pages {
		r.body = bufio.NewReader(websocket.NetConn(ctx, r.ws, websocket.MessageBinary))
	}
	read := func() error { return r.frame(&cursor, &n) }
	if r.Endpoint.kind == items {
		read = func() error { return r.array(ctx, &n) }
	}
	for n < last && err == nil {
		err = read()
	}
	return n, err
}

// ErrMissed says that something has not come, or twice.
var ErrMissed = errors.New("not each came once")

// countNext counts.
func countNext(n *int, is int) error {
	if *n++; *n != is {
		return fmt.Errorf("%w: %d came where %d was next", ErrMissed, is, *n)
	}
	return nil
}

// array reads what changed, as items.
func (r *Reader) array(ctx context.Context, n *int) error {
	_, text, err := r.ws.Read(ctx)
	if err != nil {
		return err
	}
	var items []struct{ Data struct{ N int } }
	if err := json.Unmarshal(text, &items); err != nil {
		return err
	}
	for _, item := range items {
		if err := countNext(n, item.Data.N); err != nil {
			return err
		}
	}
	return nil
}

// frame reads a line of server-sent events: of a cursor, or of something that happened.
func (r *Reader) frame(cursor, n *int) error {
	line, err := r.body.ReadString('\n')
	if err != nil {
		return err
	}
	id := 0
	if _, err := fmt.Sscanf(line, "id: %d\n", &id); err == nil {
		return countNext(cursor, id)
	}
	data, ok := strings.CutPrefix(line, "data: ")
	if !ok {
		return nil
	}
	var event struct {
		Payload struct{ N int }
		HTML    string
	}
	if err := json.Unmarshal([]byte(data), &event); err != nil {
		return fmt.Errorf("%w: %.100s", err, data)
	}
	switch {
	case r.Endpoint.kind == plain && event.Payload.N > 0:
		return countNext(n, event.Payload.N)
	case r.Endpoint.kind == pages && strings.Contains(event.HTML, "xxxxxxxx"):
		*n++
	}
	return nil
}
