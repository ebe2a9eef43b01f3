// The protocol's sessions, each of one ref.

package mcphttp

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpapi"
)

// clientSession is a session of the protocol. mu of its handler guards what is below it.
type clientSession struct {
	id     string
	ref    string   // the id of its ref
	sum    [32]byte // of the credentials that each request has to show
	server *mcp.Server
	cancel context.CancelFunc // ends its calls, subscriptions and live capabilities

	requests int       // that run
	idle     time.Time // since when there is none
	timer    *time.Timer
}

// end ends a session that was removed. Its calls have ended when it returns.
func (s *clientSession) end() {
	s.timer.Stop()
	s.cancel()
	for of := range s.server.Sessions() {
		_ = of.Close() // over HTTP there is nothing to close
	}
}

// session returns a session for a request with its credentials; leave is called after it. To others it does not exist.
func (h *Handler) session(q *httpapi.Request, id string, c *httpapi.Credentials) (*clientSession, *fault.Error) {
	sum := c.Sum()
	h.mu.Lock()
	s := h.sessions[id]
	if s != nil && subtle.ConstantTimeCompare(s.sum[:], sum[:]) == 1 {
		s.enter()
		h.mu.Unlock()
		return s, nil
	}
	h.mu.Unlock()
	// A wrong secret is refused as such, and as late as elsewhere.
	if _, refused := q.Restore(q.Context(), c); refused != nil {
		return nil, refused
	}
	return nil, fault.NotFound.With("there is no such session of this ref, or it was idle for too long: begin another with initialize")
}

// enter counts a request. The lock is held.
func (s *clientSession) enter() {
	s.requests++
	s.timer.Stop()
}

// leave says that a request has been answered. A session that was not initialized by its first is none.
func (h *Handler) leave(s *clientSession) {
	begun := false
	for of := range s.server.Sessions() {
		begun = begun || of.InitializeParams() != nil
	}
	h.mu.Lock()
	s.requests--
	known := h.sessions[s.id] == s
	over := known && s.requests == 0 && !begun
	switch {
	case over:
		delete(h.sessions, s.id)
	case known && s.requests == 0:
		s.idle = time.Now()
		s.timer.Reset(h.cfg.IdleTimeout)
	}
	h.mu.Unlock()
	if over {
		s.end()
	}
}

// drop ends a session, unless it is to be idle and is not.
func (h *Handler) drop(s *clientSession, idle bool) {
	h.mu.Lock()
	found := h.sessions[s.id] == s && !(idle && s.requests > 0)
	if found {
		delete(h.sessions, s.id)
	}
	h.mu.Unlock()
	if found {
		s.end()
	}
}

// begin returns a new session for the request that begins it; leave is called after it.
func (h *Handler) begin(q *httpapi.Request, c *httpapi.Credentials) (*clientSession, *fault.Error) {
	ctx, cancel := context.WithCancel(context.Background())
	stop := context.AfterFunc(q.Context(), cancel)
	live, refused := q.Restore(ctx, c)
	if gone := !stop(); gone && refused == nil {
		refused = q.ToFault(context.Cause(q.Context()))
	}
	if refused != nil {
		cancel()
		return nil, refused
	}
	s := &clientSession{id: rand.Text(), ref: live.Ref(), sum: c.Sum(), cancel: cancel, requests: 1}
	s.server = h.newServer(ctx, source{live}, func() string { return s.id })
	s.timer = time.AfterFunc(h.cfg.IdleTimeout, func() { h.drop(s, true) })
	s.timer.Stop()
	ended, refused := h.add(s)
	if refused != nil {
		cancel()
		return nil, refused
	}
	if ended != nil {
		ended.end()
	}
	return s, nil
}

// add adds a session. One that is idle longest of those of its ref makes room for it, if there is none, and is to be
// ended.
func (h *Handler) add(s *clientSession) (idle *clientSession, refused *fault.Error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	of := 0
	for _, other := range h.sessions {
		if other.ref != s.ref {
			continue
		}
		if of++; other.requests == 0 && (idle == nil || other.idle.Before(idle.idle)) {
			idle = other
		}
	}
	switch {
	case h.closed:
		return nil, fault.Draining.With("the server is stopping")
	case of < h.cfg.SessionsPerRef && len(h.sessions) < h.cfg.Sessions:
		idle = nil
	case idle == nil && of >= h.cfg.SessionsPerRef:
		return nil, fault.Overloaded.With("the ref has %d sessions, all in use: end one of them", of)
	case idle == nil:
		return nil, fault.Overloaded.With("the server has %d sessions of this protocol, as many as it may: try again later", len(h.sessions))
	default:
		delete(h.sessions, idle.id)
	}
	h.sessions[s.id] = s
	return idle, nil
}
