// Opening a page: its script sends the secret from the URL's fragment, which browsers never send
// by themselves, and gets a token for the page.

package web

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/page"
)

// maxOpening bounds the body of an opening, in bytes: a ref's text.
const maxOpening = 8 << 10

// opening is the body sent by a page's script. A session's page knows its ref's id.
type opening struct {
	Secret     string `json:"secret"`     // /s/ID: the text after the #
	Ref        string `json:"ref"`        // /sessions: a ref's text, or ID#SECRET
	Redemption string `json:"redemption"` // the redemption id; the same on each opening from one browser
}

// serveUnlock writes the page of a ref without a token: the same for any ref.
func (q *request) serveUnlock() error {
	if capability.Sealed(q.id) {
		return sealedFault()
	}
	q.writeHTML(http.StatusOK, func(w io.Writer) error { return page.Unlock(w, q.base, q.id) })
	return nil
}

func sealedFault() *fault.Error {
	return fault.Sealed.With("this ref is bound to a key, which no browser has: use it with the mooring command where the key is, or ask for a ref that is not sealed")
}

// writeHTML writes a small page.
func (q *request) writeHTML(status int, write func(io.Writer) error) {
	q.w.Header().Set("Content-Type", "text/html; charset=utf-8")
	q.w.WriteHeader(status)
	if q.r.Method != http.MethodHead {
		_ = write(q.w) // the reader may have gone
	}
}

// openSession opens a session's page with its ref's secret.
func (q *request) openSession() error {
	sent, err := q.readOpening()
	if err != nil {
		return err
	}
	secret, err := capability.ParseSecret(sent.Secret)
	if err != nil {
		return err
	}
	return q.openPage(q.id, secret, sent.Redemption)
}

// openSpace opens the list with a space's ref.
func (q *request) openSpace() error {
	sent, err := q.readOpening()
	if err != nil {
		return err
	}
	ref, err := parseRefInput(sent.Ref)
	if err != nil {
		return err
	}
	if !capability.IsSpace(ref.Target()) {
		return fault.BadArgument.With("this ref is one of a session: mooring link prints the address of its page")
	}
	return q.openPage(ref.ID, ref.Secret, sent.Redemption)
}

// readOpening reads the request's body.
func (q *request) readOpening() (sent opening, err error) {
	body := json.NewDecoder(http.MaxBytesReader(q.w, q.r.Body, maxOpening))
	if err := body.Decode(&sent); err != nil {
		return sent, fault.Malformed.With("the request is not a JSON object of strings, or is longer than %d bytes", maxOpening)
	}
	if len(sent.Redemption) > maxRedemption {
		return sent, fault.BadArgument.With("a redemption id has at most %d bytes", maxRedemption)
	}
	return sent, nil
}

// maxRedemption bounds a redemption's id, in bytes.
const maxRedemption = 64

// parseRefInput parses a ref's text, or only its id and secret.
func parseRefInput(text string) (capability.Ref, error) {
	text = strings.TrimSpace(text)
	if strings.Contains(text, "://") {
		return capability.ParseRef(text)
	}
	return capability.ParseRef("mooring://localhost/" + text)
}

// openPage checks that a ref shows something, and issues a token for its page. A browser that
// sends the same redemption id each time counts once.
func (q *request) openPage(id string, secret capability.Secret, redemption string) error {
	if capability.Sealed(id) {
		return sealedFault()
	}
	live, err := q.caller().Restore(capability.Ref{}.With(id, secret), redemption)
	if err != nil {
		return err
	}
	desc, err := live.Describe(q.r.Context())
	if err == nil && live.IsSpace() && !desc.Grant.Rights.Has(capability.List) {
		err = fault.MissingRight.With("the ref does not allow to list sessions")
	}
	var token string
	if err == nil {
		token, err = q.issueToken(id)
	}
	if err != nil {
		return err
	}
	q.writeJSON(map[string]string{"token": token})
	return nil
}

// writeJSON writes an object.
func (q *request) writeJSON(v map[string]string) {
	httpkit.WriteJSON(q.w, http.StatusOK, append(httpkit.JSON(v), '\n'))
}

// servePublicShare writes the id of the session's public share, for a ref that may share the
// session.
func (q *request) servePublicShare() error {
	sent, err := q.readOpening()
	var secret capability.Secret
	if err == nil {
		secret, err = capability.ParseSecret(sent.Secret)
	}
	var id string
	if err == nil {
		id, err = q.publicShare(capability.Ref{}.With(q.id, secret), sent.Redemption)
	}
	if err != nil {
		return err
	}
	q.writeJSON(map[string]string{"public": "/share/" + id})
	return nil
}

// publicShare returns the id of the living public share of a ref's session.
func (q *request) publicShare(ref capability.Ref, redemption string) (id string, err error) {
	live, err := q.caller().Restore(ref, redemption)
	if err != nil {
		return "", err
	}
	desc, err := live.Describe(q.r.Context())
	if err != nil {
		return "", err
	}
	// The id shows the whole session, even after the ref has ended.
	if g := desc.Grant; !g.Rights.Has(capability.Share) || !g.ShowsAllKeys() || g.WriteKeys != nil || g.VisibleFrom != 0 || g.Expires != 0 {
		return "", fault.MissingRight.With("the public share is shown only to refs that may share the whole session and do not expire: use the owner's")
	}
	if q.site.shares != nil {
		ids, err := q.site.shares.PublicIDs(q.r.Context(), []string{live.Target()})
		if err != nil {
			return "", err
		}
		id = ids[live.Target()]
	}
	if id == "" {
		return "", fault.NotFound.With("the session has no public share: share it in opencode, or link a ref of it")
	}
	return id, nil
}
