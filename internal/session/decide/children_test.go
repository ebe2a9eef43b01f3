package decide_test

import (
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/ledger"
)

// child returns the writer of a session that is not there yet, and the op that creates it under o's.
func (o *writer) child(via string, args ...any) (*writer, anOp) {
	c := o.w.newWriter()
	c.with = []string{via}
	return c, op("create", append([]any{"ref", c.ref, "hash", sha(c.ref), "parent", o.session, "via", via}, args...)...)
}

func TestChildren(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/m", "payload", raw(`{}`)))
	refs := map[string]string{
		"the owner's":          o.ref,
		"append":               o.share([]string{"append"}),
		"read":                 o.share([]string{"read"}),
		"a message":            o.share([]string{"read", "append"}, "message", "m"),
		"some keys":            o.share([]string{"read", "append"}, "write_keys", []string{"part/m/"}),
		"some keys to read":    o.share([]string{"read", "append"}, "read_keys", []string{"part/m/"}),
		"some methods":         o.share([]string{"append"}, "methods", []string{"put"}),
		"a revoked one":        o.share([]string{"append"}),
		"one of another epoch": o.share([]string{"append"}),
	}
	o.apply(op("revoke", "ref", refs["a revoked one"]))
	for _, c := range []struct {
		via, part string
		code      fault.Code
	}{
		{"the owner's", "", 0}, {"the owner's", "message/m", 0}, {"the owner's", "part/none/p", 0}, {"append", "part/m/p", 0}, {"some keys to read", "", 0},
		{"read", "", fault.MissingRight}, {"some methods", "message/m", fault.MissingRight}, {"a revoked one", "", fault.Revoked},
		{"a message", "message/m", 0}, {"a message", "part/m/p", 0}, {"a message", "", fault.MissingRight}, {"a message", "message/n", fault.MissingRight},
		{"some keys", "part/m/p", 0}, {"some keys", "message/m", fault.MissingRight}, {"some keys", "", fault.MissingRight},
	} {
		args := []any{}
		if c.part != "" {
			args = append(args, "part", c.part)
		}
		p, x := o.child(refs[c.via], args...)
		if c.code != 0 {
			p.refuse(ledger.Denied, c.code, x)
			mustEqual(t, c.via+": it is not made", w.store.Session(p.session).Life, session.Absent)
			continue
		}
		cursor := w.store.Session(o.session).Cursor
		p.apply(x)
		mustEqual(t, c.via+": the parent", w.store.Session(p.session).Parent, session.Parent{Session: o.session, Key: c.part, Above: o.session})
		mustEqual(t, c.via+": the parent's cursor", w.store.Session(o.session).Cursor, cursor)
		if payload := string(p.last().Payload); !strings.Contains(payload, `"parent":"`+o.session+`"`) || strings.Contains(payload, `"part":"`+c.part+`"`) != (c.part != "") {
			t.Errorf("the event does not name the parent: %s", payload)
		}
		p.apply(op("put", "key", "message/mine", "payload", raw(`{}`)))
	}

	p, x := o.child(o.ref)
	p.with = nil
	p.refuse(ledger.Denied, fault.UnknownRef, x) // it is named, and not held
	other := w.create()
	p, x = other.child(o.ref)
	p.refuse(ledger.Denied, fault.UnknownRef, x) // held, and of another session
	p, x = o.child(o.ref)
	p.space = w.newSpace()
	p.refuse(ledger.Rejected, fault.BadArgument, x) // in another space
	p, x = o.child(o.ref, "order", "time")
	p.apply(x)
	p.refuse(ledger.Rejected, fault.AlreadyExists, x)

	at, line := o, ""
	for depth := range session.MaxDepth {
		p, x := at.child(at.ref)
		p.apply(x)
		line = strings.TrimSpace(line + " " + at.session)
		mustEqual(t, "what is above", w.store.Session(p.session).Parent.Above, line)
		mustEqual(t, "the depth", w.store.Session(p.session).Parent.Depth(), depth+1)
		at = p
	}
	p, x = at.child(at.ref)
	p.refuse(ledger.Rejected, fault.TooLarge, x)

	o.apply(op("bumpEpoch"))
	p, x = o.child(refs["one of another epoch"])
	p.refuse(ledger.Denied, fault.StaleEpoch, x)
	o.apply(op("delete"))
	p, x = o.child(o.ref)
	p.refuse(ledger.Rejected, fault.SessionDeleted, x)
	other.apply(op("put", "key", "message/m", "payload", raw(`{}`))) // and nothing else is
}

// A parent's revoke and a child in one group: the child is there if it comes first, and not otherwise.
func TestChildAndRevokeInOneGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	for _, first := range []bool{true, false} {
		via := o.share([]string{"append"})
		p, x := o.child(via)
		subs := []decide.Submission{p.batch(false, x), o.batch(false, op("revoke", "ref", via))}
		if !first {
			subs[0], subs[1] = subs[1], subs[0]
		}
		w.commit(subs...)
		mustEqual(t, "it is there", w.store.Session(p.session).Life == session.Live, first)
	}
}
