package decide_test

import (
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
)

// A ref that is limited to keys shows those of its list, and writes those of the other, each by itself.
func TestRightsOfARefForKeys(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	mine := o.under(o.share(all, "write_keys", raw(`["message/m","part/m/","model/"]`)))
	part := o.under(o.share(all, "write_keys", raw(`["message/m","part/m/p"]`)))
	reader := o.under(o.share(all, "read_keys", raw(`["message/m"]`)))
	one := func(key string) anOp { return op("put", "key", key, "payload", raw(`{"text":""}`)) }
	begin := func(m string) anOp { return op("begin", "message", m, "payload", raw(`{}`)) }
	end := func(m string) anOp { return op("finalize", "message", m, "status", "completed") }
	grow := func(key string) anOp { return op("appendText", "key", key, "offset", 0, "text", "x") }
	for _, x := range []anOp{begin("m"), one("part/m/p"), grow("part/m/p"), end("m"), put("message/m"), op("remove", "key", "part/m/p"), put("model/a")} {
		mine.apply(x)
	}
	outside := []anOp{begin("n"), one("part/n/p"), end("n"), put("message/n"), put("message/mm"), op("remove", "key", "part/n/p"), put("session"), put("session_diff"), op("bumpEpoch")}
	for _, x := range outside {
		mine.refuse(ledger.Denied, fault.MissingRight, x)
	}
	for _, x := range []anOp{begin("m"), end("m"), one("part/m/q")} { // a turn's end writes all parts
		part.refuse(ledger.Denied, fault.MissingRight, x)
	}
	part.apply(one("part/m/p"))
	for _, x := range []anOp{begin("n"), one("part/n/p"), grow("part/n/p"), end("n"), put("session"), put("model/b")} {
		reader.apply(x)
	}
	mine.apply(op("revoke", "ref", mine.share([]string{"read", "append"})))
	for _, code := range []struct {
		args []any
		want fault.Code
	}{{[]any{"write_keys", raw(`["part/n/"]`)}, fault.Widening}, {[]any{"write_keys", raw(`[]`)}, fault.BadArgument},
		{[]any{"write_keys", raw(`["a b"]`)}, fault.BadArgument}, {[]any{"write_keys", raw(`"part/m/"`)}, fault.BadArgument},
		{[]any{"read_keys", raw(`["part/m/"]`), "message", "m"}, fault.BadArgument}} {
		id, _ := newRef(o.session)
		mine.refuse(ledger.Rejected, code.want, op("share", append([]any{"ref", id, "hash", sha(id), "rights", raw(`["read","append"]`)}, code.args...)...))
	}

	// A live capability for fewer keys sees and revokes nothing of its ref's.
	for _, narrow := range []capability.MintRequest{{ReadKeys: []string{"message/m"}}, {WriteKeys: []string{"message/m"}}} {
		live := o.under(o.share(all))
		below := live.share([]string{"read"})
		g, err := capability.Attenuate(w.store.Grant(live.ref), narrow, 1, w.store.Now)
		if err != nil {
			t.Fatal(err)
		}
		if !session.AttenuatedToKeys(w.store.Grant(live.ref), g) {
			t.Error("it is as its ref")
		}
		sub := live.batch(false, op("revoke", "ref", below))
		sub.Attenuated = g
		answers, _ := w.commit(sub)
		mustEqual(t, "revoking what is below its ref", answers[0].Outcomes[0].Reason, fault.MissingRight)
	}
}

// Of what is about no key of its message a ref may do nothing, but hand on and revoke
// what it covers; and a live capability only if the refs it would revoke are of its kind.
func TestRightsOfARefForOneMessage(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	ref := o.share(all)
	one := o.under(o.share(all, "message", "m"))
	for _, m := range []string{"m", "n"} {
		begin, part := op("begin", "message", m, "payload", raw(`{}`)), op("put", "key", "part/"+m+"/p", "payload", raw(`{"text":""}`))
		ops := []anOp{begin, part, op("appendText", "key", "part/"+m+"/p", "offset", 0, "text", "x"),
			op("finalize", "message", m, "status", "completed"), put("message/" + m), op("remove", "key", "part/"+m+"/p")}
		for _, x := range ops {
			if m == "m" {
				one.apply(x)
			} else {
				one.refuse(ledger.Denied, fault.MissingRight, x)
			}
		}
	}
	for _, x := range []anOp{put("session"), put("session_diff"), put("model/m"), op("bumpEpoch")} {
		one.refuse(ledger.Denied, fault.MissingRight, x)
	}
	one.apply(op("revoke", "ref", one.share([]string{"read"})))

	live := o.under(ref)
	below := live.share([]string{"read"}, "message", "m")
	revoke := func(narrow capability.MintRequest, ref string) fault.Code {
		g, err := capability.Attenuate(w.store.Grant(live.ref), narrow, 1, w.store.Now)
		if err != nil {
			t.Fatal(err)
		}
		sub := live.batch(false, op("revoke", "ref", ref))
		sub.Attenuated = g
		answers, _ := w.commit(sub)
		return answers[0].Outcomes[0].Reason
	}
	mustEqual(t, "narrowed to a message", revoke(capability.MintRequest{Message: "m"}, below), fault.MissingRight)
	mustEqual(t, "narrowed to less time", revoke(capability.MintRequest{Expires: w.store.Now + 9}, below), fault.None)
	mustEqual(t, "narrowed to less time, the ref it stands on", revoke(capability.MintRequest{Expires: w.store.Now + 9}, ref), fault.MissingRight)
	for name, c := range map[string]struct {
		g, narrow *capability.Grant
		want      bool
	}{
		"not narrowed": {&capability.Grant{Message: "m"}, nil, false}, "a ref that is gone": {nil, &capability.Grant{Message: "m"}, false},
		"to its ref's": {&capability.Grant{Message: "m"}, &capability.Grant{Message: "m"}, false}, "to one of all": {&capability.Grant{}, &capability.Grant{Message: "m"}, true},
	} {
		if got := session.AttenuatedToKeys(c.g, c.narrow); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
