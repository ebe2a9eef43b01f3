// Who may make shares, and under which ref.

package share

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/loopback"
	"github.com/mooring-rpc/mooring/server"
)

// shareKeyHeader is what opencode's RPC variant shows a key in.
const shareKeyHeader = "X-Opencode-Share-Key"

// The ref of the server's own, one a space, that those create under who show none.
const (
	serverRefLabel = "opencode shares" // its label, and the end of its fixed id
	serverRefActor = "owner/opencode"
)

// redemptionID is what the API redeems refs as: again and again, counted once.
const redemptionID = "opencode share"

// visitor is a request, with what its path carried.
type visitor struct {
	*http.Request
	caller  *server.Caller
	creator string // the create-only ref's text, "" for none
}

// creatorRef gives the space ref that a visitor may create under. The reasons not to:
//
//	a ref in the path that is none, or allows more than to create
//	a key that is wrong
//	somebody elsewhere, or a page of a browser, that shows neither
func (s *Service) creatorRef(ctx context.Context, v *visitor) (ref string, err error) {
	switch {
	case v.creator != "":
		return s.redeemCreator(ctx, v)
	case len(v.Header.Values(shareKeyHeader)) > 0:
		if !s.hasKey(v) {
			return "", s.throttled(v.caller, fault.UnknownRef.With("the share key is another, or this server has none"))
		}
	case s.cfg.NoLoopback || !isLocal(v.Request):
		return "", fault.MissingRight.With("who shares here is on the server's machine, shows a share key, or has a create-only ref in the path of its URL (/t/REF)")
	}
	return s.serverRef(ctx)
}

// hasKey says whether the visitor shows the share key.
func (s *Service) hasKey(v *visitor) bool {
	got, want := sha256.Sum256([]byte(v.Header.Get(shareKeyHeader))), sha256.Sum256([]byte(s.cfg.Key))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && s.cfg.Key != ""
}

// redeemCreator redeems the ref in a visitor's path: ID.SECRET. What stands in URLs gets
// into histories and logs, so it must be good for nothing but creating.
func (s *Service) redeemCreator(ctx context.Context, v *visitor) (string, error) {
	ref, ok := parseCreator(v.creator)
	if !ok {
		return "", s.throttled(v.caller, fault.BadRefText.With("what follows /t/ is not the id and secret of a space's ref: ID.SECRET"))
	}
	held, err := v.caller.Restore(ref, redemptionID)
	if err != nil {
		return "", err
	}
	d, err := held.Describe(ctx)
	if err != nil {
		return "", err
	}
	if d.Grant.Rights != capability.Create {
		return "", fault.Widening.With("the ref after /t/ carries %s, and a URL is no place for it: make one with create alone (mooring share @owner.ref --rights create)", d.Grant.Rights)
	}
	return ref.ID, nil
}

// CreatorPath is the path prefix that carries a create-only ref.
func CreatorPath(ref capability.Ref) string {
	return creatorPrefix + ref.ID + "." + ref.Secret.RevealText()
}

func parseCreator(text string) (ref capability.Ref, ok bool) {
	at := strings.LastIndexByte(text, '.')
	if at < 0 {
		return ref, false
	}
	secret, err := capability.ParseSecret(text[at+1:])
	if err != nil || !capability.IsSpace(capability.Target(text[:at])) {
		return ref, false
	}
	return capability.Ref{ID: text[:at], Secret: secret}, true
}

// serverRef is the server's own ref, made when it is first needed. Whether the owner has
// revoked it since is looked at when it is used.
func (s *Service) serverRef(ctx context.Context) (string, error) {
	s.mu.Lock()
	ref := s.serverRefID
	s.mu.Unlock()
	if ref != "" {
		return ref, nil
	}
	space, err := s.cfg.Store.FirstSpace(ctx)
	if err != nil {
		return "", s.toFault(ctx, err, "find the space")
	}
	ref = capability.FixedID(space, serverRefLabel)
	_, err = s.cfg.Store.MintUnderRoot(ctx, capability.MintRequest{ID: ref, Hash: capability.NewSecret().Hash(),
		Rights: capability.Create, Label: serverRefLabel, Actor: serverRefActor})
	if err != nil {
		return "", s.toFault(ctx, err, "make the ref that shares are made under")
	}
	s.mu.Lock()
	s.serverRefID = ref
	s.mu.Unlock()
	return ref, nil
}

// proxyHeaders are headers that say that the request was somebody else's before.
var proxyHeaders = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Real-Ip", "Via"}

// isLocal says whether a request was made on this machine, by no page of a browser
// but the server's own. The address alone does not say that: any page can have its
// browser send a POST to a server on its machine, and with a name of its own that
// leads there (DNS rebinding) read the answer.
func isLocal(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil || !loopback.IsAddress(host) || !loopback.Is(r.Host) {
		return false
	}
	for _, name := range proxyHeaders {
		if len(r.Header.Values(name)) > 0 {
			return false
		}
	}
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "same-origin" && site != "none" {
		return false
	}
	if origins := r.Header.Values("Origin"); len(origins) > 0 {
		u, err := url.Parse(origins[0])
		if err != nil || len(origins) > 1 || !strings.EqualFold(u.Host, r.Host) {
			return false
		}
	}
	return true
}

// forwardedFor is all that proxies say of where a request comes from.
func forwardedFor(r *http.Request) string {
	var said []string
	for _, name := range proxyHeaders {
		said = append(said, r.Header.Values(name)...)
	}
	return strings.Join(said, "\n")
}

// errNoHost is for a request from which no URL can be made.
var errNoHost = errors.New("the request names no host")

// baseURL is what public URLs begin with for a visitor.
func (s *Service) baseURL(v *visitor) (string, error) {
	if s.cfg.Base != "" {
		return s.cfg.Base, nil
	}
	scheme := "http://"
	if v.TLS != nil {
		scheme = "https://"
	}
	u, err := url.Parse(scheme + v.Host)
	if err != nil || u.Host == "" || u.Host != v.Host || u.User != nil || strings.ContainsAny(v.Host, "/\\@?#<>\"' ") {
		return "", fault.BadArgument.Because(errNoHost, "the request's Host is no host: name the server's address with --advertise")
	}
	return scheme + v.Host, nil
}

// shareURL is where people see a share.
func (s *Service) shareURL(v *visitor, id string) (string, error) {
	base, err := s.baseURL(v)
	return base + "/share/" + id, err
}
