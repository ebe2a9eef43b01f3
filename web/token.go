// Tokens: what a browser shows for a page of a ref that it has opened. A page keeps
// its token in sessionStorage, which is of one tab and one origin, its port included,
// and sends it in a header, or first of all over a WebSocket: so nothing is sent by a
// browser itself, to any port. A token is good for pages alone, at the origin that
// it was given to, for a while; whether the ref still allows anything is looked at
// in every call.

package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/server"
)

// tokenHeader has a token: its ref's id, a dot, and what is random of it.
const tokenHeader = "Mooring-Token"

// maxOrigin bounds the origin that a token is given to.
const maxOrigin = 300

// Tokens keeps the tokens of pages, for all servers of a database.
type Tokens interface {
	AddPageToken(ctx context.Context, token capability.PageToken, life time.Duration, keep int) (expires int64, err error)
	// FindPageToken's error is NotFound for a token that is over or was not given.
	FindPageToken(ctx context.Context, ref string, hash [32]byte) (token capability.PageToken, now int64, err error)
	DropPageToken(ctx context.Context, ref string, hash [32]byte) error
}

// errNoToken says that a page is not open, or not any more.
var errNoToken = fault.UnknownRef.With("this page is not open in this browser, or not any more: open it by its whole link, with what stands behind the #")

// origin is that of the page which asks.
func (q *request) origin() string {
	scheme := "http://"
	if q.site.secure(q.r) {
		scheme = "https://"
	}
	return scheme + strings.ToLower(q.r.Host)
}

// parseToken reads what is shown.
func parseToken(text string) (ref string, secret capability.Secret, ok bool) {
	dot := strings.LastIndexByte(text, '.')
	if dot < 0 || len(text) > 256 || capability.Target(text[:dot]) == "" {
		return "", secret, false
	}
	secret, err := capability.ParseSecret(text[dot+1:])
	return text[:dot], secret, err == nil
}

// issueToken makes a token for a ref that has been shown, and gives its text: a secret.
func (q *request) issueToken(ref string) (string, error) {
	origin, secret := q.origin(), capability.NewSecret()
	if len(origin) > maxOrigin {
		return "", fault.BadArgument.With("the server's name is longer than %d bytes", maxOrigin)
	}
	token := capability.PageToken{Ref: ref, Hash: secret.Hash(), Origin: origin}
	if _, err := q.site.tokens.AddPageToken(q.r.Context(), token, q.site.cfg.TokenLife, q.site.cfg.TokensPerRef); err != nil {
		return "", err
	}
	return ref + "." + secret.RevealText(), nil
}

// fromToken is what the token that is shown allows; ref "" takes any space's. Until when
// it does is noted.
func (q *request) fromToken(c *server.Caller, ref string) (*server.Capability, error) {
	id, _, ok := parseToken(q.token)
	if !ok || ref != "" && id != ref || ref == "" && !capability.IsSpace(capability.Target(id)) {
		return nil, errNoToken
	}
	if err := q.checkToken(q.r.Context()); err != nil {
		return nil, err
	}
	return c.Assume(id), nil
}

// checkToken sees whether the token that is shown is good, and until when.
func (q *request) checkToken(ctx context.Context) error {
	id, secret, _ := parseToken(q.token)
	token, now, err := q.site.tokens.FindPageToken(ctx, id, secret.Hash())
	if errors.Is(err, fault.NotFound) || err == nil && token.Origin != q.origin() {
		return errNoToken
	}
	if err == nil {
		q.tokenExpiry = time.Now().Add(time.Duration(token.Expires-now) * time.Millisecond)
	}
	return err
}

// dropToken ends the token that is shown.
func (q *request) dropToken() {
	if id, secret, ok := parseToken(q.token); ok {
		if err := q.site.tokens.DropPageToken(q.r.Context(), id, secret.Hash()); err != nil {
			q.refuse(err)
			return
		}
	}
	q.w.WriteHeader(http.StatusNoContent)
}

// clearOldCookies takes back the cookies that versions before gave for pages: a ref's
// secret stood in them, and browsers send cookies to all ports of a host.
func (q *request) clearOldCookies() {
	for _, name := range []string{"mooring", "__Secure-mooring"} {
		if len(q.r.CookiesNamed(name)) > 0 {
			http.SetCookie(q.w, &http.Cookie{Name: name, Path: q.base + q.path, MaxAge: -1,
				HttpOnly: true, Secure: name != "mooring", SameSite: http.SameSiteStrictMode})
		}
	}
}
