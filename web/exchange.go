// The exchange: a page's script sends the secret that stands in its fragment, which
// no server ever gets to see, and the browser gets a cookie for it.

package web

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/page"
)

// maxExchange bounds what is sent for a cookie: a ref's text.
const maxExchange = 8 << 10

// exchange is what a page's script sends. A session's page knows its ref's id.
type exchange struct {
	Secret     string `json:"secret"`     // /s/ID: what stands behind the #
	Ref        string `json:"ref"`        // /sessions: a ref's text, or ID#SECRET
	Redemption string `json:"redemption"` // /s/ID/public: what the asker redeems the ref by
}

// unlock is the page before there is a cookie.
func (q *request) unlock() {
	id := strings.TrimPrefix(q.path, "/s/")
	if capability.Sealed(id) {
		q.refuse(sealed())
		return
	}
	q.html(func(w io.Writer) error { return page.Unlock(w, q.base, id) })
}

func sealed() *fault.Error {
	return fault.Sealed.With("this ref is bound to a key, which no browser has: use it with the mooring command where the key is, or ask for a ref that is not sealed")
}

// html answers with a small page.
func (q *request) html(write func(io.Writer) error) {
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.w.WriteHeader(http.StatusOK)
	if q.r.Method != http.MethodHead {
		_ = write(q.w) // the reader may have gone
	}
}

// openSession exchanges the secret of a session's ref.
func (q *request) openSession(id string) {
	sent, err := q.exchanged()
	if err != nil {
		q.refuse(err)
		return
	}
	secret, err := capability.ParseSecret(sent.Secret)
	if err != nil {
		q.refuse(err)
		return
	}
	q.open(id, secret)
}

// openSpace exchanges a space's ref.
func (q *request) openSpace() {
	sent, err := q.exchanged()
	if err != nil {
		q.refuse(err)
		return
	}
	ref, err := parseExchanged(sent.Ref)
	if err != nil {
		q.refuse(err)
		return
	}
	if !capability.IsSpace(ref.Target()) {
		q.refuse(fault.BadArgument.With("this ref is one of a session: mooring link prints the address of its page"))
		return
	}
	q.open(ref.ID, ref.Secret)
}

// exchanged reads what was sent.
func (q *request) exchanged() (sent exchange, err error) {
	body := json.NewDecoder(http.MaxBytesReader(q.w, q.r.Body, maxExchange))
	if err := body.Decode(&sent); err != nil {
		return sent, fault.Malformed.With("the request is no JSON object of strings, or longer than %d bytes", maxExchange)
	}
	return sent, nil
}

// parseExchanged reads a ref's text, or that part of it which says nothing of where.
func parseExchanged(text string) (capability.Ref, error) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "://") {
		return capability.ParseRef(text)
	}
	return capability.ParseRef("mooring://localhost/" + text)
}

// open sees that a ref shows something, and gives its cookie. A browser that has
// one for it already goes on with that one's redemption.
func (q *request) open(id string, secret capability.Secret) {
	if capability.Sealed(id) {
		q.refuse(sealed())
		return
	}
	t, ok := q.ticket(id)
	if !ok || !t.secret.Equal(secret) {
		t = ticket{id: id, secret: secret, redemption: newRedemption()}
	}
	held, err := q.caller().Restore(capability.Ref{}.With(t.id, t.secret), t.redemption)
	if err != nil {
		q.refuse(err)
		return
	}
	about, err := held.Describe(q.r.Context())
	if err == nil && held.IsSpace() && !about.Grant.Rights.Has(capability.List) {
		err = fault.MissingRight.With("the ref does not allow to list sessions")
	}
	if err != nil {
		q.refuse(err)
		return
	}
	q.setCookie(t, about)
	q.w.WriteHeader(http.StatusNoContent)
}

// publicOf tells whoever shows a ref that may share the session which public share
// it has.
func (q *request) publicOf() {
	sent, err := q.exchanged()
	if err == nil && len(sent.Redemption) > 64 {
		err = fault.BadArgument.With("a redemption id has at most 64 bytes")
	}
	var secret capability.Secret
	if err == nil {
		secret, err = capability.ParseSecret(sent.Secret)
	}
	var id string
	if err == nil {
		id, err = q.publicShare(capability.Ref{}.With(strings.TrimPrefix(q.path, "/s/"), secret), sent.Redemption)
	}
	if err != nil {
		q.refuse(err)
		return
	}
	q.w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(q.w).Encode(map[string]string{"public": "/share/" + id}) // the asker may have gone
}

// publicShare is the id of the living public share of a ref's session.
func (q *request) publicShare(ref capability.Ref, redemption string) (id string, err error) {
	held, err := q.caller().Restore(ref, redemption)
	if err != nil {
		return "", err
	}
	about, err := held.Describe(q.r.Context())
	if err != nil {
		return "", err
	}
	// The id shows the whole session, whatever becomes of the ref that led to it.
	if g := about.Grant; !g.Rights.Has(capability.Share) || g.Message != "" || g.From != 0 || g.Expires != 0 {
		return "", fault.MissingRight.With("the public share is told to refs that may share the whole session, for good: use the owner's")
	}
	if q.site.shares != nil {
		ids, err := q.site.shares.PublicIDs(q.r.Context(), []string{held.Target()})
		if err != nil {
			return "", err
		}
		id = ids[held.Target()]
	}
	if id == "" {
		return "", fault.NotFound.With("the session has no public share: share it in opencode, or link a ref of it")
	}
	return id, nil
}

// close ends what open began, in this browser.
func (q *request) close() {
	q.clearCookie()
	q.w.WriteHeader(http.StatusNoContent)
}
