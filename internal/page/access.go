package page

// The page of who has access: the tree of refs with their limits and uses, and the audit.

import (
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page/internal/markup"
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
	var o markup.Out
	title := markup.OneLine(a.Title, markup.LabelBytes)
	if title == "" {
		title = "The space"
	}
	shell{title: "Access: " + title, base: a.Base, kind: "access", may: a.May}.open(&o)
	closes := a.Base + a.Path + "/close"
	if strings.HasPrefix(a.Path, "/sessions") {
		closes = a.Base + "/sessions/close"
	}
	plainBar(&o, "Access", closes)
	o.Lit(`<main id="session" class="narrow access" tabindex="-1" data-rights="`, markup.HTML(strings.Join(a.Rights.Names(), " ")), `"`)
	o.Lit(`><p class="up"><a`)
	o.Attr("href", a.Base+a.Path)
	o.Lit(` dir="auto">`)
	o.Text(title)
	o.Lit(`</a></p>`)
	a.tree(&o)
	a.audit(&o)
	o.Lit(`</main>`)
	shellClose(&o)
	_, err := w.Write(o.Bytes())
	return err
}

// may reports whether the page has a button for an action.
func (a *Access) may(action string) bool {
	return slices.Contains(a.May, action)
}

func (a *Access) tree(o *markup.Out) {
	o.Lit(`<section aria-labelledby="tree-title"><div class="section-head"><h2 id="tree-title">Who has access</h2><div class="does">`)
	if a.may("share") {
		o.Lit(`<button type="button" class="button primary script" data-act="share">Share&hellip;</button>`)
	}
	if a.may("rotate") {
		o.Lit(`<button type="button" class="button script" data-act="rotate">`)
		if a.Title == "" {
			o.Lit(`Replace the root ref&hellip;</button>`)
		} else {
			o.Lit(`Replace the owner&#39;s ref&hellip;</button>`)
		}
	}
	if a.may("epoch") {
		o.Lit(`<button type="button" class="button script" data-act="epoch">Revoke every share&hellip;</button>`)
	}
	o.Lit(`</div></div>`)
	if len(a.Tree) > 0 {
		open := 0
		for i := range a.Tree {
			r := &a.Tree[i]
			for depth := min(r.Depth+1, open+1); open != depth; { // a ref is at most one below the one before it
				if open < depth {
					o.Lit(`<ul class="refs">`)
					open++
				} else {
					o.Lit(`</li></ul>`)
					open--
				}
			}
			if i > 0 && a.Tree[i-1].Depth >= r.Depth {
				o.Lit(`</li>`)
			}
			a.ref(o, r)
		}
		for ; open > 0; open-- {
			o.Lit(`</li></ul>`)
		}
		pageLinks(o, a.Base, a.TreeFirst, a.TreeNext)
	}
	o.Lit(`</section>`)
}

// ref writes a ref of the tree, up to the refs below it.
func (a *Access) ref(o *markup.Out, r *Ref) {
	class := markup.HTML("ref")
	if r.Dead != fault.None {
		class = "ref dead"
	}
	o.Lit(`<li><div class="`, class, `"`)
	o.Attr("data-ref", r.ID)
	o.Lit(`><div class="of"><h3 dir="auto">`)
	name := refName(r.Grant)
	o.Text(name)
	o.Lit(`</h3><p class="meta"><code class="id">`)
	o.Text(shortID(r.ID))
	o.Lit(`</code>`)
	if a.Title == "" && capability.IsSession(r.Target) {
		o.Lit(`<span>of `)
		if a.Rights.Has(capability.Manage) {
			o.Lit(`<a`)
			o.Attr("href", a.Base+"/sessions/"+r.Target)
			o.Lit(`><code class="id">`)
			o.Text(r.Target)
			o.Lit(`</code></a>`)
		} else {
			o.Element("code", "id", r.Target)
		}
		o.Lit(`</span>`)
	}
	if r.ID == a.Own {
		o.Lit(`<span class="tag">this page</span>`)
	}
	o.Element("span", "state", r.state())
	if actor := markup.OneLine(r.Actor, markup.LabelBytes); actor != "" && actor != name {
		o.Lit(`<span>as <bdi>`)
		o.Text(actor)
		o.Lit(`</bdi></span>`)
	}
	o.Lit(`</p><p class="rights">`)
	for _, right := range r.Rights.Names() {
		o.Element("span", "tag", right)
	}
	for _, limit := range r.limits() {
		o.Element("span", "tag limit", limit)
	}
	if r.Expires != 0 {
		o.Lit(`<span class="tag limit">until `)
		o.Time(r.Expires)
		o.Lit(`</span>`)
	}
	o.Lit(`</p><p class="meta"><span>`)
	o.Text(markup.Plural(int(min(r.Uses, 1e9)), "use"))
	o.Lit(`</span>`)
	if r.LastUsed != 0 {
		o.Lit(`<span>last `)
		o.Time(r.LastUsed)
		o.Lit(`</span>`)
	}
	o.Lit(`<span>made `)
	o.Time(r.Created)
	o.Lit(`</span>`)
	if r.Revoked != 0 {
		o.Lit(`<span>ended `)
		o.Time(r.Revoked)
		o.Lit(`</span>`)
	}
	o.Lit(`</p></div>`)
	if r.Dead == fault.None && a.may("revoke") {
		o.Lit(`<button type="button" class="button script" data-act="revoke"`)
		o.Attr("data-ref", r.ID)
		o.Attr("aria-label", "Revoke "+name+", "+shortID(r.ID))
		if r.IsRoot() || r.Owner {
			o.Lit(` data-owner`)
		}
		o.Lit(`>Revoke&hellip;</button>`)
	}
	o.Lit(`</div>`)
}

// refName returns what people call a ref.
func refName(g *capability.Grant) string {
	switch label := markup.OneLine(g.Label, markup.LabelBytes); {
	case label != "":
		return label
	case g.Owner:
		return "The owner's ref"
	case g.IsRoot():
		return "The root ref"
	case g.Actor != "":
		return markup.OneLine(g.Actor, markup.LabelBytes)
	}
	return "A ref"
}

// shortID returns the part of a ref's id by which people tell it: as the audit names it.
func shortID(id string) string {
	_, tail, ok := strings.Cut(id, ".")
	if !ok {
		return markup.OneLine(id, markup.LabelBytes)
	}
	return markup.CutBytes(markup.OneLine(tail, markup.LabelBytes), 10)
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
			list = append(list, markup.OneLine(what+strings.Join(keys, ", "), 2*markup.LabelBytes))
		}
	}
	keys("only ", r.Methods)
	if r.VisibleFrom > 1 {
		list = append(list, "from cursor "+strconv.FormatUint(r.VisibleFrom, 10))
	}
	if r.Message != "" {
		list = append(list, markup.OneLine("message "+r.Message+" alone", markup.LabelBytes))
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

func (a *Access) audit(o *markup.Out) {
	if a.Audit == nil {
		return
	}
	o.Lit(`<section aria-labelledby="audit-title"><h2 id="audit-title">Audit</h2><ol class="audit">`)
	for _, row := range a.Audit {
		auditRow(o, row)
	}
	o.Lit(`</ol>`)
	pageLinks(o, a.Base, a.AuditNewest, a.AuditOlder)
	o.Lit(`</section>`)
}

func auditRow(o *markup.Out, r *capability.AuditRow) {
	o.Lit(`<li>`)
	o.Time(r.At)
	o.Lit(`<span class="did"><span class="act-name">`)
	o.Text(r.Act.String())
	o.Lit(`</span>`)
	if actor := markup.OneLine(r.Actor, markup.LabelBytes); actor != "" {
		o.Lit(` by <bdi>`)
		o.Text(actor)
		o.Lit(`</bdi>`)
	}
	if r.Ref != "" {
		o.Lit(` `)
		o.Element("code", "id", shortID(r.Ref))
	}
	if r.Subject != "" {
		o.Lit(` on `)
		subject := r.Subject
		if capability.Target(subject) != "" {
			subject = shortID(subject)
		}
		o.Element("code", "id", markup.OneLine(subject, markup.LabelBytes))
	}
	if r.Count > 1 {
		o.Lit(` <span class="times">`)
		o.Text(strconv.FormatUint(uint64(r.Count), 10))
		o.Lit(`×</span>`)
	}
	if r.Reason != fault.None {
		o.Lit(` `)
		o.Element("span", "refused", strings.ReplaceAll(r.Reason.String(), "_", " "))
	}
	o.Lit(`</span><span class="meta">`)
	if r.Cursor != 0 {
		o.Lit(`<span>cursor `)
		o.Text(strconv.FormatUint(r.Cursor, 10))
		o.Lit(`</span>`)
	}
	o.Element("span", "peer", markup.OneLine(r.Peer, markup.LabelBytes))
	o.Lit(`</span></li>`)
}
