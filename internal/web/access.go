// …/access: who has access to a session or a space, under the ref of its page.

package web

import (
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// Bounds of one page of the tree and of the audit.
const (
	refsPerPage  = 200
	auditPerPage = 100
)

// serveAccess writes the page of who has access, or the page that asks for the ref.
func (q *request) serveAccess() error {
	switch {
	case q.token == "" && q.id == "":
		return q.serveSignIn()
	case q.token == "":
		return q.serveUnlock()
	}
	h, err := q.resolve(q.caller())
	var shown page.Access
	if err == nil {
		shown, err = q.readAccess(h)
	}
	if err != nil {
		return err
	}
	q.writeHTML(http.StatusOK, func(w io.Writer) error { return page.AccessPage(w, shown) })
	return nil
}

// readAccess reads what the page's ref may see of who has access, and refuses one that may see nothing of it and
// give nothing on.
func (q *request) readAccess(h *objects.Capability) (page.Access, error) {
	desc, err := h.Describe(q.r.Context())
	if err != nil {
		return page.Access{}, err
	}
	if err := q.site.acquireRender(q.r.Context()); err != nil {
		return page.Access{}, err
	}
	defer q.site.releaseRender()
	g := desc.Grant
	shown := page.Access{Base: q.base, Path: q.path, May: mayOf(h, g), Own: h.Ref(), Rights: g.Rights}
	if !h.IsSpace() {
		if shown.Title = desc.Title(); shown.Title == "" {
			shown.Title = displayName(desc)
		}
	}
	sees := slices.Contains(shown.May, "share")
	if g.Rights.Has(capability.Revoke) {
		sees = true
		err = q.readTree(h, &shown)
	}
	if owns(h, g) && err == nil {
		sees = true
		err = q.readAudit(h, &shown)
	}
	if err == nil && !sees {
		err = fault.MissingRight.With("the ref does not allow to see who has access, nor to share")
	}
	return shown, err
}

// owns reports whether a ref is what an owner's or a root ref is.
func owns(h *objects.Capability, g *capability.Grant) bool {
	return g.Owner || h.IsSpace() && g.IsRoot()
}

// mayOf returns what a ref may do with access.
func mayOf(h *objects.Capability, g *capability.Grant) []string {
	may := []string{}
	if g.Rights.Has(capability.Share) {
		may = append(may, "share")
	}
	if g.Rights.Has(capability.Revoke) {
		may = append(may, "revoke")
		if !h.IsSpace() {
			may = append(may, "epoch")
		}
	}
	if owns(h, g) {
		may = append(may, "rotate")
	}
	return may
}

// readTree reads a page of the tree of refs.
func (q *request) readTree(h *objects.Capability, shown *page.Access) error {
	asked := session.TreeQuery{After: q.r.URL.Query().Get("refs"), Limit: refsPerPage}
	tree, err := h.Refs(q.r.Context(), asked)
	if err != nil {
		return err
	}
	depths := map[string]int{}
	for i := range tree.Rows {
		row := &tree.Rows[i]
		depth := 0
		if above, ok := depths[row.Grant.Parent]; ok {
			depth = above + 1
		}
		depths[row.Grant.ID] = depth
		ref := page.Ref{Grant: row.Grant, Depth: depth, Uses: row.Uses, LastUsed: row.LastUsed}
		if dead := capability.Check(row.Grant, row.Epoch, tree.Now, 0, ""); dead != nil {
			ref.Dead = dead.Code
		}
		shown.Tree = append(shown.Tree, ref)
	}
	if asked.After != "" {
		shown.TreeFirst = q.path + "/access"
	}
	if tree.Next != "" {
		shown.TreeNext = q.path + "/access?" + url.Values{"refs": {tree.Next}}.Encode()
	}
	return nil
}

// readAudit reads a page of the audit: the newest rows, or those before ?before=SEQ.
func (q *request) readAudit(h *objects.Capability, shown *page.Access) error {
	newest, err := h.Audit(q.r.Context(), 0, 1)
	if err != nil {
		return err
	}
	last := newest.Seq
	if before, err := strconv.ParseUint(q.r.URL.Query().Get("before"), 10, 63); err == nil && before > 0 && before <= last {
		last = before - 1
		shown.AuditNewest = q.path + "/access"
	}
	after := last - min(last, auditPerPage)
	shown.Audit = []*capability.AuditRow{}
	for after < last {
		got, err := h.Audit(q.r.Context(), after, int(last-after))
		if err != nil {
			return err
		}
		if len(got.Rows) == 0 {
			break
		}
		shown.Audit = append(shown.Audit, got.Rows...)
		after = got.Rows[len(got.Rows)-1].Seq
	}
	slices.Reverse(shown.Audit)
	if n := len(shown.Audit); n > 0 && shown.Audit[n-1].Seq > 1 {
		shown.AuditOlder = q.path + "/access?" + url.Values{"before": {strconv.FormatUint(shown.Audit[n-1].Seq, 10)}}.Encode() + "#audit-title"
	}
	return nil
}
