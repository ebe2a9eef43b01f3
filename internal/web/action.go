// Actions: what the buttons of an opened page ask for (package console).

package web

import (
	"net/http"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/web/console"
)

// spaceTokenHeader carries the token of the space's page, for an action on a session's page that is done in
// the space, too.
const spaceTokenHeader = "Mooring-Space-Token"

// serveAction does an action under the page's ref, and writes its answer.
func (q *request) serveAction() error {
	sent, refused := console.Parse(q.r.Body)
	if refused != nil {
		return refused
	}
	on, err := q.actsOn(sent)
	var done *console.Answer
	if err == nil {
		done, err = console.Do(q.r.Context(), on, sent)
	}
	if err != nil {
		return err
	}
	httpkit.WriteJSON(q.w, http.StatusOK, append(httpkit.JSON(done), '\n'))
	return nil
}

// actsOn returns what the request's action is done on.
func (q *request) actsOn(sent *console.Request) (on *console.Page, err error) {
	c := q.caller()
	on = &console.Page{Token: q.token, Address: q.origin() + q.base, Assume: c.Assume}
	if on.On, err = q.resolve(c); err != nil {
		return nil, err
	}
	if token := q.r.Header.Get(spaceTokenHeader); token != "" || q.managed() && sent.Do == "fork" {
		on.Space, err = q.spaceOf(c, token)
	}
	return on, err
}

// spaceOf returns the space of a token, or of the page's own where the page is one of a space.
func (q *request) spaceOf(c *objects.Caller, token string) (*objects.Capability, error) {
	space := *q
	if space.id = ""; !q.managed() {
		space.token = token
	}
	return space.fromToken(c)
}

// maxChildren bounds the children that a page lists.
const maxChildren = 200

// addKin adds the sessions that were started by a page's session, with links if the page's ref g opens them, and
// the way back to the page of the one that started it.
func (q *request) addKin(h *objects.Capability, desc *objects.Description, to *page.State) error {
	children, err := h.Children(q.r.Context(), "", maxChildren)
	if err != nil {
		return err
	}
	to.Children, to.More = children.Sessions, children.Next != ""
	switch {
	case q.managed():
		to.Opens = "/sessions/"
	case desc.Grant.Children != 0:
		to.Opens = "/s/" + q.id + "/"
	}
	switch above := desc.Row.Parent.Session; {
	case above == "" || q.session == "":
	case above == capability.Target(q.id):
		to.Above, to.Start = "/s/"+q.id, desc.Row.Parent
	default:
		to.Above, to.Start = to.Opens+above, desc.Row.Parent
	}
	return nil
}

// allowed returns the actions that a page has buttons for. Forking takes a ref of the space that may create: the
// page's own or, on a page of a session's ref, that of a page of the space that the browser has open too, which
// the script looks for.
func (q *request) allowed(h *objects.Capability, g *capability.Grant) []string {
	may := []string{}
	if q.session == "" || q.managed() && q.mayCreate() { // a fork names a ref of its source, which a page of one below has not
		may = append(may, "fork")
	}
	if g.Rights.Has(capability.Revert) && g.ShowsAllKeys() && g.VisibleFrom <= 1 && g.WriteKeys == nil {
		may = append(may, "revert")
	}
	if g.Owner {
		may = append(may, "purge")
	}
	if len(mayOf(h, g)) > 0 {
		may = append(may, "access")
	}
	if g.Rights.Has(capability.Ask) && g.Message == "" && capability.CoversKey(g.WriteKeys, "request/") {
		for _, kind := range []string{session.KindPrompt, session.KindStop} {
			if capability.AllowsKind(g.AskKinds, kind) {
				may = append(may, "ask-"+kind)
			}
		}
	}
	if g.Rights.Has(capability.Answer) && g.Message == "" && capability.CoversKey(g.WriteKeys, "request/") {
		if g.AnswerKinds == nil {
			may = append(may, "answer")
		}
		for _, kind := range g.AnswerKinds {
			may = append(may, "answer-"+kind)
		}
	}
	return may
}

// mayCreate reports whether the ref of a page below /sessions may make sessions.
func (q *request) mayCreate() bool {
	space, err := q.fromToken(q.caller())
	if err != nil {
		return false
	}
	desc, err := space.Describe(q.r.Context())
	return err == nil && desc.Grant.Rights.Has(capability.Create)
}
