// The random peer's side of the protocol: what it says, and what it makes of what the vat says.

package rpc

import (
	"fmt"
	"slices"
	"strings"

	rpccp "capnproto.org/go/capnp/v3/std/capnp/rpc"
)

// say sends one message. Like all here it runs with the connection locked.
func (p *randomPeer) say() {
	if p.lies && p.rnd.IntN(15) == 0 {
		p.send(pick(p, []string{
			"finish q=%d", "return a=%d results cap=hosted:3", "release id=%d n=1", "resolve p=%d cap=receiver:0",
			"call q=%d to=answer:%d.1 echo", "disembargo sender=0 to=cap:%d", "disembargo receiver=%d to=cap:0",
			"unimplemented call q=%d to=cap:0 echo", "unimplemented resolve p=%d cap=hosted:1", "return a=%d take=1",
			"call q=%d to=cap:0 echo cap=answer:%d.1", "provide q=%d", "call q=%d to=cap:0 99 thirdparty", "null",
		}))
		return
	}
	switch p.rnd.IntN(10) {
	case 0:
		if id, ok := p.newQuestion(); ok {
			p.send(fmt.Sprintf("bootstrap q=%d", id))
		}
	case 1, 2, 3:
		to := p.target()
		cap := p.cap()
		if id, ok := p.newQuestion(); ok && to != "" {
			m := pick(p, []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "10", "99"})
			extra := ""
			if p.rnd.IntN(8) == 0 {
				extra = " yourself"
			}
			p.send(fmt.Sprintf("call q=%d to=%s %s n=1 cap=%s%s", id, to, m, cap, extra))
		} else if ok {
			delete(p.asked, id)
		}
	case 4, 5:
		if len(p.toAnswer) == 0 {
			return
		}
		id := p.shift(&p.toAnswer)
		switch p.rnd.IntN(6) {
		case 0:
			p.send(fmt.Sprintf("return a=%d exception failed no", id))
		case 1:
			p.send(fmt.Sprintf("return a=%d canceled", id))
		default:
			p.send(fmt.Sprintf("return a=%d results cap=%s", id, p.returnCap(id)))
		}
	case 6:
		for _, id := range keys(p.asked) {
			if q := p.asked[id]; !q.finished && p.rnd.IntN(3) == 0 {
				q.finished = true
				keep := ""
				if q.returned && p.rnd.IntN(2) == 0 {
					keep = " keepcaps"
					for _, e := range q.caps {
						p.held[e]++
					}
				}
				if q.returned {
					delete(p.asked, id)
				}
				if p.rnd.IntN(4) == 0 {
					keep += " late"
				}
				p.send(fmt.Sprintf("finish q=%d%s", id, keep))
				return
			}
		}
	case 7:
		if ids := keys(p.held); len(ids) > 0 {
			id := pick(p, ids)
			n := 1 + p.rnd.Uint32N(p.held[id])
			if p.held[id] -= n; p.held[id] == 0 {
				delete(p.held, id)
			}
			p.send(fmt.Sprintf("release id=%d n=%d", id, n))
		}
	case 8:
		for _, id := range keys(p.hosted) {
			if e := p.hosted[id]; e.promise && !e.resolved {
				to := p.cap()
				e.resolved = true
				if p.rnd.IntN(5) == 0 || to == "none" {
					p.send(fmt.Sprintf("resolve p=%d exception overloaded no", id))
				} else {
					p.send(fmt.Sprintf("resolve p=%d cap=%s", id, to))
				}
				return
			}
		}
	case 9:
		if len(p.embargoes) > 0 {
			p.sendEmbargo()
		}
	}
}

func (p *randomPeer) sendEmbargo() {
	line := p.embargoes[0]
	p.embargoes = p.embargoes[1:]
	p.send(line)
}

func (p *randomPeer) newQuestion() (uint32, bool) {
	for id := range uint32(40) {
		if q := p.asked[id]; q == nil || q.noFinish && p.rnd.IntN(2) == 0 {
			p.asked[id] = &peerQuestion{}
			return id, true
		}
	}
	return 0, false
}

// target is something of the vat's to call.
func (p *randomPeer) target() string {
	var all []string
	for _, id := range keys(p.held) {
		all = append(all, fmt.Sprintf("cap:%d", id))
	}
	for _, id := range keys(p.asked) {
		if q := p.asked[id]; !q.finished {
			all = append(all, fmt.Sprintf("answer:%d", id), fmt.Sprintf("answer:%d.1", id), fmt.Sprintf("answer:%d.1", id))
		}
	}
	if len(all) == 0 {
		return ""
	}
	return pick(p, all)
}

// cap is something to pass.
func (p *randomPeer) cap() string {
	all := []string{"none"}
	for _, id := range keys(p.held) {
		all = append(all, fmt.Sprintf("receiver:%d", id))
	}
	for _, id := range keys(p.asked) {
		if q := p.asked[id]; !q.finished && (q.returned || !p.tame) {
			all = append(all, fmt.Sprintf("answer:%d.1", id))
		}
	}
	id := p.rnd.Uint32N(12)
	e := p.hosted[id]
	switch {
	case e == nil:
		e = &peerExport{promise: p.rnd.IntN(2) == 0}
		p.hosted[id] = e
	case e.resolved:
		return pick(p, all) // not named again until it is released
	}
	e.count++
	kind := "hosted"
	if e.promise {
		kind = "promise"
	}
	if s := pick(p, append(all, "new", "new", "new")); s != "new" {
		if e.count--; e.count == 0 {
			delete(p.hosted, id)
		}
		return s
	}
	return fmt.Sprintf("%s:%d", kind, id)
}

// returnCap is something to return: for a question that was given up nothing that would be counted.
func (p *randomPeer) returnCap(id uint32) string {
	if !p.unended[id] {
		return "none"
	}
	return p.cap()
}

func (p *randomPeer) send(line string) {
	for strings.Contains(line, "%d") {
		line = strings.Replace(line, "%d", itoa(p.rnd.IntN(12)), 1)
	}
	p.log = append(p.log, "in  "+line)
	words, err := splitWords(line)
	if err != nil {
		p.t.Fatal(err)
	}
	b, err := buildMessage(parseArgs(words))
	if err != nil {
		p.t.Fatalf("%s: %v", line, err)
	}
	if c := p.c; c.ended == nil {
		if err := c.handle(b); err != nil {
			c.loop.EndLocked(abortEnding(err))
		}
	}
}

// trace keeps the model from what the vat says, and checks it.
func (p *randomPeer) trace(dir string, m rpccp.Message) {
	if dir != "out" {
		return
	}
	line := formatMessage(m)
	p.log = append(p.log, "out "+line)
	if strings.Contains(line, "UNREADABLE") {
		p.fail("a message that cannot be read")
		return
	}
	switch m.Which() {
	case rpccp.Message_Which_abort:
		p.ended = true
		if !p.lies {
			p.fail("aborted")
		}
	case rpccp.Message_Which_bootstrap:
		b, _ := m.Bootstrap()
		p.ask(b.QuestionId())
	case rpccp.Message_Which_call:
		call, _ := m.Call()
		p.ask(call.QuestionId())
		payload, _ := call.Params()
		for _, id := range exportsIn(payload) {
			p.held[id]++
		}
	case rpccp.Message_Which_finish:
		f, _ := m.Finish()
		if !p.unended[f.QuestionId()] && !p.lies {
			p.fail("finish of question %d, which is not open", f.QuestionId())
		}
		delete(p.unended, f.QuestionId())
	case rpccp.Message_Which_return:
		ret, _ := m.Return()
		q := p.asked[ret.AnswerId()]
		if q == nil || q.returned {
			if p.lies {
				return
			}
			p.fail("return of question %d, which is not open", ret.AnswerId())
			return
		}
		q.returned, q.noFinish = true, ret.NoFinishNeeded()
		if ret.Which() == rpccp.Return_Which_results {
			payload, _ := ret.Results()
			q.caps = exportsIn(payload)
		}
		if q.noFinish && (q.finished || ret.Which() != rpccp.Return_Which_results || len(q.caps) > 0) {
			p.fail("question %d is said to need no finish", ret.AnswerId())
		}
		if q.finished {
			if len(q.caps) > 0 && !p.lies {
				p.fail("capabilities in the return of a question that was finished before")
			}
			delete(p.asked, ret.AnswerId())
		}
	case rpccp.Message_Which_resolve:
		r, _ := m.Resolve()
		if r.Which() == rpccp.Resolve_Which_cap {
			d, _ := r.Cap()
			if id, ok := exportIn(d); ok {
				p.held[id]++
			}
		}
	case rpccp.Message_Which_release:
		r, _ := m.Release()
		e := p.hosted[r.Id()]
		if e == nil || r.ReferenceCount() > e.count {
			if !p.lies {
				p.fail("release of more than was given")
			}
			return
		}
		if e.count -= r.ReferenceCount(); e.count == 0 {
			delete(p.hosted, r.Id())
		}
	case rpccp.Message_Which_disembargo:
		d, _ := m.Disembargo()
		if ctx := d.Context(); ctx.Which() == rpccp.Disembargo_context_Which_senderLoopback {
			p.embargoes = append(p.embargoes, fmt.Sprintf("disembargo receiver=%d to=cap:0", ctx.SenderLoopback()))
		}
	}
}

func (p *randomPeer) ask(id uint32) {
	if (p.unended[id] || slices.Contains(p.toAnswer, id)) && !p.lies {
		p.fail("question %d is used again", id)
	}
	p.unended[id] = true
	p.toAnswer = append(p.toAnswer, id)
}

func exportsIn(payload rpccp.Payload) (ids []uint32) {
	list, err := payload.CapTable()
	if err != nil {
		return nil
	}
	for i := range list.Len() {
		if id, ok := exportIn(list.At(i)); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

func exportIn(d rpccp.CapDescriptor) (uint32, bool) {
	switch d.Which() {
	case rpccp.CapDescriptor_Which_senderHosted:
		return d.SenderHosted(), true
	case rpccp.CapDescriptor_Which_senderPromise:
		return d.SenderPromise(), true
	}
	return 0, false
}
