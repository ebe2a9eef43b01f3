package session

// What a ref that is for one message covers of a session: that message, its
// parts and its turn. What it does not cover it cannot write, and is not shown:
// in an event's place stands a cursor mark, so that its holder knows how far the
// log is and nothing else.

import (
	"strings"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// InScope says whether a ref covers what a key is about: a key of the state, or
// an event's.
func InScope(g *capability.Grant, key string) bool {
	if g.Message == "" {
		return true
	}
	if id, ok := strings.CutPrefix(key, "message/"); ok {
		return id == g.Message
	}
	rest, ok := strings.CutPrefix(key, "part/")
	id, _, _ := strings.Cut(rest, "/")
	return ok && id == g.Message
}

// Mark is the event that stands for hidden ones up to and with cursor.
func Mark(session string, cursor uint64) *Event {
	return &Event{Session: session, Cursor: cursor, Hidden: true}
}

// View is what a ref shows of consecutive events: those it covers, and a mark for
// each run of others. The events themselves are shared.
func View(g *capability.Grant, events []*Event) []*Event {
	if g.Message == "" {
		return events
	}
	var shown []*Event
	for _, e := range events {
		switch last := len(shown) - 1; {
		case InScope(g, e.Key):
			shown = append(shown, e)
		case last >= 0 && shown[last].Hidden:
			shown[last].Cursor = e.Cursor
		default:
			shown = append(shown, Mark(e.Session, e.Cursor))
		}
	}
	return shown
}

// Beside says whether a live capability is for one message, and the refs below the
// one it stands on are not: these are none of its business.
func Beside(g, narrow *capability.Grant) bool {
	return narrow != nil && g != nil && narrow.Message != g.Message
}

// inScope says why the grant in hand does not cover what op is about. Refs are
// minted and revoked within what their own covers, so these ops are about no key.
func (a *applier) inScope(do op) *fault.Error {
	if a.grant.Message == "" {
		return nil
	}
	about := ""
	switch o := do.(type) {
	case *opShare:
		return nil
	case *opRevoke:
		if slot := a.v.grants[a.grant.ID]; slot == nil || !Beside(slot.grant, a.sub.Narrow) {
			return nil
		}
	case *opPut:
		about = o.key.String()
	case *opRemove:
		about = o.key.String()
	case *opAppendText:
		about = o.key.String()
	case *opBegin:
		about = MessageKey(o.message)
	case *opFinalize:
		about = MessageKey(o.message)
	}
	if about != "" && InScope(a.grant, about) {
		return nil
	}
	return fault.MissingRight.With("the ref is for message %s alone: ask for one that covers more", a.grant.Message)
}

// unseen says that what a key holds is from before the first cursor that the
// grant in hand shows. An op must not have it written into an event, which the
// ref's holder would be shown.
func (a *applier) unseen(e *Entry) bool { return e.Cursor < a.grant.From }

func (a *applier) notShown(key string) *fault.Error {
	return fault.MissingRight.With("%s is from before cursor %d, the first that the ref shows: give its value whole, or ask for a ref that shows it", key, a.grant.From)
}
