// Authorization to create shares, and the ref that a creator uses.

package share

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"net/http"
	"net/url"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/origin"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// shareKeyHeader carries the share key in opencode's RPC variant.
const shareKeyHeader = "X-Opencode-Share-Key"

// The server's own ref, one a space, for creators who present no ref.
const (
	serverRefLabel = "opencode shares" // its label, and the end of its fixed id
	serverRefActor = "owner/opencode"
)

// redemptionID is the redemption id of every restore by the API, which thus counts once.
const redemptionID = "opencode share"

// visitor is a request with its caller and its path's ref.
type visitor struct {
	*http.Request
	caller  *objects.Caller
	creator string // the create-only ref's text, "" for none
}

// creatorRef returns the space ref that a visitor may create under. It refuses
//
//	an invalid ref in the path, or one that allows more than creating
//	a wrong key
//	a visitor from another machine, or a browser's page, that presents neither
func (s *Service) creatorRef(ctx context.Context, v *visitor) (ref string, err error) {
	switch {
	case v.creator != "":
		return s.redeemCreator(ctx, v)
	case len(v.Header.Values(shareKeyHeader)) > 0:
		if !s.hasKey(v) {
			return "", s.throttled(v.caller, fault.UnknownRef.With("the share key is wrong, or this server has none"))
		}
	case s.cfg.NoLoopback || !origin.IsLocal(v.Request):
		return "", fault.MissingRight.With("sharing here needs to be on the server's machine, a share key, or a create-only ref in the URL's path (/t/REF)")
	}
	return s.serverRef(ctx)
}

// hasKey reports whether the visitor presents the share key.
func (s *Service) hasKey(v *visitor) bool {
	got, want := sha256.Sum256([]byte(v.Header.Get(shareKeyHeader))), sha256.Sum256([]byte(s.cfg.Key))
	return subtle.ConstantTimeCompare(got[:], want[:]) == 1 && s.cfg.Key != ""
}

// redeemCreator redeems the ref in a visitor's path: ID.SECRET. URLs get into histories and logs,
// so the ref must allow creating and nothing else.
func (s *Service) redeemCreator(ctx context.Context, v *visitor) (string, error) {
	ref, ok := parseCreator(v.creator)
	if !ok {
		return "", s.throttled(v.caller, fault.BadRefText.With("the part after /t/ is not the id and secret of a space's ref: ID.SECRET"))
	}
	live, err := v.caller.Restore(ref, redemptionID)
	if err != nil {
		return "", err
	}
	d, err := live.Describe(ctx)
	if err != nil {
		return "", err
	}
	if d.Grant.Rights != capability.Create {
		return "", fault.Widening.With("the ref after /t/ carries %s, too much for a URL: make one with create only (mooring share @owner.ref --rights create)", d.Grant.Rights)
	}
	return ref.ID, nil
}

// CreatorPath returns the path prefix that carries a create-only ref.
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

// serverRef returns the server's own ref, minted at its first use. Whether the owner has revoked
// it since is checked when it is used.
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

// errNoHost is the error of a request without a host to make a URL of.
var errNoHost = errors.New("the request names no host")

// baseURL returns the start of public URLs for a visitor.
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
		return "", fault.BadArgument.Because(errNoHost, "the request's Host is no host: set the server's address (mooring serve --advertise, or server.Config.Address)")
	}
	return scheme + v.Host, nil
}

// shareURL returns the URL of a share's page.
func (s *Service) shareURL(v *visitor, id string) (string, error) {
	base, err := s.baseURL(v)
	return base + "/share/" + id, err
}
