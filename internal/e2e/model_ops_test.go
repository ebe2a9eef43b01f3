package e2e

// The model's ops: what each method changes and answers.

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
)

// kind is what an argument has to be.
type kind int

const (
	aText    kind = iota // a string
	aKey                 // the name of an entry
	aPart                // … of a part
	aMessage             // a message's id
	aStatus              // completed, failed or aborted
	aSession             // a session's id
	aRef                 // a ref's id
	aHash                // of a ref's secret
	aSeal                // a public key: no test has one
	aNumber              // a whole number
	aSchema              // … from 1
	aObject              // a JSON object
	aList                // a JSON array
)

// argument is one that a method takes.
type argument struct {
	name string
	kind kind
}

var creation = []argument{{"external", aText}, {"hash", aHash}, {"label", aText}, {"actor", aText}}

// arguments are those of every method. create's and fork's ref is not among them:
// Commit refuses one that is no value.
var arguments = map[string][]argument{
	"create":     creation,
	"fork":       append([]argument{{"source", aSession}, {"via", aRef}, {"at", aNumber}}, creation...),
	"put":        {{"key", aKey}, {"payload", aObject}, {"schema_version", aSchema}},
	"remove":     {{"key", aKey}},
	"begin":      {{"message", aMessage}, {"payload", aObject}, {"schema_version", aSchema}},
	"appendText": {{"key", aPart}, {"offset", aNumber}, {"text", aText}},
	"finalize": {{"message", aMessage}, {"status", aStatus}, {"payload", aObject}, {"schema_version", aSchema},
		{"parts", aList}, {"usage", aObject}, {"error", aObject}, {"completed", aNumber}},
	"share": {{"ref", aRef}, {"hash", aHash}, {"rights", aList}, {"methods", aList}, {"message", aText}, {"label", aText},
		{"actor", aText}, {"expires_at", aNumber}, {"redemptions", aNumber}, {"from", aNumber}, {"seal", aSeal}},
	"revoke": {{"ref", aRef}},
}

// wrong gives a reason for every argument that is not what it has to be.
func (c *call) wrong() (reasons []fault.Code) {
	for _, a := range arguments[c.method] {
		raw := c.args[a.name]
		if raw == nil {
			continue
		}
		if r := a.kind.wrong(parseValue(raw)); r != fault.None {
			reasons = append(reasons, r)
		}
	}
	return reasons
}

// wrong says why a value cannot be of this kind, None if it can.
func (k kind) wrong(v any) fault.Code {
	text, isText := v.(string)
	_, isObject := v.(map[string]any)
	_, isList := v.([]any)
	n, isNumber := v.(json.Number)
	target, id, isRef := strings.Cut(text, ".")
	unless := func(right bool, reason fault.Code) fault.Code {
		if right {
			return fault.None
		}
		return reason
	}
	switch k {
	case aObject:
		return unless(isObject, fault.BadPayload)
	case aList:
		return unless(isList, fault.BadArgument)
	case aNumber:
		return unless(isNumber, fault.BadArgument)
	case aSchema:
		return unless(isNumber && n != "0", fault.BadArgument)
	}
	if !isText {
		return fault.BadArgument
	}
	switch k {
	case aKey:
		return unless(validKey(text), fault.BadKey)
	case aPart:
		return unless(validKey(text) && strings.HasPrefix(text, "part/"), fault.BadKey)
	case aMessage:
		return unless(text != "" && !strings.Contains(text, "/"), fault.BadKey)
	case aStatus:
		return unless(text == "completed" || text == "failed" || text == "aborted", fault.BadArgument)
	case aSession:
		return unless(strings.HasPrefix(target, "ses_") && !isRef, fault.BadArgument)
	case aRef:
		return unless(strings.HasPrefix(target, "ses_") && id != "", fault.BadArgument)
	case aHash:
		return unless(len(text) == 43 && !strings.ContainsAny(text, "./"), fault.BadArgument)
	case aSeal:
		return fault.BadArgument
	}
	return fault.None
}

// call is one op on its way, its arguments values.
type call struct {
	w      *world
	s      *modelSession
	op     string // its id
	stream string
	grant  string
	method string
	args   map[string]json.RawMessage
}

// text is a string argument; "" if it is absent or null.
func (c *call) text(name string) string {
	var s string
	if raw := c.args[name]; raw != nil {
		if err := json.Unmarshal(raw, &s); err != nil {
			panic("the model was given a " + name + " that is no string: " + string(raw))
		}
	}
	return s
}

func (c *call) number(name string) uint64 {
	var n uint64
	if raw := c.args[name]; raw != nil {
		if err := json.Unmarshal(raw, &n); err != nil {
			panic("the model was given a " + name + " that is no number: " + string(raw))
		}
	}
	return n
}

func (c *call) schema() string {
	if raw := c.args["schema_version"]; raw != nil {
		return string(raw)
	}
	return "1"
}

func (c *call) changed() map[string]any { return map[string]any{"cursor": number(c.s.cursor)} }

func (c *call) unchanged() map[string]any {
	return map[string]any{"cursor": number(c.s.cursor), "unchanged": true}
}

// apply does the op; if it is refused, nothing is changed.
func (c *call) apply() (map[string]any, *refusal) {
	if reasons := c.wrong(); len(reasons) > 0 {
		return nil, &refusal{code: reasons[0], or: reasons}
	}
	creates := c.method == "create" || c.method == "fork"
	if !creates && !c.s.exists {
		return nil, refuse(fault.NotFound)
	}
	switch c.method {
	case "create", "fork":
		return c.create()
	case "put":
		return c.put()
	case "remove":
		return c.remove()
	case "begin":
		return c.begin()
	case "appendText":
		return c.appendText()
	case "finalize":
		return c.finalize()
	case "share":
		return c.share()
	case "revoke":
		return c.revoke()
	case "bumpEpoch":
		c.s.epoch++
		r := c.changedAt()
		r["cut"], r["epoch"] = r["cursor"], number(c.s.epoch)
		return r, nil
	}
	return nil, refuse(fault.UnknownMethod)
}

// validKey knows as much of the grammar as the tests need.
func validKey(key string) bool {
	kind, _, _ := strings.Cut(key, "/")
	return key == "session" || key == "session_diff" || kind == "message" || kind == "part" || kind == "model"
}

// changedAt makes the op's event and its answer.
func (c *call) changedAt() map[string]any {
	c.event()
	return c.changed()
}

func (c *call) create() (map[string]any, *refusal) {
	if c.s.exists {
		return nil, refuse(fault.AlreadyExists)
	}
	external := c.text("external")
	if external != "" && c.w.externals[external] {
		return nil, refuse(fault.AlreadyExists)
	}
	copied := map[string]*modelEntry{}
	r := map[string]any{}
	if c.method == "fork" {
		source, at, refused := c.source()
		if refused != nil {
			return nil, refused
		}
		for key, e := range source.entries {
			raw := e.raw
			if e.grown {
				raw = ""
			}
			copied[key] = &modelEntry{raw: raw, value: e.folded(), schema: e.schema, cursor: 1}
		}
		r["source"], r["at"] = source.id, number(at)
	}
	actor := c.text("actor")
	if actor == "" {
		actor = "owner"
	}
	if external != "" {
		c.w.claim(external)
	}
	id := c.text("ref")
	c.s.exists, c.s.epoch, c.s.entries = true, 1, copied
	c.s.grants[id] = &modelGrant{owner: true, actor: actor, rights: map[string]bool{"read": true, "append": true, "share": true, "revoke": true}}
	maps.Copy(r, c.changedAt())
	c.holds("external", "ref", "label", "source")
	r["session"], r["ref"] = c.s.id, id
	return r, nil
}

// holds looks whether the event that the op has just made holds these arguments:
// the state does not show them.
func (c *call) holds(names ...string) {
	log := c.w.logs[c.s.id]
	if c.s.cursor > uint64(len(log)) {
		return
	}
	e := &log[c.s.cursor-1]
	if e.Op != c.op {
		return // the batch is yet to be aborted
	}
	payload, _ := parseValue(e.Payload).(map[string]any)
	for _, name := range names {
		want := "null"
		if raw := c.args[name]; raw != nil {
			want = canonical(parseValue(raw))
		}
		if got := canonical(payload[name]); got != want {
			c.w.complaints = append(c.w.complaints, fmt.Sprintf("cursor %d of %s: %s has %s %s, not %s", e.Cursor, c.s.id, c.method, name, got, want))
		}
	}
}

// source is what a fork begins with: its source as it was at a cursor.
func (c *call) source() (source *modelSession, at uint64, r *refusal) {
	source = c.w.session(c.text("source"))
	if target, _, _ := strings.Cut(c.text("via"), "."); target != source.id {
		return nil, 0, refuse(fault.UnknownRef)
	}
	if !source.exists {
		return nil, 0, refuse(fault.NotFound)
	}
	if at = c.number("at"); at == 0 || at == source.cursor {
		return source, source.cursor, nil
	}
	if at > source.cursor {
		return nil, 0, refuse(fault.BadArgument)
	}
	past := c.w.past[source.id][at]
	if past == nil {
		panic(fmt.Sprintf("the model has not kept %s at cursor %d", source.id, at))
	}
	return past, at, nil
}

func (c *call) put() (map[string]any, *refusal) {
	key, raw := c.text("key"), string(c.args["payload"])
	if old := c.s.entries[key]; old != nil && !old.grown && old.raw == raw && old.schema == c.schema() {
		return c.unchanged(), nil
	}
	c.s.entries[key] = &modelEntry{raw: raw, value: parseValue([]byte(raw)).(map[string]any), schema: c.schema(), cursor: c.event()}
	return c.changed(), nil
}

func (c *call) remove() (map[string]any, *refusal) {
	key := c.text("key")
	if c.s.entries[key] == nil {
		return c.unchanged(), nil
	}
	if id, ok := strings.CutPrefix(key, "message/"); ok {
		if t := c.s.turns[id]; t != nil && t.ended == 0 {
			return nil, refuse(fault.TurnOpen)
		}
	}
	delete(c.s.entries, key)
	return c.changedAt(), nil
}

func (c *call) begin() (map[string]any, *refusal) {
	id, raw := c.text("message"), string(c.args["payload"])
	if t := c.s.turns[id]; t != nil {
		if t.ended == 0 {
			return nil, refuse(fault.TurnOpen)
		}
		return nil, refuse(fault.TurnEnded)
	}
	at := c.event()
	c.s.entries["message/"+id] = &modelEntry{raw: raw, value: parseValue([]byte(raw)).(map[string]any), schema: c.schema(), cursor: at}
	c.s.turns[id] = &modelTurn{status: "streaming", stream: c.stream, begun: at}
	return c.changed(), nil
}

func (c *call) appendText() (map[string]any, *refusal) {
	key, offset, text := c.text("key"), c.number("offset"), c.text("text")
	t := c.s.turns[strings.Split(key, "/")[1]]
	e := c.s.entries[key]
	switch {
	case t == nil:
		return nil, refuse(fault.NotFound)
	case t.ended != 0:
		return nil, refuse(fault.TurnEnded)
	case t.stream != c.stream:
		return nil, refuse(fault.NotYourTurn)
	case e == nil:
		return nil, refuse(fault.NotFound)
	case offset != e.length():
		return nil, &refusal{code: fault.WrongOffset, at: e.length()}
	case text == "":
		r := c.unchanged()
		r["length"] = number(offset)
		return r, nil
	}
	c.event()
	e.tail, e.grown = append(e.tail, text...), true
	r := c.changed()
	r["length"] = number(offset + uint64(len(text)))
	return r, nil
}

func (c *call) finalize() (map[string]any, *refusal) {
	id, status := c.text("message"), c.text("status")
	t := c.s.turns[id]
	digest := c.digest()
	switch {
	case t == nil:
		return nil, refuse(fault.NotFound)
	case t.ended != 0 && t.final == digest:
		r := c.unchanged()
		r["status"] = t.status
		return r, nil
	case t.ended != 0:
		return nil, refuse(fault.TurnEnded)
	case t.stream != c.stream && (status != "aborted" || !c.s.grants[c.grant].rights["revoke"]):
		return nil, refuse(fault.NotYourTurn)
	case len(c.args) > 2 && !c.s.grants[c.grant].rights["append"]: // more than message and status
		return nil, refuse(fault.MissingRight)
	}
	now := uint64(c.now())
	ended := now
	if n := c.number("completed"); n != 0 {
		ended = n
	}
	at := c.event()
	c.finalMessage(id, ended, at)
	given := map[string]json.RawMessage{}
	if raw := c.args["parts"]; raw != nil {
		var parts []struct {
			ID      string          `json:"id"`
			Payload json.RawMessage `json:"payload"`
		}
		if err := json.Unmarshal(raw, &parts); err != nil {
			panic(err)
		}
		for _, p := range parts {
			given["part/"+id+"/"+p.ID] = p.Payload
		}
	}
	c.finalParts(id, status, given, ended, at)
	t.status, t.ended, t.final = status, at, digest
	r := c.changed()
	r["status"] = status
	return r, nil
}

// digest tells equal finalizes.
func (c *call) digest() string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(c.args)) {
		text += fmt.Sprintf("%s=%s\n", name, c.args[name])
	}
	return text
}

// finalMessage is the message at its turn's end.
func (c *call) finalMessage(id string, ended, at uint64) {
	e := *c.s.entries["message/"+id]
	if raw := c.args["payload"]; raw != nil {
		e.value, e.schema = parseValue(raw).(map[string]any), c.schema()
	}
	v := maps.Clone(e.value)
	clock, isObject := v["time"].(map[string]any)
	if _, has := v["time"]; !has || isObject {
		if _, has := clock["completed"]; !has || c.number("completed") != 0 {
			clock = maps.Clone(clock)
			if clock == nil {
				clock = map[string]any{}
			}
			clock["completed"] = number(ended)
			v["time"] = clock
		}
	}
	if raw := c.args["usage"]; raw != nil {
		v["tokens"] = parseValue(raw)
	}
	if raw := c.args["error"]; raw != nil {
		v["error"] = parseValue(raw)
	}
	c.s.entries["message/"+id] = &modelEntry{value: v, schema: e.schema, cursor: at}
}

// finalParts closes what is still pending or running, folds what was streaming
// and puts the parts that were given.
func (c *call) finalParts(id, status string, given map[string]json.RawMessage, ended, at uint64) {
	for key, raw := range given {
		v := parseValue(raw).(map[string]any)
		closed, changed := closed(v, status, ended)
		old := c.s.entries[key]
		if old != nil && !old.grown && !changed && old.raw == string(raw) && old.schema == "1" {
			continue
		}
		e := &modelEntry{value: closed, schema: "1", cursor: at}
		if !changed {
			e.raw = string(raw)
		}
		c.s.entries[key] = e
	}
	for key, e := range c.s.entries {
		if !strings.HasPrefix(key, "part/"+id+"/") || given[key] != nil {
			continue
		}
		v := e.folded()
		if e.grown {
			if clock, ok := v["time"].(map[string]any); ok && clock["start"] != nil && clock["end"] == nil {
				clock = maps.Clone(clock)
				clock["end"] = number(ended)
				v["time"] = clock
			}
		}
		v, changed := closed(v, status, ended)
		if changed || e.grown {
			c.s.entries[key] = &modelEntry{value: v, schema: e.schema, cursor: at}
		}
	}
}

// closed is a part's value once its turn has ended.
func closed(v map[string]any, status string, ended uint64) (map[string]any, bool) {
	state, _ := v["state"].(map[string]any)
	if s, _ := state["status"].(string); s != "pending" && s != "running" {
		return v, false
	}
	v, state = maps.Clone(v), maps.Clone(state)
	state["status"], state["error"] = "error", "turn "+status
	if clock, ok := state["time"].(map[string]any); ok && clock["start"] != nil && clock["end"] == nil {
		clock = maps.Clone(clock)
		clock["end"] = number(ended)
		state["time"] = clock
	}
	v["state"] = state
	return v, true
}

func (c *call) share() (map[string]any, *refusal) {
	id := c.text("ref")
	if c.s.grants[id] != nil {
		return nil, refuse(fault.AlreadyExists)
	}
	if target, _, _ := strings.Cut(id, "."); target != c.s.id { // whether there is one is seen first
		return nil, &refusal{code: fault.BadArgument, or: []fault.Code{fault.BadArgument, fault.AlreadyExists}}
	}
	if strings.Contains(c.text("message"), "/") {
		return nil, refuse(fault.BadArgument)
	}
	if at := c.number("expires_at"); at > 0 && at < 1e12 { // a cursor, say, which is a time long ago
		return nil, refuse(fault.BadArgument)
	}
	parent := c.s.grants[c.grant]
	g := &modelGrant{parent: c.grant, epoch: c.s.epoch, actor: c.text("actor"), rights: map[string]bool{}}
	if g.actor == "" {
		g.actor = parent.actor
	}
	if g.actor != parent.actor && !strings.HasPrefix(g.actor, parent.actor+"/") {
		return nil, refuse(fault.Widening)
	}
	var names []string
	if err := json.Unmarshal(c.args["rights"], &names); err != nil {
		panic(err)
	}
	for _, n := range names {
		if !parent.rights[n] {
			return nil, refuse(fault.Widening)
		}
		g.rights[n] = true
	}
	c.s.grants[id] = g
	r := c.changedAt()
	c.holds("ref", "rights", "methods", "message", "label", "expires_at", "redemptions", "from")
	r["ref"], r["epoch"], r["actor"] = id, number(c.s.epoch), g.actor
	return r, nil
}

func (c *call) revoke() (map[string]any, *refusal) {
	id := c.text("ref")
	g := c.s.grants[id]
	switch {
	case g == nil:
		return nil, refuse(fault.NotFound)
	case !c.s.grants[c.grant].owner && !c.s.below(id, c.grant):
		return nil, refuse(fault.MissingRight)
	case g.cut != 0:
		r := c.unchanged()
		r["cut"] = number(g.cut)
		return r, nil
	}
	cut := c.event()
	for other, o := range c.s.grants {
		if o.cut == 0 && c.s.below(other, id) {
			o.cut = cut
		}
	}
	r := c.changed()
	r["cut"] = number(cut)
	return r, nil
}

// below says whether ref id is root or was minted under it.
func (s *modelSession) below(id, root string) bool {
	for ; id != ""; id = s.grants[id].parent {
		if id == root {
			return true
		}
		if s.grants[id] == nil {
			return false
		}
	}
	return false
}
