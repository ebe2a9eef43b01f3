package linear

// Calls, answers and sessions as a person reads them.

import (
	"fmt"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

func (c call) String() string {
	under := fmt.Sprintf("r%d: ", c.ref)
	switch c.kind {
	case callApply:
		return under + c.batch.String()
	case callRevoke:
		return under + fmt.Sprintf("Session.revoke r%d", c.target)
	case callBump:
		return under + "Session.revoke epoch"
	case callDescribe:
		return under + "describe"
	case callEvents:
		return under + "events"
	}
	return under + "restore"
}

func (b batch) String() string {
	words := make([]string, b.n)
	for i := range words {
		words[i] = b.ops[i].String()
	}
	text := strings.Join(words, "; ")
	if b.atomic {
		text = "atomic(" + text + ")"
	}
	return text
}

func (o op) String() string {
	text := "bumpEpoch"
	switch o.kind {
	case opPut:
		text = fmt.Sprintf("put k%d=%d", o.key, o.value)
	case opShare:
		text = fmt.Sprintf("share r%d (%s)", o.target, o.rights)
	case opRevoke:
		text = fmt.Sprintf("revoke r%d", o.target)
	case opRevert:
		text = fmt.Sprintf("revert to k%d", o.key)
	case opUnrevert:
		text = "unrevert"
	}
	if o.compare {
		text += fmt.Sprintf(" if at %d", o.expected)
	}
	return text
}

// text is an answer to c.
func (a answer) text(c call) string {
	switch {
	case a.lost:
		return "no answer"
	case a.refused != fault.None:
		return refusal{a.refused, a.at}.String()
	}
	switch c.kind {
	case callApply:
		words := make([]string, c.batch.n)
		for i := range words {
			words[i] = a.outcomes[i].String()
		}
		text := strings.Join(words, "; ")
		if a.cursorKnown {
			text += fmt.Sprintf(" (session at %d)", a.cursor)
		}
		return text
	case callRevoke, callBump:
		return fmt.Sprintf("cut %d, epoch %d", a.cut, a.epoch)
	case callDescribe:
		text := fmt.Sprintf("at %d, epoch %d, the ref's %d", a.cursor, a.epoch, a.minted)
		if a.dead != fault.None {
			text += fmt.Sprintf(", dead: %s, cut %d", a.dead, a.cut)
		}
		return text
	case callEvents:
		return fmt.Sprintf("at %d: %s", a.cursor, strings.ReplaceAll(strings.TrimSpace(a.log), "\n", ", "))
	}
	return "restored"
}

func (r refusal) String() string {
	if r.at != 0 {
		return fmt.Sprintf("%s@%d", r.code, r.at)
	}
	return r.code.String()
}

func (o outcome) String() string {
	text := o.status.String()
	if o.status != ledger.Applied {
		text += " " + refusal{o.reason, o.at}.String()
	}
	if o.cursor != 0 {
		text += fmt.Sprintf(" at %d", o.cursor)
	}
	if o.unchanged {
		text += " unchanged"
	}
	if o.cut != 0 {
		text += fmt.Sprintf(", cut %d", o.cut)
	}
	if o.epoch != 0 {
		text += fmt.Sprintf(", epoch %d", o.epoch)
	}
	if o.cause != 0 {
		text += fmt.Sprintf(", for op %d", o.cause)
	}
	return text
}

func (s session) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "at %d, epoch %d, values %v", s.cursor, s.epoch, s.values)
	for i, r := range s.refs {
		if !r.minted || r.owner && r.cut == 0 {
			continue
		}
		fmt.Fprintf(&b, "; r%d", i)
		if !r.owner {
			fmt.Fprintf(&b, " from r%d (%s), epoch %d", r.parent, r.rights, r.epoch)
		}
		if r.cut != 0 {
			fmt.Fprintf(&b, ", revoked at %d", r.cut)
		}
	}
	return b.String()
}
