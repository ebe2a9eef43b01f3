package decide_test

// Random trees of refs, durable and live, each narrowed from another by what was
// asked of it; then every op is tried with every one of them. The model knows
// nothing of grants: it keeps what each was asked to be, and says that one may do
// what all from it up to the owner were asked to allow.

import (
	"cmp"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// held is a ref, or a live capability narrowed from one.
type held struct {
	*writer
	parent  *held
	asked   capability.MintRequest
	live    bool
	narrow  *capability.Grant // of a live one
	owner   bool
	epoch   uint64 // made in; not looked at for the owner
	revoked bool   // a durable one, itself
}

// line is h and all it was made from, the owner last.
func (h *held) line() (line []*held) {
	for ; h != nil; h = h.parent {
		line = append(line, h)
	}
	return line
}

// base is the ref that a live capability stands on, or h itself.
func (h *held) base() *held {
	for h.live {
		h = h.parent
	}
	return h
}

// batch is the writer's, as h.
func (h *held) batch(x anOp) decide.Submission {
	sub := h.writer.batch(false, x)
	sub.Attenuated = h.narrow
	return sub
}

// tree is the world with its model.
type tree struct {
	*world
	t     *rapid.T
	held  []*held
	epoch uint64
}

var (
	treeMessages = []string{"m1", "m2"}
	treeMethods  = []string{"put", "remove", "begin", "appendText", "finalize"}
)

func newTree(t *rapid.T) *tree {
	w := newWorld(t)
	o := w.create("actor", "ann")
	o.space = "" // restored
	for _, m := range treeMessages {
		o.apply(op("begin", "message", m, "payload", raw(`{}`)))
		o.apply(op("put", "key", "part/"+m+"/p", "payload", raw(`{"text":""}`)))
	}
	root := &held{writer: o, owner: true, asked: capability.MintRequest{Rights: capability.SessionRights, Actor: "ann"}}
	return &tree{world: w, t: t, held: []*held{root}, epoch: 1}
}

// dead is why nothing is allowed to h any more.
func (w *tree) dead(h *held) fault.Code {
	base := h.base()
	for _, a := range base.line() {
		if a.revoked {
			return fault.Revoked
		}
	}
	expired := func(line []*held) bool {
		return slices.ContainsFunc(line, func(a *held) bool { return a.asked.Expires != 0 && a.asked.Expires <= w.store.Now })
	}
	stale := func(a *held) bool { return !a.owner && a.epoch != w.epoch }
	switch {
	case stale(base):
		return fault.StaleEpoch
	case expired(base.line()):
		return fault.Expired
	case stale(h):
		return fault.StaleEpoch
	case expired(h.line()):
		return fault.Expired
	}
	return fault.None
}

// may says whether all from h up to the owner allow a right, a method ("" for no
// op of append), and a message ("" for what is about none, "*" for what is about
// the whole session).
func (w *tree) may(h *held, right capability.Rights, method, message string) bool {
	for _, a := range h.line() {
		if !a.asked.Rights.Has(right) ||
			right == capability.Append && len(a.asked.Methods) > 0 && !slices.Contains(a.asked.Methods, method) ||
			a.asked.Message != "" && message != "" && message != a.asked.Message {
			return false
		}
	}
	return true
}

// wider says whether m asks for more than h has.
func (w *tree) wider(h *held, m capability.MintRequest, live bool) bool {
	for _, a := range h.line() {
		p := a.asked
		switch {
		case !p.Rights.Has(m.Rights),
			m.Expires != 0 && p.Expires != 0 && m.Expires > p.Expires,
			m.VisibleFrom != 0 && p.VisibleFrom > 1 && m.VisibleFrom < p.VisibleFrom,
			m.Message != "" && p.Message != "" && m.Message != p.Message,
			!live && m.MaxRedemptions != 0 && p.MaxRedemptions != 0 && m.MaxRedemptions > p.MaxRedemptions,
			m.Actor != "" && p.Actor != "" && m.Actor != p.Actor && !strings.HasPrefix(m.Actor, p.Actor+"/"),
			len(m.Methods) > 0 && len(p.Methods) > 0 && slices.ContainsFunc(m.Methods, func(x string) bool { return !slices.Contains(p.Methods, x) }):
			return true
		}
	}
	return false
}

// wish draws limits for something made from h: mostly such as h can give.
func (w *tree) wish(h *held) (m capability.MintRequest) {
	t := w.t
	some := func(what string, of int) bool { return rapid.IntRange(0, of).Draw(t, what) == 0 }
	m.Rights = capability.Rights(rapid.IntRange(1, 15).Draw(t, "rights"))
	if !some("any rights", 5) {
		for _, a := range h.line() {
			m.Rights &= a.asked.Rights
		}
		if m.Rights == 0 {
			m.Rights = capability.Read
		}
	}
	if m.Rights.Has(capability.Append) && some("methods?", 2) {
		m.Methods = rapid.SliceOfNDistinct(rapid.SampledFrom(treeMethods), 1, 3, rapid.ID[string]).Draw(t, "methods")
	}
	if some("expiry?", 3) {
		m.Expires = w.store.Now + int64(rapid.IntRange(1, 60).Draw(t, "expiry"))
	}
	if some("from?", 3) {
		m.VisibleFrom = uint64(rapid.IntRange(1, 12).Draw(t, "from"))
	}
	if some("message?", 3) {
		m.Message = rapid.SampledFrom(treeMessages).Draw(t, "message")
	}
	if some("limit?", 4) {
		m.MaxRedemptions = uint32(rapid.IntRange(1, 5).Draw(t, "limit"))
	}
	if some("actor?", 3) {
		m.Actor = rapid.SampledFrom([]string{"ann", "ann/bob", "ann/bob/carl", "eve"}).Draw(t, "actor")
	}
	return m
}

// any is one of those there are.
func (w *tree) any(what string) *held {
	return w.held[rapid.IntRange(0, len(w.held)-1).Draw(w.t, what)]
}

// grow makes one more from any of those there are.
func (w *tree) grow() {
	from := w.any("from whom")
	h := &held{parent: from, live: rapid.Bool().Draw(w.t, "live"), epoch: w.epoch}
	h.asked = w.wish(from)
	if h.live { // it is not redeemed
		h.asked.MaxRedemptions = 0
	}
	wider, dead := w.wider(from, h.asked, h.live), w.dead(from) != fault.None
	if h.live {
		if dead {
			return
		}
		base := w.store.Grant(from.base().ref)
		acting, refused := capability.CheckLive(base, from.narrow, w.epoch, w.store.Now, 0, "")
		if refused != nil {
			w.Fatalf("%s is dead: %v", from.ref, refused)
		}
		if h.narrow, refused = capability.Attenuate(acting, h.asked, w.epoch, w.store.Now); (refused != nil) != wider {
			w.Fatalf("attenuating %+v to %+v: wider is %v, and %v", acting, h.asked, wider, refused)
		}
		if refused == nil {
			h.writer = from.under(from.base().ref)
			w.held = append(w.held, h)
		}
		return
	}
	id, _ := newRef(from.session)
	args := []any{"ref", id, "hash", sha(id), "rights", h.asked.Rights, "methods", h.asked.Methods, "expires_at", h.asked.Expires,
		"from", h.asked.VisibleFrom, "redemptions", h.asked.MaxRedemptions}
	if h.asked.Message != "" {
		args = append(args, "message", h.asked.Message)
	}
	if h.asked.Actor != "" {
		args = append(args, "actor", h.asked.Actor)
	}
	out := w.one(from, op("share", args...))
	switch {
	case dead || !w.may(from, capability.Share, "", ""):
		w.denied(from, "share", out)
	case (out.Status == ledger.Applied) == wider || wider && out.Reason != fault.Widening:
		w.Fatalf("sharing %+v from one asked to be %+v: wider is %v, and %s %s", h.asked, from.asked, wider, out.Reason, out.Message)
	case !wider:
		h.writer = from.under(id)
		w.held = append(w.held, h)
	}
}

// one commits one op of h.
func (w *tree) one(h *held, x anOp) ledger.Outcome {
	answers, _ := w.commit(h.batch(x))
	if answers[0].Err != nil {
		w.Fatalf("%s: %v", x.method, answers[0].Err)
	}
	return answers[0].Outcomes[0]
}

// denied checks that h was refused for the right reason.
func (w *tree) denied(h *held, what string, out ledger.Outcome) {
	want := w.dead(h)
	if want == fault.None && out.Reason == fault.NotAnOwner {
		want = fault.NotAnOwner
	} else if want == fault.None {
		want = fault.MissingRight
	}
	if out.Status != ledger.Denied || out.Reason != want {
		w.Fatalf("%s by one asked to be %+v: status %d %s %s, want denied %s", what, h.asked, out.Status, out.Reason, out.Message, want)
	}
}

// direct is an op as Session.revoke does it.
func (w *tree) direct(h *held, x anOp) (out ledger.Outcome) {
	sub := h.batch(x)
	h.seq-- // it takes none
	sub.Direct = &decide.Direct{Epoch: x.method == "bumpEpoch"}
	if !sub.Direct.Epoch {
		sub.Direct.Ref = strings.Trim(string(x.args[0].JSON), `"`)
	}
	sub.Batch = ledger.Batch{Session: h.session}
	answers, _ := w.commit(sub)
	out.Status = ledger.Applied
	if err := answers[0].Err; err != nil {
		out = ledger.Outcome{Status: ledger.Denied, Reason: err.Code, Message: err.Message}
	}
	return out
}

// try has h do x, which it may or may not.
func (w *tree) try(h *held, may bool, x anOp) ledger.Outcome {
	var out ledger.Outcome
	if (x.method == "revoke" || x.method == "bumpEpoch") && rapid.Bool().Draw(w.t, "direct") {
		out = w.direct(h, x)
	} else {
		out = w.one(h, x)
	}
	switch {
	case !may || w.dead(h) != fault.None:
		w.denied(h, x.method, out)
	case out.Status == ledger.Denied:
		w.Fatalf("%s by one asked to be %+v: denied %s %s, and all above allow it", x.method, h.asked, out.Reason, out.Message)
	case out.Status == ledger.Applied && !strings.HasPrefix(w.last(h).Actor+"/", "ann/"):
		w.Fatalf("%s was done by %s", x.method, w.last(h).Actor)
	}
	return out
}

func (w *tree) last(h *held) *session.Event { return h.writer.last() }

// everything has h try every op that changes nothing of the tree.
func (w *tree) everything(h *held, n int) {
	for _, m := range append(slices.Clone(treeMessages), "m3") {
		part := "part/" + m + "/p"
		for _, x := range []anOp{
			op("put", "key", "message/"+m, "payload", raw(`{"n":%d}`, n)),
			op("put", "key", part, "payload", raw(`{"text":"","n":%d}`, n)),
			op("remove", "key", part+"x"),
			op("begin", "message", m, "payload", raw(`{}`)),
			op("appendText", "key", part, "offset", 0, "text", "x"),
			op("finalize", "message", m, "status", "completed"),
		} {
			if (x.method == "appendText" || x.method == "finalize") && w.unseen(h, m) {
				continue // turn_test.go has it
			}
			w.try(h, w.may(h, capability.Append, x.method, m), x)
		}
		if w.unseen(h, m) {
			continue
		}
		w.try(h, w.may(h, capability.Append, "finalize", m) || w.may(h, capability.Revoke, "", m), op("finalize", "message", m, "status", "aborted"))
	}
	for _, key := range []string{"session", "session_diff", "model/x"} {
		w.try(h, w.may(h, capability.Append, "put", "*"), op("put", "key", key, "payload", raw(`{"n":%d}`, n)))
		w.try(h, w.may(h, capability.Append, "remove", "*"), op("remove", "key", key))
	}
	w.try(h, w.may(h, capability.Append, "put", "m1") || w.may(h, capability.Append, "put", "m2") || w.may(h, capability.Append, "put", "*"),
		op("put", "key", "message/"+w.own(h), "payload", raw(`{"own":%d}`, n)))
	if !h.owner {
		w.try(h, false, op("delete"))
	}
}

// unseen says whether a message or some part of it is from before what h is shown.
func (w *tree) unseen(h *held, m string) bool {
	from := uint64(0)
	for _, a := range h.line() {
		from = max(from, a.asked.VisibleFrom)
	}
	entries, _ := w.store.State(h.session)
	return slices.ContainsFunc(entries, func(e *session.Entry) bool {
		return e.Cursor < from && (e.Key == "message/"+m || strings.HasPrefix(e.Key, "part/"+m+"/"))
	})
}

// message is the one that h is for, "" for all.
func (w *tree) message(h *held) string {
	for _, a := range h.line() {
		if a.asked.Message != "" {
			return a.asked.Message
		}
	}
	return ""
}

// own is the message that h is for, or any.
func (w *tree) own(h *held) string { return cmp.Or(w.message(h), "m1") }

// shown checks what h would be shown of the log.
func (w *tree) shown(h *held) {
	g := h.narrow
	if g == nil {
		g = w.store.Grant(h.ref)
	}
	message := ""
	from := uint64(0)
	for _, a := range h.line() {
		if a.asked.Message != "" {
			message = a.asked.Message
		}
		from = max(from, a.asked.VisibleFrom)
	}
	if g.VisibleFrom > 1 && g.VisibleFrom != from || g.VisibleFrom <= 1 && from > 1 {
		w.Fatalf("shows the log from %d, asked for %d", g.VisibleFrom, from)
	}
	events := w.store.Events(h.session)
	next := 0
	for _, e := range shownTo(g, events, new(session.HashKey)) {
		for !e.Hidden && next < len(events) && events[next].Cursor < e.Cursor {
			w.Fatalf("event %d is neither shown nor marked", events[next].Cursor)
		}
		for ; next < len(events) && events[next].Cursor <= e.Cursor; next++ {
			key := events[next].Key
			covered := message == "" || key == "message/"+message || strings.HasPrefix(key, "part/"+message+"/")
			if covered == e.Hidden {
				w.Fatalf("event %d about %s: hidden is %v for one that is for message %q", events[next].Cursor, key, e.Hidden, message)
			}
		}
	}
	if next != len(events) {
		w.Fatalf("the view ends after %d of %d events", next, len(events))
	}
}

// cut has some h revoke something, or bump the epoch, or time pass.
func (w *tree) cut() {
	h := w.any("who")
	switch rapid.IntRange(0, 5).Draw(w.t, "how") {
	case 0:
		w.store.Now += int64(rapid.IntRange(1, 30).Draw(w.t, "time"))
	case 1:
		out := w.try(h, w.may(h, capability.Revoke, "", "*"), op("bumpEpoch"))
		if out.Status == ledger.Applied {
			w.epoch++
		}
	default:
		target := w.any("whom").base()
		if target.owner {
			return // it would be the end of everything
		}
		below := slices.ContainsFunc(target.line(), func(a *held) bool { return !a.live && a == h.base() })
		below = below && (!h.live || target != h.base())
		if h.live && w.message(h) != w.message(h.base()) {
			below = false // for one message, and what is below its ref is not
		}
		if out := w.try(h, w.may(h, capability.Revoke, "", "") && (h.owner || below), op("revoke", "ref", target.ref)); out.Status == ledger.Applied {
			target.revoked = true
		}
	}
}

func TestTreesOfRefsAgainstAModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		w := newTree(t)
		for range rapid.IntRange(1, 12).Draw(t, "refs") {
			w.grow()
		}
		for n, h := range w.held {
			w.everything(h, n)
			w.shown(h)
		}
		for range rapid.IntRange(0, 4).Draw(t, "cuts") {
			w.cut()
			if rapid.Bool().Draw(t, "more") {
				w.grow()
			}
		}
		for n, h := range w.held { // who is dead is so for every op
			w.try(h, w.may(h, capability.Append, "put", w.own(h)), op("put", "key", "message/"+w.own(h), "payload", raw(`{"after":%d}`, n)))
			if m := w.own(h); w.dead(h) != fault.None {
				w.try(h, false, op("finalize", "message", m, "status", "aborted"))
				w.try(h, false, op("share", "ref", h.ref, "hash", sha(h.ref), "rights", []string{"read"}))
			}
		}
	})
}
