package page

// The page of who has access: the tree of refs with their limits and uses, and the audit.

import (
	"io"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// Access is the content of the page of who has access to a session, or to a space.
type Access struct {
	Base  string   // path prefix of the server
	Path  string   // of the page of which this is the access, below Base: /s/REF, /sessions or /sessions/ID
	Title string   // of the session; "" of a space
	May   []string // as in Head
	Own   string   // id of the page's own ref

	Rights capability.Rights // what may be given on

	Tree        []Ref
	TreeFirst   string                 // path with query of the tree's first page, below Base; "" if this is it
	TreeNext    string                 // likewise of the next page; "" for none
	Audit       []*capability.AuditRow // the newest first
	AuditNewest string                 // path with query of the newest rows; "" if these are they
	AuditOlder  string                 // likewise of the ones before these; "" for none
}

// Ref is a ref of a tree.
type Ref struct {
	*capability.Grant
	Depth    int // below the tree's first
	Uses     uint64
	LastUsed int64      // Unix ms; 0: never
	Dead     fault.Code // why it allows nothing any more; None while it lives
}

// AccessPage writes the page of who has access. A part that the page's ref may not see is left out.
func AccessPage(w io.Writer, a Access) error {
	var o out
	title := oneLine(a.Title, labelBytes)
	if title == "" {
		title = "The space"
	}
	shell{title: "Access: " + title, base: a.Base, kind: "access", may: a.May}.open(&o)
	closes := a.Base + a.Path + "/close"
	if strings.HasPrefix(a.Path, "/sessions") {
		closes = a.Base + "/sessions/close"
	}
	plainBar(&o, "Access", closes)
	o.lit(`<main id="session" class="narrow access" tabindex="-1" data-rights="`, markup(strings.Join(a.Rights.Names(), " ")), `"`)
	o.lit(`><p class="up"><a`)
	o.attr("href", a.Base+a.Path)
	o.lit(` dir="auto">`)
	o.text(title)
	o.lit(`</a></p>`)
	a.tree(&o)
	a.audit(&o)
	o.lit(`</main>`)
	shellClose(&o)
	_, err := w.Write(o.b)
	return err
}

// may reports whether the page has a button for an action.
func (a *Access) may(action string) bool {
	for _, name := range a.May {
		if name == action {
			return true
		}
	}
	return false
}

func (a *Access) tree(o *out) {
	o.lit(`<section aria-labelledby="tree-title"><div class="section-head"><h2 id="tree-title">Who has access</h2><div class="does">`)
	if a.may("share") {
		o.lit(`<button type="button" class="button primary script" data-act="share">Share&hellip;</button>`)
	}
	if a.may("rotate") {
		o.lit(`<button type="button" class="button script" data-act="rotate">`)
		if a.Title == "" {
			o.lit(`Replace the root ref&hellip;</button>`)
		} else {
			o.lit(`Replace the owner&#39;s ref&hellip;</button>`)
		}
	}
	if a.may("epoch") {
		o.lit(`<button type="button" class="button script" data-act="epoch">Revoke every share&hellip;</button>`)
	}
	o.lit(`</div></div>`)
	if len(a.Tree) > 0 {
		open := 0
		for i := range a.Tree {
			r := &a.Tree[i]
			for depth := min(r.Depth+1, open+1); open != depth; { // a ref is at most one below the one before it
				if open < depth {
					o.lit(`<ul class="refs">`)
					open++
				} else {
					o.lit(`</li></ul>`)
					open--
				}
			}
			if i > 0 && a.Tree[i-1].Depth >= r.Depth {
				o.lit(`</li>`)
			}
			a.ref(o, r)
		}
		for ; open > 0; open-- {
			o.lit(`</li></ul>`)
		}
		pageLinks(o, a.Base, a.TreeFirst, a.TreeNext)
	}
	o.lit(`</section>`)
}

// ref writes a ref of the tree, up to the refs below it.
func (a *Access) ref(o *out, r *Ref) {
	class := markup("ref")
	if r.Dead != fault.None {
		class = "ref dead"
	}
	o.lit(`<li><div class="`, class, `"`)
	o.attr("data-ref", r.ID)
	o.lit(`><div class="of"><h3 dir="auto">`)
	name := refName(r.Grant)
	o.text(name)
	o.lit(`</h3><p class="meta"><code class="id">`)
	o.text(shortID(r.ID))
	o.lit(`</code>`)
	if a.Title == "" && capability.IsSession(r.Target) {
		o.lit(`<span>of `)
		if a.Rights.Has(capability.Manage) {
			o.lit(`<a`)
			o.attr("href", a.Base+"/sessions/"+r.Target)
			o.lit(`><code class="id">`)
			o.text(r.Target)
			o.lit(`</code></a>`)
		} else {
			o.element("code", "id", r.Target)
		}
		o.lit(`</span>`)
	}
	if r.ID == a.Own {
		o.lit(`<span class="tag">this page</span>`)
	}
	o.element("span", "state", r.state())
	if actor := oneLine(r.Actor, labelBytes); actor != "" && actor != name {
		o.lit(`<span>as <bdi>`)
		o.text(actor)
		o.lit(`</bdi></span>`)
	}
	o.lit(`</p><p class="rights">`)
	for _, right := range r.Rights.Names() {
		o.element("span", "tag", right)
	}
	for _, limit := range r.limits() {
		o.element("span", "tag limit", limit)
	}
	if r.Expires != 0 {
		o.lit(`<span class="tag limit">until `)
		o.time(r.Expires)
		o.lit(`</span>`)
	}
	o.lit(`</p><p class="meta"><span>`)
	o.text(plural(int(min(r.Uses, 1e9)), "use"))
	o.lit(`</span>`)
	if r.LastUsed != 0 {
		o.lit(`<span>last `)
		o.time(r.LastUsed)
		o.lit(`</span>`)
	}
	o.lit(`<span>made `)
	o.time(r.Created)
	o.lit(`</span>`)
	if r.Revoked != 0 {
		o.lit(`<span>ended `)
		o.time(r.Revoked)
		o.lit(`</span>`)
	}
	o.lit(`</p></div>`)
	if r.Dead == fault.None && a.may("revoke") {
		o.lit(`<button type="button" class="button script" data-act="revoke"`)
		o.attr("data-ref", r.ID)
		o.attr("aria-label", "Revoke "+name+", "+shortID(r.ID))
		if r.IsRoot() || r.Owner {
			o.lit(` data-owner`)
		}
		o.lit(`>Revoke&hellip;</button>`)
	}
	o.lit(`</div>`)
}

// refName returns what people call a ref.
func refName(g *capability.Grant) string {
	switch label := oneLine(g.Label, labelBytes); {
	case label != "":
		return label
	case g.Owner:
		return "The owner's ref"
	case g.IsRoot():
		return "The root ref"
	case g.Actor != "":
		return oneLine(g.Actor, labelBytes)
	}
	return "A ref"
}

// shortID returns the part of a ref's id by which people tell it: as the audit names it.
func shortID(id string) string {
	_, tail, ok := strings.Cut(id, ".")
	if !ok {
		return oneLine(id, labelBytes)
	}
	return cutBytes(oneLine(tail, labelBytes), 10)
}

// state returns whether a ref lives, or why it does not, in words.
func (r *Ref) state() string {
	switch {
	case r.Dead == fault.Revoked && r.Cut != 0:
		return "revoked at cut " + strconv.FormatUint(r.Cut, 10)
	case r.Dead == fault.StaleEpoch:
		return "revoked with every share"
	case r.Dead != fault.None:
		return strings.ReplaceAll(r.Dead.String(), "_", " ")
	case r.MaxRedemptions != 0 && r.Redemptions >= r.MaxRedemptions:
		return "used up" // earlier redeemers may still use it
	}
	return "alive"
}

// limits returns a ref's limits in words, without its expiry.
func (r *Ref) limits() (list []string) {
	keys := func(what string, keys []string) {
		if len(keys) > 0 {
			list = append(list, oneLine(what+strings.Join(keys, ", "), 2*labelBytes))
		}
	}
	keys("only ", r.Methods)
	if r.VisibleFrom > 1 {
		list = append(list, "from cursor "+strconv.FormatUint(r.VisibleFrom, 10))
	}
	if r.Message != "" {
		list = append(list, oneLine("message "+r.Message+" alone", labelBytes))
	}
	if r.Children != 0 {
		list = append(list, "in sessions below: "+strings.Join(r.Children.Names(), ", "))
	}
	keys("reads ", r.ReadKeys)
	keys("writes ", r.WriteKeys)
	keys("asks ", r.AskKinds)
	keys("answers ", r.AnswerKinds)
	if len(r.Seal) > 0 {
		list = append(list, "sealed")
	}
	if r.MaxRedemptions != 0 {
		list = append(list, strconv.FormatUint(uint64(r.Redemptions), 10)+" of "+strconv.FormatUint(uint64(r.MaxRedemptions), 10)+" redeemed")
	}
	return list
}

func (a *Access) audit(o *out) {
	if a.Audit == nil {
		return
	}
	o.lit(`<section aria-labelledby="audit-title"><h2 id="audit-title">Audit</h2><ol class="audit">`)
	for _, row := range a.Audit {
		auditRow(o, row)
	}
	o.lit(`</ol>`)
	pageLinks(o, a.Base, a.AuditNewest, a.AuditOlder)
	o.lit(`</section>`)
}

func auditRow(o *out, r *capability.AuditRow) {
	o.lit(`<li>`)
	o.time(r.At)
	o.lit(`<span class="did"><span class="act-name">`)
	o.text(r.Act.String())
	o.lit(`</span>`)
	if actor := oneLine(r.Actor, labelBytes); actor != "" {
		o.lit(` by <bdi>`)
		o.text(actor)
		o.lit(`</bdi>`)
	}
	if r.Ref != "" {
		o.lit(` `)
		o.element("code", "id", shortID(r.Ref))
	}
	if r.Subject != "" {
		o.lit(` on `)
		subject := r.Subject
		if capability.Target(subject) != "" {
			subject = shortID(subject)
		}
		o.element("code", "id", oneLine(subject, labelBytes))
	}
	if r.Count > 1 {
		o.lit(` <span class="times">`)
		o.text(strconv.FormatUint(uint64(r.Count), 10))
		o.lit(`×</span>`)
	}
	if r.Reason != fault.None {
		o.lit(` `)
		o.element("span", "refused", strings.ReplaceAll(r.Reason.String(), "_", " "))
	}
	o.lit(`</span><span class="meta">`)
	if r.Cursor != 0 {
		o.lit(`<span>cursor `)
		o.text(strconv.FormatUint(r.Cursor, 10))
		o.lit(`</span>`)
	}
	o.element("span", "peer", oneLine(r.Peer, labelBytes))
	o.lit(`</span></li>`)
}
