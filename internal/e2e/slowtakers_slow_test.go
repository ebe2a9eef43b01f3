//go:build crash

package e2e

// Takers of a large snapshot who read 4 kB/s, over each way that keeps a place for it.

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
)

// drip reads from a server at 4 kB/s and hands on what it has, if there is somebody. It ends with the connection.
func drip(from io.Reader, to io.Writer, read *atomic.Int64) {
	piece := make([]byte, 400)
	for {
		n, err := from.Read(piece)
		read.Add(int64(n))
		if _, err2 := to.Write(piece[:n]); err != nil || err2 != nil {
			return
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// slowReaders are 24 sockets, all over one way.
type slowReaders struct {
	t     *testing.T
	way   string
	srv   *server
	ref   capability.Ref
	conns []net.Conn
	read  [24]atomic.Int64
	all   sync.WaitGroup
}

// dial connects to the server.
func (s *slowReaders) dial() net.Conn {
	s.t.Helper()
	c, err := net.DialTimeout("tcp", s.srv.address(), patience)
	if err != nil {
		s.t.Fatal(err)
	}
	s.conns = append(s.conns, c)
	return c
}

// come opens the sockets. Whose place is lost asks for none again.
func (s *slowReaders) come() {
	s.t.Helper()
	for i := range s.read {
		c := s.dial()
		switch s.way {
		case "HTTP":
			fmt.Fprintf(c, "GET /api/v1/sessions/%s/snapshot HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s#%s\r\n\r\n", s.ref.Target(), s.srv.address(), s.ref.ID, s.ref.Secret.RevealText())
		case "Cap'n Web":
			fmt.Fprintf(c, "GET /rpc HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n", s.srv.address())
			for _, m := range []string{fmt.Sprintf(`["push",["pipeline",0,["restore"],[%q,"r"]]]`, s.ref.Text()), `["push",["pipeline",1,["snapshot"],[0,["export",-1]]]]`, `["pull",2]`} {
				_, _ = c.Write(append(frame(1, uint64(len(m))), m...))
			}
		case "Cap'n Proto":
			s.byClient(c, &s.read[i])
			continue
		}
		s.all.Go(func() { drip(c, io.Discard, &s.read[i]) })
	}
	eventually(s.t, "slow ones have the places that they may have", func() bool {
		have := 0
		for i := range s.read {
			if s.read[i].Load() > 2000 {
				have++
			}
		}
		return have >= 3
	})
}

// byClient has a client take the snapshot, behind a link that slow.
func (s *slowReaders) byClient(c net.Conn, read *atomic.Int64) {
	s.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	through := s.ref
	through.Hosts = []string{ln.Addr().String()}
	session := view(s.t, openClientWith(s.t, client.Config{OpenOutbox: sqliteclient.Outbox(s.t.TempDir()), Offline: true}), through)
	ctx, cancel := context.WithCancel(s.t.Context())
	s.all.Go(func() { // once
		defer cancel()
		defer ln.Close()
		near, err := ln.Accept()
		if err != nil {
			return
		}
		defer near.Close()
		s.all.Go(func() { _, _ = io.Copy(c, near) })
		drip(c, near, read)
	})
	s.all.Go(func() { _, _ = session.Snapshot(ctx) })
	s.conns = append(s.conns, closer{Conn: c, ln: ln})
}

// closer ends a listener beside a connection.
type closer struct {
	net.Conn
	ln net.Listener
}

func (c closer) Close() error { return c.ln.Close() }

func (s *slowReaders) leave() {
	for _, c := range s.conns {
		_ = c.Close()
	}
	s.all.Wait()
}

// Fourteen of other sessions are all given their snapshots while two dozen are slow: at once from another address, and from the
// same one as soon as one of those has shown that it is slow.
func TestSlowTakersHoldNobodyUp(t *testing.T) {
	t.Parallel()
	for _, way := range []string{"HTTP", "Cap'n Web", "Cap'n Proto"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			slowReadersOver(t, way)
		})
	}
}

func slowReadersOver(t *testing.T, way string) {
	srv := startServer(t, serverConfig{})
	ref := makeSession(t, srv)
	w, text := newWriter(t, ref, srv.owner()), strings.Repeat("x", 1<<20)
	for i := range 8 {
		w.must(put(fmt.Sprintf("message/%d", i), map[string]any{"text": text}))
	}
	var others []capability.Ref
	for range 14 {
		others = append(others, makeSession(t, srv, put("message/m", map[string]any{"text": "honest"})))
	}
	slow := &slowReaders{t: t, way: way, srv: srv, ref: ref}
	defer slow.leave()
	slow.come()
	var all sync.WaitGroup
	for i, other := range others {
		from := []string{"127.0.0.2", "127.0.0.1"}[i%2]
		all.Go(func() {
			begun := time.Now()
			state, err := snapshotFrom(t, srv, from, other)
			took := time.Since(begun)
			t.Logf("from %s: %s", from, took)
			if err != nil || !strings.Contains(state, "honest") {
				t.Errorf("from %s, after %s: %.200s %v", from, took, state, err)
			}
			if took > patience/4 { // who waits for a place for half of patience is refused
				t.Errorf("from %s it took %s", from, took)
			}
		})
	}
	all.Wait()
}

// snapshotFrom asks for a snapshot from an address, once.
func snapshotFrom(t *testing.T, srv *server, from string, ref capability.Ref) (string, error) {
	c := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true, DialContext: (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}).DialContext}}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+srv.address()+"/api/v1/sessions/"+ref.Target()+"/snapshot", nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("Authorization", "Bearer "+ref.ID+"#"+ref.Secret.RevealText())
	res, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	if err == nil && (res.StatusCode != http.StatusOK || !json.Valid(body)) {
		err = fmt.Errorf("%s", res.Status)
	}
	return string(body), err
}
