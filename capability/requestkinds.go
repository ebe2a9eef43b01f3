package capability

// Limits to kinds of requests: what a ref may ask, and what it may answer.

import (
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// maxRequestKinds is the maximum length of a list of kinds of requests.
const maxRequestKinds = 16

// AllowsKind reports whether a list of kinds of requests, nil for all, has one.
func AllowsKind(list []string, kind string) bool { return list == nil || slices.Contains(list, kind) }

// KindsText returns a list of kinds as people are shown it.
func KindsText(kinds []string) string { return strings.Join(kinds, ", ") }

// CheckRequestKinds checks the kinds of requests that the ref is to be limited to, as far as possible without its
// parent. The error is BadArgument.
func (m *MintRequest) CheckRequestKinds() *fault.Error {
	for _, list := range []struct {
		name  string
		kinds []string
		need  Rights
	}{{"ask", m.AskKinds, Ask}, {"answer", m.AnswerKinds, Answer}} {
		switch {
		case list.kinds == nil:
			continue
		case len(list.kinds) == 0 || len(list.kinds) > maxRequestKinds:
			return fault.BadArgument.With("%s names %d kinds of requests and names 1 to %d: leave it out for all", list.name, len(list.kinds), maxRequestKinds)
		case m.Rights != 0 && !m.Rights.Has(list.need):
			return fault.BadArgument.With("%s limits the right %s, which the new ref does not carry: add it, or leave %s out", list.name, list.need, list.name)
		}
		for _, k := range list.kinds {
			if !IsKind(k) {
				return fault.BadArgument.With("%s: %q is not a kind of requests: prompt, stop, permission, question or one of your own, of a to z, digits, _ and - (the first a letter)", list.name, fault.Clip(k))
			}
		}
	}
	return nil
}

// inheritRequestKinds limits the ref to its parent's kinds where it has the right and none are named.
func (g *Grant) inheritRequestKinds(parent *Grant) {
	if g.AskKinds == nil && g.Rights.Has(Ask) {
		g.AskKinds = slices.Clone(parent.AskKinds)
	}
	if g.AnswerKinds == nil && g.Rights.Has(Answer) {
		g.AnswerKinds = slices.Clone(parent.AnswerKinds)
	}
}

// kindsWithin reports whether a list of kinds has none that whole does not have.
func kindsWithin(part, whole []string) bool {
	return whole == nil || part != nil && subset(part, whole)
}
