//go:build unix

// A tap: what clients ask of a server's HTTP side, as anybody on the way to it
// would log it.

package main

import (
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
)

// tap stands before a server and writes down the heads of requests.
type tap struct {
	t  *testing.T
	ln net.Listener

	mu     sync.Mutex
	target string
	heads  bytes.Buffer
	open   map[net.Conn]bool
	links  sync.WaitGroup
}

// newTap listens until the test ends.
func newTap(t *testing.T) *tap {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &tap{t: t, ln: ln, open: map[net.Conn]bool{}}
	p.links.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			p.links.Go(func() { p.link(c) })
		}
	})
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		for c := range p.open {
			_ = c.Close()
		}
		p.mu.Unlock()
		p.links.Wait()
	})
	return p
}

func (p *tap) address() string { return p.ln.Addr().String() }

// lead says where the server is.
func (p *tap) lead(target string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.target = target
}

func (p *tap) requests() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return bytes.Clone(p.heads.Bytes())
}

func (p *tap) link(client net.Conn) {
	p.mu.Lock()
	target := p.target
	p.mu.Unlock()
	server, err := net.Dial("tcp", target)
	if err != nil { // it does not run
		_ = client.Close()
		return
	}
	p.mu.Lock()
	p.open[client], p.open[server] = true, true
	p.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	both.Go(func() {
		_, _ = io.Copy(server, io.TeeReader(client, &head{tap: p}))
		_ = server.Close()
	})
	both.Wait()
	p.mu.Lock()
	delete(p.open, client)
	delete(p.open, server)
	p.mu.Unlock()
}

// head takes a connection's bytes up to the end of its first request's head.
type head struct {
	tap  *tap
	have []byte
	over bool
}

// Write implements io.Writer.
func (h *head) Write(b []byte) (int, error) {
	if h.over {
		return len(b), nil
	}
	h.have = append(h.have, b...)
	if end := bytes.Index(h.have, []byte("\r\n\r\n")); end >= 0 {
		h.over = true
		h.tap.mu.Lock()
		h.tap.heads.Write(h.have[:end+4])
		h.tap.mu.Unlock()
	}
	return len(b), nil
}

// fetched is what a URL gives.
func fetched(t *testing.T, url string) []byte {
	t.Helper()
	r, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil || r.StatusCode != http.StatusOK || len(body) < 1000 {
		t.Fatalf("GET %s: %d, %d bytes, %v", url, r.StatusCode, len(body), err)
	}
	return body
}
