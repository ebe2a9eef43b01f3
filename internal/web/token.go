// Tokens: what a browser presents for a page of a ref that it has opened. A page stores its token
// in sessionStorage, which belongs to one tab and one origin, port included, and sends it in a
// header, or as the first message of a WebSocket: browsers send nothing by themselves, to any
// port. A token is valid for pages alone, at the origin it was issued to, for a limited time;
// every call checks whether the ref still allows anything.

package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/objects"
)

// tokenHeader carries a token: its ref's id, a dot, and its random part.
const tokenHeader = "Mooring-Token"

// maxOrigin bounds the origin that a token is issued to, in bytes.
const maxOrigin = 300

// Tokens stores the tokens of pages, for all servers of a database.
type Tokens interface {
	AddPageToken(ctx context.Context, token capability.PageToken, life time.Duration, keep int) (expires int64, err error)
	// FindPageToken returns NotFound for a token that has ended or was never issued.
	FindPageToken(ctx context.Context, ref string, hash [32]byte) (token capability.PageToken, now int64, err error)
	DropPageToken(ctx context.Context, ref string, hash [32]byte) error
}

// errNoToken is the error of a page that is not open, or no longer.
var errNoToken = fault.UnknownRef.With("this page is not open in this browser, or not any more: open its whole link, with the part after the #")

// origin returns the origin of the requesting page.
func (q *request) origin() string {
	scheme := "http://"
	if q.site.secure(q.r) {
		scheme = "https://"
	}
	return scheme + strings.ToLower(q.r.Host)
}

// parseToken parses a presented token.
func parseToken(text string) (ref string, secret capability.Secret, ok bool) {
	dot := strings.LastIndexByte(text, '.')
	if dot < 0 || len(text) > 256 || capability.Target(text[:dot]) == "" {
		return "", secret, false
	}
	secret, err := capability.ParseSecret(text[dot+1:])
	return text[:dot], secret, err == nil
}

// issueToken issues a token for a ref that was presented, and returns its text: a secret.
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

// fromToken returns the capability of the presented token, which has to be for the page's ref, or
// for any of a space where the page has none. It records the token's expiry.
func (q *request) fromToken(c *objects.Caller) (*objects.Capability, error) {
	id, _, ok := parseToken(q.token)
	if !ok || q.id != "" && id != q.id || q.id == "" && !capability.IsSpace(capability.Target(id)) {
		return nil, errNoToken
	}
	if err := q.checkToken(q.r.Context()); err != nil {
		return nil, err
	}
	return c.Assume(id), nil
}

// checkToken checks the presented token, and records its expiry.
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

// dropToken ends the presented token.
func (q *request) dropToken() error {
	if id, secret, ok := parseToken(q.token); ok {
		if err := q.site.tokens.DropPageToken(q.r.Context(), id, secret.Hash()); err != nil {
			return err
		}
	}
	q.w.WriteHeader(http.StatusNoContent)
	return nil
}

// clearOldCookies deletes the cookies that earlier versions set for pages: they contained a ref's
// secret, and browsers send cookies to all ports of a host.
func (q *request) clearOldCookies() {
	for _, name := range []string{"mooring", "__Secure-mooring"} {
		if len(q.r.CookiesNamed(name)) > 0 {
			http.SetCookie(q.w, &http.Cookie{Name: name, Path: q.base + q.path, MaxAge: -1,
				HttpOnly: true, Secure: name != "mooring", SameSite: http.SameSiteStrictMode})
		}
	}
}
