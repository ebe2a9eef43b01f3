package e2e

// What a random history's writers do: every verb, some of it to apply and some to be refused. What is known of a session
// is what its writers could know, the outcomes of what they sent. No rule is stated here.

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/outbox"
)

// The parties, by what they hold of every session.
const (
	owner  = "owner"  // its owner's ref, and the space's
	worker = "worker" // one to append with and to break claims
	helper = "helper" // one with all rights but to break claims and to answer
)

// heldRights are the rights of the refs that are given when a session is made, in this order.
var heldRights = []struct {
	by     string
	rights []string
}{
	{worker, []string{"read", "append", "break", "ask", "answer"}},
	{helper, []string{"read", "append", "share", "revoke", "schema", "revert", "compact", "ask"}},
	{"reader", []string{"read"}},
	{"logger", []string{"append"}},
}

// verbs are what is done. Each has to be applied and refused.
var verbs = []string{"put", "remove", "patch", "add", "begin", "appendText", "finalize", "claim", "claim the first", "renew", "release", "break",
	"schema", "revert to a message", "revert to a part", "revert to a cursor", "unrevert", "compact", "purge", "share", "revoke",
	"ask", "claim a request", "release a request", "answer", "withdraw",
	"fork", "fork at a cursor", "fork at a message", "create with a parent"}

// kin is a session of the family, as far as its writers know it.
type kin struct {
	owner  capability.Ref
	parent *kin
	byTime bool              // it is ordered by the times of its messages
	doors  map[string]*given // party → what it writes by
	given  []*given
	claims map[string]claimed // by key
	asked  map[string]string  // request that is open → the party that asked
	works  map[string]claimed // by request
	texts  map[string]uint64  // part → the length of its text
	open   map[string]string  // message → the party whose turn it is
	ended  []string           // messages whose turn has ended
	cursor uint64
}

func (k *kin) id() string { return k.owner.Target() }

type claimed struct {
	by     string
	cursor uint64
}

// given is a ref that was shared.
type given struct {
	ref     capability.Ref
	from    *given           // that it was made from; nil for the owner's
	grant   capability.Grant // its limits
	rights  []string
	reaches bool // the sessions below
	revoked bool
}

// dead says whether it has been revoked, or one above it.
func (g *given) dead() bool { return g != nil && (g.revoked || g.from.dead()) }

// generator makes batches.
type generator struct {
	rand    *rand.Rand
	space   capability.Ref
	family  []*kin
	size    int               // of the family, at most
	refs    map[string]*given // by op: what a share makes
	applied map[string]int    // verb → how often
	refused map[string]int    //
	serial  int
	brief   bool // leases may end soon
}

func (g *generator) of(list []string) string {
	if len(list) == 0 {
		return ""
	}
	return list[g.rand.IntN(len(list))]
}

func (g *generator) in(n int) bool { return g.rand.IntN(n) == 0 }

func (g *generator) own() string { return g.of([]string{"todo/1", "todo/2", "todo/3", "note"}) }

func (g *generator) message() string { return fmt.Sprint("m", 1+g.rand.IntN(5)) }

func (g *generator) part() string { return fmt.Sprintf("part/%s/p%d", g.message(), g.rand.IntN(2)) }

// value is one of a key. It says whose it is, so that it is known wherever it turns up.
func (g *generator) value(key string) json.RawMessage {
	g.serial++
	more := ""
	switch kind, _, _ := strings.Cut(key, "/"); kind {
	case "message":
		more = fmt.Sprintf(`"role":"user", "time":{"created":%d}`, 1000+g.rand.IntN(200))
	case "part":
		more = `"type" : "text","text":""`
	default:
		more = fmt.Sprintf(`"n" :%d,"odd":[1.50, "\u00e9\ud83d\ude00"]`, g.rand.IntN(9))
	}
	return json.RawMessage(fmt.Sprintf(`{ "at":%q, %s}`, key, more))
}

// verb chooses what to do, and whether it is to apply: half the time what has been seen least.
func (g *generator) verb() (name string, good bool) {
	if g.in(2) {
		return g.of(verbs), !g.in(4)
	}
	least := func(seen map[string]int, name string) string {
		for _, v := range verbs {
			if seen[v] < seen[name] || seen[v] == seen[name] && g.in(3) {
				name = v
			}
		}
		return name
	}
	a, r := least(g.applied, g.of(verbs)), least(g.refused, g.of(verbs))
	if g.applied[a] <= g.refused[r] {
		return a, true
	}
	return r, false
}

// seen says whether every verb has been applied and refused as far as the outcomes say: twice, since an op may do
// something else than it was to do.
func (g *generator) seen() bool {
	return !slices.ContainsFunc(verbs, func(v string) bool { return g.applied[v] < 2 || g.refused[v] < 2 })
}

// batch makes a batch of a party's.
func (g *generator) batch(by string) *sentBatch {
	b := &sentBatch{id: outbox.NewBatchID(), by: by}
	name, good := g.verb()
	if strings.HasPrefix(name, "fork") || strings.HasPrefix(name, "create") {
		if !good || len(g.family) < g.size || g.applied[name] < 2 {
			return g.makes(b, name, good)
		}
		name = "put"
	}
	k := g.family[g.rand.IntN(len(g.family))]
	b.in = g.door(k, by)
	g.do(b, k, name, good)
	for range g.rand.IntN(4) {
		if name, good = g.verb(); !strings.HasPrefix(name, "fork") && !strings.HasPrefix(name, "create") {
			g.do(b, k, name, good)
		}
	}
	if len(b.ops) == 0 {
		g.do(b, k, "put", true)
	}
	return b
}

// door is one by which a party gets into a session: mostly its own.
func (g *generator) door(k *kin, by string) door {
	var others []door
	for _, o := range k.given {
		if by != owner || g.in(8) {
			others = append(others, door{ref: o.ref})
		}
	}
	for up := k.parent; up != nil; up = up.parent {
		for _, o := range up.given {
			if o.reaches {
				others = append(others, door{o.ref, k.id()})
			}
		}
	}
	switch {
	case by == owner && g.in(3):
		return door{g.space, k.id()}
	case len(others) > 0 && g.in(5):
		return others[g.rand.IntN(len(others))]
	case by == owner:
		return door{ref: k.owner}
	}
	return door{ref: k.doors[by].ref}
}

// first makes a session of the family anew.
func (g *generator) first(by string) *sentBatch {
	b := &sentBatch{id: outbox.NewBatchID(), by: by}
	return g.make(b, "create", op("create"))
}

// makes forks a session, or makes a child of one.
func (g *generator) makes(b *sentBatch, name string, good bool) *sentBatch {
	k := g.family[g.rand.IntN(len(g.family))]
	b.first = k.owner
	if name == "create with a parent" {
		if !good {
			b.first = k.doors["reader"].ref
		}
		return g.make(b, name, op("create", arg("parent", k.id()), arg("via", b.first.ID), arg("part", "message/"+g.message())))
	}
	if name == "fork" && !good {
		b.first = k.doors["logger"].ref
	}
	o := op("fork", arg("source", k.id()), arg("via", b.first.ID))
	switch {
	case name == "fork at a cursor" && good:
		o.set(arg("at", 1+g.rand.Uint64N(k.cursor)))
	case name == "fork at a cursor":
		o.set(arg("at", k.cursor+1000))
	case name == "fork at a message" && good:
		o.set(arg("message", g.of([]string{"m1", g.message()})))
	case name == "fork at a message":
		o.set(arg("message", "none"))
	}
	return g.make(b, name, o)
}

// make makes a batch that makes a session, and gives refs to the parties.
func (g *generator) make(b *sentBatch, name string, o planOp) *sentBatch {
	b.makes, b.in, b.owner = true, door{ref: g.space}, g.space.New(capability.SessionPrefix+ulid.Make().String())
	o.Args = append([]planArg{arg("ref", b.owner.ID), arg("hash", hashText(b.owner.Secret.Hash()))}, o.Args...)
	if o.Method == "create" && g.in(3) {
		o.set(arg("order", "time"))
	}
	b.add(name, o)
	for _, to := range heldRights {
		g.share(b, &given{ref: b.owner.New(b.owner.Target()), rights: to.rights}, "owner/"+to.by)
	}
	for _, key := range []string{"message/m1", "part/m1/p1", "todo/1"} {
		b.add("put", put(key, g.value(key)))
	}
	return b
}

func (b *sentBatch) add(verb string, o planOp) {
	b.ops, b.verbs = append(b.ops, o), append(b.verbs, verb)
}

// share adds the op that gives a ref.
func (g *generator) share(b *sentBatch, to *given, actor string) {
	o := shareOp(to.ref, actor, to.rights...)
	for name, value := range map[string]any{"message": to.grant.Message, "read_keys": to.grant.ReadKeys, "from": to.grant.VisibleFrom} {
		if text := canonical(value); text != `""` && text != "null" && text != "0" {
			o.set(arg(name, value))
		}
	}
	if to.reaches {
		o.set(arg("children", []string{"read", "append"}))
	}
	g.refs[opID(b.id, len(b.ops))] = to
	b.add("share", o)
}

// do adds ops that do something.
func (g *generator) do(b *sentBatch, k *kin, verb string, good bool) {
	by := b.by
	never := arg("expect", uint64(1<<40))
	mine := func(is bool) (key string) { // one that is claimed by itself, or by others
		for _, at := range slices.Sorted(maps.Keys(k.claims)) {
			if (k.claims[at].by == by) == is && (key == "" || g.in(2)) {
				key = at
			}
		}
		return key
	}
	open := func(fits func(id string) bool) (request string) { // one that fits and may be open
		for _, id := range slices.Sorted(maps.Keys(k.asked)) {
			if fits(id) && (request == "" || g.in(2)) {
				request = id
			}
		}
		return request
	}
	ask := func() (id string) {
		g.serial++
		id = fmt.Sprint("r", g.serial)
		b.add("ask", op("ask", arg("request", id), arg("kind", g.of([]string{"prompt", "question", "check"})), arg("payload", g.value(session.RequestKey(id)))))
		return id
	}
	lease := arg("lease", 3_600_000)
	if g.brief && g.in(4) {
		lease = arg("lease", 1000)
	}
	switch verb {
	case "put":
		key := g.of([]string{g.own(), g.own(), g.part(), "message/" + g.message(), "session", "model/a"})
		o := put(key, g.value(key))
		if c := k.claims[key]; c.by == by {
			o.set(arg("claim", c.cursor))
		}
		if !good {
			o.set(never)
		}
		b.add(verb, o)
	case "remove":
		o := op("remove", arg("key", g.of([]string{g.own(), g.part(), "message/" + g.message()})))
		if !good {
			o.set(never)
		}
		b.add(verb, o)
	case "patch":
		key := g.own()
		if good { // a patch of no value is a put
			b.add("put", put(key, g.value(key)))
		}
		g.serial++
		o := op("patch", arg("key", key), arg("patch", map[string]any{"at": key, fmt.Sprint("m", g.rand.IntN(3)): g.serial, "odd": nil}))
		if c := k.claims[key]; c.by == by {
			o.set(arg("claim", c.cursor))
		}
		if !good {
			o.set(never)
		}
		b.add(verb, o)
	case "add":
		key := g.own()
		if good {
			b.add("put", put(key, g.value(key)))
		}
		o := op("add", arg("key", key), arg("member", "n"), arg("by", g.rand.IntN(5)-2))
		if !good {
			o.set(arg("member", "at")) // a text
		}
		b.add(verb, o)
	case "begin":
		g.serial++
		message := fmt.Sprint("t", g.serial)
		if !good && len(k.ended) > 0 {
			message = g.of(k.ended)
		}
		o := op("begin", arg("message", message), arg("payload", g.value("message/"+message)))
		if !good && g.in(2) {
			o.Expected = &planArg{JSON: json.RawMessage("1")}
		}
		b.add(verb, o)
		if good {
			key := "part/" + message + "/p"
			b.add("put", put(key, g.value(key)))
			b.add("appendText", op("appendText", arg("key", key), arg("offset", 0), arg("text", "ä🙂\" ")))
		}
	case "appendText":
		key := "part/m1/p1"
		for _, at := range slices.Sorted(maps.Keys(k.texts)) {
			if k.open[strings.Split(at, "/")[1]] == by {
				key = at
			}
		}
		offset := k.texts[key]
		if !good {
			offset += 1000
		}
		b.add(verb, op("appendText", arg("key", key), arg("offset", offset), arg("text", "¶")))
		k.texts[key] = offset + 2
	case "finalize":
		message := g.of(k.ended)
		for _, at := range slices.Sorted(maps.Keys(k.open)) {
			if good && k.open[at] == by {
				message = at
			}
		}
		if message == "" && !good {
			message = "none"
		}
		if message != "" {
			late := map[string]any{"id": "late", "payload": g.value("part/" + message + "/late")}
			b.add(verb, finalize(message, g.of([]string{"completed", "failed", "aborted"}), arg("usage", map[string]any{"n": 1}), arg("parts", []any{late})))
		}
	case "claim":
		key := g.own()
		if !good {
			key = "todo/none"
		}
		b.add(verb, op("claim", arg("key", key), lease))
	case "claim the first":
		o := op("claim", arg("prefix", "todo/"), lease)
		if !good {
			o.Expected = &planArg{JSON: json.RawMessage("1")}
		}
		b.add(verb, o)
	case "renew":
		if key := mine(good); key != "" {
			b.add(verb, op("claim", arg("key", key), lease))
		}
	case "release":
		key := mine(true)
		if claim := k.claims[key].cursor; key != "" && good {
			b.add(verb, op("release", arg("key", key), arg("claim", claim)))
		} else if !good {
			b.add(verb, op("release", arg("key", g.own()), arg("claim", claim+1000)))
		}
	case "break":
		key := mine(false)
		claim := k.claims[key].cursor
		if !good && by != helper { // which has not the right
			claim++
		}
		if key != "" {
			b.add(verb, op("release", arg("key", key), arg("claim", claim)))
		}
	case "schema":
		text := g.of([]string{`{"properties": {"n":{"type":"integer", "maximum":5}}}`, `true`, `{"required":["at"]}`})
		o := put("schema/todo", json.RawMessage(text))
		if !good {
			o.set(never)
		}
		b.add(verb, o)
	case "revert to a message":
		b.add(verb, op("revert", arg("to", g.or(good, "message/"+g.message(), "message/none"))))
	case "revert to a part":
		b.add(verb, op("revert", arg("to", g.or(good, g.part(), "part/m1/none"))))
	case "revert to a cursor":
		at := g.rand.Uint64N(k.cursor + 1)
		if !good {
			at = 1 << 40
		}
		b.add(verb, op("revert", arg("cursor", at)))
	case "unrevert":
		if good {
			b.add("revert to a message", op("revert", arg("to", "message/"+g.message())))
		}
		b.add(verb, op("unrevert"))
	case "compact":
		upto, summary := "message/"+g.message(), g.or(good, "message/"+g.message(), "message/none")
		if good && g.in(2) {
			upto = summary
		}
		b.add(verb, op("compact", arg("upto", upto), arg("summary", summary)))
	case "purge":
		b.add(verb, op("purge", arg("key", g.of([]string{g.own(), g.part(), "message/" + g.message()}))))
	case "share":
		to := &given{ref: k.owner.New(k.id()), rights: []string{"read"}}
		for _, from := range k.given {
			if from.ref.ID == b.in.ref.ID {
				to.from = from
			}
		}
		switch g.rand.IntN(6) {
		case 0:
			to.grant.Message = g.message()
		case 1:
			to.grant.ReadKeys = []string{"todo/"}
		case 2:
			to.grant.ReadKeys = []string{"message/m1", "note", "part/m2/", "todo/1"}
		case 3:
			to.grant.VisibleFrom = 1 + g.rand.Uint64N(k.cursor)
		case 4:
			to.rights, to.reaches = []string{"read", "append"}, by == owner
		case 5:
			to.rights = []string{"read", "append"}
		}
		actor := ""
		if !good {
			actor = "nobody/above"
		}
		g.share(b, to, actor)
	case "ask":
		if id := open(func(string) bool { return true }); !good && id != "" { // another one of that id
			b.add(verb, op("ask", arg("request", id), arg("kind", "other")))
		} else if good {
			ask()
		}
	case "claim a request":
		id := open(func(id string) bool { return k.works[id].by == "" })
		if !good {
			id = open(func(id string) bool { return k.works[id].by != "" && k.works[id].by != by })
		}
		if id == "" && good {
			id = ask()
		}
		if id != "" {
			b.add(verb, op("claim", arg("request", id), arg("lease", 3_600_000)))
		}
	case "release a request":
		if id := open(func(id string) bool { return k.works[id].by == by }); id != "" {
			claim := k.works[id].cursor
			if !good {
				claim += 1000
			}
			b.add(verb, op("release", arg("request", id), arg("claim", claim)))
		}
	case "answer":
		id := open(func(id string) bool { return k.works[id].by == by })
		claim := k.works[id].cursor
		if id == "" || g.in(2) {
			id, claim = open(func(id string) bool { return k.works[id].by == "" }), 0
		}
		if !good {
			id = "none"
		} else if id == "" {
			id = ask()
		}
		o := op("answer", arg("request", id), arg("payload", g.value(session.RequestStateKey(id))))
		if claim != 0 {
			o.set(arg("claim", claim))
		}
		b.add(verb, o)
	case "withdraw":
		id := open(func(id string) bool { return k.works[id].by == "" && k.asked[id] == by })
		if id == "" {
			id = ask()
		}
		if !good {
			id = "none"
		}
		b.add(verb, op("withdraw", arg("request", id)))
	case "revoke":
		id := k.owner.New(k.id()).ID
		if len(k.given) > 0 && good {
			id = k.given[g.rand.IntN(len(k.given))].ref.ID
		}
		b.add(verb, op("revoke", arg("ref", id)))
	}
}

func (g *generator) or(good bool, a, b string) string {
	if good {
		return a
	}
	return b
}

// kin is the session with an id.
func (g *generator) kin(id string) *kin {
	for _, k := range g.family {
		if k.id() == id {
			return k
		}
	}
	return nil
}

// learn takes the outcomes of a batch in.
func (g *generator) learn(b *sentBatch) {
	k := g.kin(b.target())
	for i, o := range b.ops {
		got := &b.got[i]
		var result struct {
			Key, Unchanged any
			Claim, Length  uint64
		}
		if got.Status != client.Applied {
			g.refused[b.verbs[i]]++
			continue
		}
		if err := json.Unmarshal(got.Result, &result); err != nil {
			panic(err)
		}
		if result.Unchanged == nil {
			g.applied[b.verbs[i]]++
		}
		if i == 0 && b.makes {
			k = &kin{owner: b.owner, doors: map[string]*given{}, claims: map[string]claimed{}, asked: map[string]string{}, works: map[string]claimed{}, texts: map[string]uint64{}, open: map[string]string{}}
			if o.Method == "create" { // a fork goes on by its own log
				k.parent, k.byTime = g.kin(b.first.Target()), o.argument("order") != nil
			}
			g.family = append(g.family, k)
		}
		k.cursor = max(k.cursor, got.Cursor)
		var key, message, request string
		for name, to := range map[string]*string{"key": &key, "message": &message, "request": &request} {
			if text := o.argument(name); text != nil {
				_ = json.Unmarshal(text, to)
			}
		}
		switch o.Method {
		case "put":
			if strings.HasPrefix(key, "part/") {
				k.texts[key] = 0
			}
		case "remove", "purge", "release":
			delete(k.claims, key)
			delete(k.works, request)
		case "ask":
			k.asked[request] = b.by
		case "answer", "withdraw":
			delete(k.asked, request)
		case "claim":
			if request != "" {
				k.works[request] = claimed{b.by, result.Claim}
			}
			if at, ok := result.Key.(string); ok {
				k.claims[at] = claimed{b.by, result.Claim}
			}
		case "begin":
			k.open[message] = b.by
		case "appendText":
			k.texts[key] = result.Length
		case "finalize":
			delete(k.open, message)
			k.ended = append(k.ended, message)
		case "revert":
			k.ended = append(k.ended, slices.Sorted(maps.Keys(k.open))...)
			clear(k.open)
		case "share":
			to := g.refs[got.OpID]
			k.given = append(k.given, to)
			if b.makes {
				k.doors[heldRights[i-1].by] = to
			}
		case "revoke":
			var id string
			_ = json.Unmarshal(o.argument("ref"), &id)
			for _, to := range k.given {
				to.revoked = to.revoked || to.ref.ID == id
			}
		}
	}
}

// mended are batches of the owner's that give parties new refs for those that were revoked.
func (g *generator) mended() (all []*sentBatch) {
	for _, k := range g.family {
		b := &sentBatch{id: outbox.NewBatchID(), by: owner, in: door{ref: k.owner}}
		for _, to := range heldRights {
			if k.doors[to.by].dead() {
				k.doors[to.by] = &given{ref: k.owner.New(k.id()), rights: to.rights}
				g.share(b, k.doors[to.by], "owner/"+to.by)
			}
		}
		if len(b.ops) > 0 {
			all = append(all, b)
		}
	}
	return all
}
