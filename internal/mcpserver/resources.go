// Sessions as resources, and their updates.

package mcpserver

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
)

// uriPrefix begins the URIs of sessions. It is no ref's address: no host has this name.
const uriPrefix = "mooring://session/"

const (
	sessionTemplate = uriPrefix + "{session}"
	pageTemplate    = uriPrefix + "{session}/before/{message}"
	messageTemplate = uriPrefix + "{session}/message/{message}"

	mimeJSON = "application/json"
)

// maxSubscriptions bounds the subscriptions of a client.
const maxSubscriptions = 16

// updateInterval is the least time between two notices of one resource's updates: a turn that streams changes it many
// times a second.
const updateInterval = 500 * time.Millisecond

func (s *server) addResources() {
	for _, t := range []mcp.ResourceTemplate{
		{Name: "session", Title: "A session's newest messages", URITemplate: sessionTemplate, Description: "The newest messages of a session, as read_session shows them. It can be subscribed to."},
		{Name: "session-page", Title: "Earlier messages of a session", URITemplate: pageTemplate, Description: "The messages before one, as earlier names it."},
		{Name: "message", Title: "A message", URITemplate: messageTemplate, Description: "One message, as read_message shows it: its first 8 KB."},
	} {
		t.MIMEType = mimeJSON
		s.mcp.AddResourceTemplate(&t, s.readResource)
	}
}

// parseURI returns the parts of a resource's URI: the session, and what of it.
func parseURI(uri string) (id, of, message string, ok bool) {
	rest, ok := strings.CutPrefix(uri, uriPrefix)
	if !ok {
		return "", "", "", false
	}
	parts := strings.Split(rest, "/")
	for i, p := range parts {
		text, err := url.PathUnescape(p)
		if err != nil {
			return "", "", "", false
		}
		parts[i] = text
	}
	switch {
	case !capability.IsSession(parts[0]):
		return "", "", "", false
	case len(parts) == 1:
		return parts[0], "", "", true
	case len(parts) == 3 && (parts[1] == "before" || parts[1] == "message"):
		return parts[0], parts[1], parts[2], true
	}
	return "", "", "", false
}

func (s *server) listResources(ctx context.Context, p *mcp.ListResourcesParams) (*mcp.ListResourcesResult, error) {
	after := ""
	if p != nil {
		after = p.Cursor
	}
	list, next, err := s.cfg.Source.List(ctx, "", after, defaultSessions)
	if err != nil {
		return nil, s.refusal(err, "list the sessions")
	}
	res := &mcp.ListResourcesResult{Resources: []*mcp.Resource{}, NextCursor: next}
	for _, i := range list {
		shown := showInfo(i)
		title := withheld(shown.Title)
		if title == "" {
			title = i.ID
		}
		r := &mcp.Resource{URI: uriPrefix + i.ID, Name: i.ID, Title: title, MIMEType: mimeJSON}
		if !i.Updated.IsZero() {
			r.Annotations = &mcp.Annotations{LastModified: showTime(i.Updated)}
		}
		res.Resources = append(res.Resources, r)
	}
	return res, nil
}

func (s *server) readResource(ctx context.Context, req *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
	id, of, message, ok := parseURI(req.Params.URI)
	if !ok {
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	var out any
	var err error
	if of == "message" {
		out, err = s.readMessage(ctx, readMessageIn{Session: id, Message: message}, nil)
	} else {
		out, err = s.readSession(ctx, readSessionIn{Session: id, Before: message}, nil)
	}
	if fault.CodeOf(err) == fault.NotFound {
		s.cfg.Refused(fault.From(s.cfg.Log, err, "read"))
		return nil, mcp.ResourceNotFoundError(req.Params.URI)
	}
	if err != nil {
		return nil, s.refusal(err, "read the session")
	}
	return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: req.Params.URI, MIMEType: mimeJSON, Text: string(httpkit.JSON(out))}}}, nil
}

// subscribe begins to follow a session for its resource. The protocol's server sends what updated says to who subscribed.
func (s *server) subscribe(ctx context.Context, req *mcp.SubscribeRequest) error {
	uri := req.Params.URI
	id, of, _, ok := parseURI(uri)
	if !ok {
		return mcp.ResourceNotFoundError(uri)
	}
	if of != "" {
		return s.refusal(fault.BadArgument.With("a session can be subscribed to, %sID, and not a part of it", uriPrefix), "subscribe")
	}
	follow, known, refused := s.reserve(uri)
	switch {
	case refused != nil:
		return s.refusal(refused, "subscribe")
	case known:
		return nil
	}
	begun, ended := make(chan struct{}), make(chan error, 1)
	go s.follow(follow, uri, id, begun, ended)
	select { // what changes after the answer is an update
	case <-begun:
		return nil
	case err := <-ended:
		return s.refusal(err, "subscribe")
	case <-ctx.Done():
		s.end(uri)
		return s.refusal(context.Cause(ctx), "subscribe")
	}
}

// reserve returns the context of a new subscription, or that it is there already.
func (s *server) reserve(uri string) (follow context.Context, known bool, refused error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.subs[uri] != nil {
		return nil, true, nil
	}
	if len(s.subs) >= maxSubscriptions {
		return nil, false, fault.TooLarge.With("a client has at most %d subscriptions: unsubscribe from another", maxSubscriptions)
	}
	follow, s.subs[uri] = context.WithCancel(s.ctx)
	return follow, false, nil
}

// end ends a subscription.
func (s *server) end(uri string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.subs[uri]; cancel != nil {
		cancel()
		delete(s.subs, uri)
	}
}

func (s *server) unsubscribe(_ context.Context, req *mcp.UnsubscribeRequest) error {
	s.end(req.Params.URI)
	return nil
}

// follow closes begun once it follows a session, and then tells of its changes until ctx ends or the session cannot be
// followed any more. That is an update, too, after which a read says why, and the subscription is over. If it never began,
// ended gets the reason.
func (s *server) follow(ctx context.Context, uri, id string, begun chan struct{}, ended chan<- error) {
	changed := make(chan struct{}, 1)
	var telling sync.WaitGroup
	telling.Go(func() {
		for range changed {
			_ = s.mcp.ResourceUpdated(context.WithoutCancel(ctx), &mcp.ResourceUpdatedNotificationParams{URI: uri}) // the client may have gone
			select {
			case <-time.After(updateInterval):
			case <-ctx.Done():
			}
		}
	})
	tell := func() {
		select {
		case changed <- struct{}{}:
		default: // the next notice is of this change, too
		}
	}
	following := false
	o, err := s.cfg.Source.Open(ctx, id)
	if err == nil {
		err = o.Follow(ctx, nil, func() error {
			if following {
				tell()
			} else {
				close(begun)
			}
			following = true
			return nil
		})
	}
	switch {
	case !following:
		ended <- err
	case ctx.Err() == nil && !errors.Is(err, fault.Draining):
		s.cfg.Log.Debug("a subscription has ended", "session", id, "error", err)
		tell()
	}
	close(changed)
	if ctx.Err() == nil { // else another may have its place
		s.end(uri)
	}
	telling.Wait()
}
