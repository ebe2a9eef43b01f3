package main

// The servers: Mooring, as the command wires it, and bare ones that send the same bytes to everybody.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/aisdk"
	"github.com/mooring-rpc/mooring/internal/httpapi"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/server/operator"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
	"github.com/mooring-rpc/mooring/internal/web"
)

// serving says which server a child is to be.
type serving struct {
	Kind string // mooring, bare (WebSocket) or bareSSE
	Dir  string // of Mooring's data
	URL  string // of its Postgres; "" for SQLite
	// Waits has Mooring wait a minute for a peer that reads nothing and answers no ping, not some seconds, so that however
	// slow the machine is what such a peer costs is measured before it is gone.
	Waits bool
}

const (
	kindMooring = "mooring"
	kindBare    = "bare"
	kindBareSSE = "bareSSE"
)

// server is a server in this process.
type server interface {
	where() (address, owner string)
	close() error
}

func serve(ctx context.Context, s *serving) (server, error) {
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	if s.Kind == kindMooring {
		return serveMooring(ctx, ln, s)
	}
	return serveBare(ln, s.Kind == kindBareSSE), nil
}

// mooringServer is Mooring with all its doors.
type mooringServer struct {
	address, owner string
	stop           func() error

	mu      sync.Mutex
	commits map[string][]int64 // by session
	order   []string           // sessions, as they came
}

// unlimited is a limit that no case reaches.
const unlimited = 1 << 20

func serveMooring(ctx context.Context, ln net.Listener, how *serving) (_ *mooringServer, err error) {
	dir, url := how.Dir, how.URL
	s := &mooringServer{address: ln.Addr().String(), commits: map[string][]int64{}}
	cfg := node.DefaultConfig()
	cfg.Connections, cfg.ConnectionsPerAddress, cfg.Subscriptions, cfg.ObserveCommit = unlimited, unlimited, unlimited, s.committed
	cfg.Session.Lease = time.Hour // a turn may rest between rounds
	if how.Waits {
		cfg.RPC.PingTimeout, cfg.RPC.WriteTimeout = time.Minute, time.Minute
	}
	var st *store.Store
	if url == "" {
		st, err = sqlite.Open(ctx, sqlite.Config{Dir: dir})
		cfg.SoleServer, cfg.PollInterval, cfg.Transactions = true, 0, 1
	} else if err = os.MkdirAll(dir, 0o700); err == nil {
		st, err = postgres.Open(ctx, postgres.Config{URL: url, Wait: true})
	}
	if err != nil {
		return nil, errors.Join(err, ln.Close())
	}
	cfg.Store = st
	address := capability.Ref{Hosts: []string{s.address}}
	if _, err := operator.Bootstrap(ctx, st, dir, address, url == ""); err != nil {
		return nil, errors.Join(err, ln.Close(), st.Close())
	}
	if owner, err := os.ReadFile(filepath.Join(dir, operator.OwnerFile)); err == nil { // a second replica has none
		s.owner = strings.TrimSpace(string(owner))
	}
	n := node.New(cfg)
	api := httpapi.Config{Server: n, Address: address, BodyBytes: 2 * cfg.RPC.MessageBytes, Timeout: cfg.BatchTimeout, StallTimeout: cfg.RPC.WriteTimeout}
	n.Mount(httpapi.Path, httpapi.New(api))
	n.Mount(aisdk.Path, aisdk.New(api))
	web.New(web.Config{Hosts: address.Hosts}, n, st, nil).Mount()
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan error, 1)
	go func() { ended <- n.Run(running, ln) }()
	s.stop = func() error {
		end()
		return errors.Join(<-ended, st.Close())
	}
	return s, nil
}

func (s *mooringServer) where() (address, owner string) { return s.address, s.owner }

func (s *mooringServer) close() error { return s.stop() }

// committed is node.Config.ObserveCommit.
func (s *mooringServer) committed(session string, first, last uint64) {
	now := time.Now().UnixNano()
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.commits[session]; !known {
		s.order = append(s.order, session)
	}
	for range last - first + 1 {
		s.commits[session] = append(s.commits[session], now)
	}
}

// takeCommits returns when the events of each session were committed since it was called last.
func (s *mooringServer) takeCommits() [][]int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([][]int64, 0, len(s.order))
	for _, id := range s.order {
		all = append(all, s.commits[id])
		s.commits[id] = nil
	}
	return all
}

// publication is what a bare server publishes.
type publication struct {
	Times [][]int64 // of each topic's events, ns after the first of all
	Bytes int       // of each event
}

// bareServer sends what is published to everybody who follows its topic, each with a goroutine of its own, one event
// after the other: a WebSocket message, or an SSE frame, for each.
type bareServer struct{ *bare }

type bare struct {
	http *http.Server
	ln   net.Listener

	mu     sync.Mutex
	grown  *sync.Cond
	topics map[int][][]byte // messages, ready to be sent
	ended  bool
}

func serveBare(ln net.Listener, sse bool) bareServer {
	b := &bare{ln: ln, topics: map[int][][]byte{}}
	b.grown = sync.NewCond(&b.mu)
	follow := b.followSocket
	if sse {
		follow = b.followSSE
	}
	b.http = &http.Server{Handler: http.HandlerFunc(follow)}
	go func() { _ = b.http.Serve(ln) }() // it ends when it is closed
	return bareServer{b}
}

func (b *bare) where() (address, owner string) { return b.ln.Addr().String(), "" }

func (b *bare) close() error {
	b.mu.Lock()
	b.ended = true
	b.mu.Unlock()
	b.grown.Broadcast()
	return b.http.Close()
}

// publish publishes events at their times, and returns when it did.
func (b bareServer) publish(p *publication) [][]int64 {
	start := time.Now()
	done := make([][]int64, len(p.Times))
	at := make([]int, len(p.Times))
	for {
		next := -1 // the topic whose event is next
		for t, times := range p.Times {
			if at[t] < len(times) && (next < 0 || times[at[t]] < p.Times[next][at[next]]) {
				next = t
			}
		}
		if next < 0 {
			return done
		}
		if wait := time.Duration(p.Times[next][at[next]]) - time.Since(start); wait > 0 {
			time.Sleep(wait)
		}
		message := make([]byte, p.Bytes)
		for i := range message {
			message[i] = 'a' + byte(i%26)
		}
		b.mu.Lock()
		binary.BigEndian.PutUint32(message, uint32(next))
		binary.BigEndian.PutUint32(message[4:], uint32(len(b.topics[next])))
		done[next] = append(done[next], time.Now().UnixNano())
		b.topics[next] = append(b.topics[next], message)
		b.mu.Unlock()
		b.grown.Broadcast()
		at[next]++
	}
}

// next waits for what a follower of topics, who has had so many of each, gets next; ok is false at the end.
func (b *bare) next(had []int) (messages [][]byte, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for {
		for t := range had {
			messages = append(messages, b.topics[t][had[t]:]...)
			had[t] = len(b.topics[t])
		}
		if len(messages) > 0 || b.ended {
			return messages, !b.ended
		}
		b.grown.Wait()
	}
}

// followed is how many topics a request follows, and none of what was published before.
func (b *bare) followed(r *http.Request) ([]int, error) {
	n, err := strconv.Atoi(r.URL.Query().Get("topics"))
	if err != nil || n < 1 {
		return nil, fmt.Errorf("topics: %w", errors.Join(err, strconv.ErrRange))
	}
	had := make([]int, n)
	b.mu.Lock()
	defer b.mu.Unlock()
	for t := range had {
		had[t] = len(b.topics[t])
	}
	return had, nil
}

func (b *bare) followSocket(w http.ResponseWriter, r *http.Request) {
	had, err := b.followed(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return // it has answered
	}
	defer func() { _ = c.CloseNow() }() // the benchmark is over
	c.CloseRead(context.Background())
	first := make([]byte, 8)
	binary.BigEndian.PutUint32(first, ^uint32(0))
	for messages := [][]byte{first}; ; {
		for _, m := range messages {
			if c.Write(context.Background(), websocket.MessageBinary, m) != nil {
				return
			}
		}
		ok := false
		if messages, ok = b.next(had); !ok {
			return
		}
	}
}

func (b *bare) followSSE(w http.ResponseWriter, r *http.Request) {
	had, err := b.followed(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w)
	if _, err := io.WriteString(w, ": following\n\n"); err != nil || flush.Flush() != nil {
		return
	}
	for {
		messages, ok := b.next(had)
		if !ok {
			return
		}
		for _, m := range messages {
			n := binary.BigEndian.Uint32(m[4:])
			if _, err := fmt.Fprintf(w, "id: %d\ndata: %s\n\n", n+1, m[8:]); err != nil || flush.Flush() != nil {
				return
			}
		}
	}
}
