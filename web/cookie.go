// Cookies: what a browser shows for a page whose ref it was given. A cookie is of
// one page alone (its path), scripts cannot read it, and other sites' pages never
// send it.

package web

import (
	"crypto/rand"
	"encoding/base64"
	"net/http"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/server"
)

// cookieAge is how long a browser keeps a ref that does not expire before.
const cookieAge = 30 * 24 * time.Hour

// redemptionBytes are those of a browser's redemption id.
const redemptionBytes = 16

// ticket is what a cookie holds: a ref's id and secret, and the id under which this
// browser's redemption of it was counted.
type ticket struct {
	id         string
	secret     capability.Secret
	redemption string // base64url of redemptionBytes
}

// errNoCookie says that there is none (yet, or any more). It is compared as it is.
var errNoCookie error = fault.UnknownRef.With("this page is not open in this browser: open it by its whole link, with what stands behind the #")

// newRedemption is a browser's name for its use of a ref.
func newRedemption() string {
	b := make([]byte, redemptionBytes)
	_, _ = rand.Read(b) // never fails
	return base64.RawURLEncoding.EncodeToString(b)
}

// text is the cookie's value: a secret.
func (t ticket) text() string {
	return "1." + t.secret.RevealText() + "." + t.redemption + "." + t.id
}

// parseTicket reads a cookie's value; ok is false for what we never wrote.
func parseTicket(text string) (t ticket, ok bool) {
	fields := strings.SplitN(text, ".", 4)
	if len(text) > 512 || len(fields) != 4 || fields[0] != "1" {
		return t, false
	}
	secret, err := capability.ParseSecret(fields[1])
	if err != nil || capability.Target(fields[3]) == "" {
		return t, false
	}
	if b, err := base64.RawURLEncoding.Strict().DecodeString(fields[2]); err != nil || len(b) != redemptionBytes {
		return t, false
	}
	return ticket{id: fields[3], secret: secret, redemption: fields[2]}, true
}

// cookieName is the name of the page's cookie: over TLS one that browsers take
// over TLS alone.
func (q *request) cookieName() string {
	if q.site.secure(q.r) {
		return "__Secure-mooring"
	}
	return "mooring"
}

// ticket is what the browser shows for this page; ref "" takes any ref. Where there
// are several cookies, the first that fits is it.
func (q *request) ticket(ref string) (ticket, bool) {
	for _, c := range q.r.CookiesNamed(q.cookieName()) {
		if t, ok := parseTicket(c.Value); ok && (ref == "" || t.id == ref) {
			return t, true
		}
	}
	return ticket{}, false
}

// restore is what the browser's cookie for a ref allows. A cookie that is of no use
// any more is taken back.
func (q *request) restore(c *server.Caller, ref string) (*server.Held, error) {
	t, ok := q.ticket(ref)
	if !ok {
		return nil, errNoCookie
	}
	held, err := c.Restore(capability.Ref{}.With(t.id, t.secret), t.redemption)
	if err != nil && !q.faultOf(err).Code.Transient() {
		q.clearCookie()
	}
	return held, err
}

// setCookie gives the browser a ticket for this page, until its ref expires.
func (q *request) setCookie(t ticket, about *server.Description) {
	age := cookieAge
	if about.Grant.Expires != 0 {
		age = min(age, time.Duration(about.Grant.Expires-about.Now)*time.Millisecond)
	}
	q.cookie(t.text(), max(int(age/time.Second), 1))
}

func (q *request) clearCookie() { q.cookie("", -1) }

// cookie sets the page's cookie; age is in seconds, below 0 for its end.
func (q *request) cookie(value string, age int) {
	http.SetCookie(q.w, &http.Cookie{Name: q.cookieName(), Value: value, Path: q.base + q.path, MaxAge: age,
		HttpOnly: true, Secure: q.site.secure(q.r), SameSite: http.SameSiteStrictMode})
}
