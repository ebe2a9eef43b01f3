package session_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/session"
)

func TestPutAndRemove(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	put := op("put", "key", "message/m1", "payload", raw(` { "a" : 1 } `))

	r := o.apply(put)
	mustEqual(t, "cursor", r["cursor"].(float64), 2)
	mustEqual(t, "payload, byte for byte", o.payload("message/m1"), ` { "a" : 1 } `)
	ev := o.last()
	if ev.Method != "put" || ev.Key != "message/m1" || ev.Ref != o.ref || ev.Actor != "owner" || ev.Outbox != o.outbox || ev.Op == "" || ev.Batch == "" || ev.Schema != 1 {
		t.Fatalf("event %+v", ev)
	}

	r = o.apply(put)
	if r["unchanged"] != true || r["cursor"].(float64) != 2 {
		t.Fatalf("an equal put gave %v", r)
	}
	r = o.apply(op("put", "key", "message/m1", "payload", raw(` { "a" : 1 } `), "schema_version", 2))
	mustEqual(t, "cursor after another schema", r["cursor"].(float64), 3)

	r = o.apply(op("remove", "key", "message/m1"))
	mustEqual(t, "cursor of remove", r["cursor"].(float64), 4)
	mustEqual(t, "payload", o.payload("message/m1"), "")
	r = o.apply(op("remove", "key", "message/m1"))
	mustEqual(t, "unchanged", r["unchanged"], any(true))
	r = o.apply(put)
	mustEqual(t, "cursor of the put after remove", r["cursor"].(float64), 5)
}

func TestMalformedOps(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	obj := raw(`{}`)
	id, _ := newRef(o.session)
	for name, c := range map[string]struct {
		op   anOp
		code fault.Code
	}{
		"no such method":          {op("shout", "key", "session"), fault.UnknownMethod},
		"system method":           {op("interrupted", "key", "message/m"), fault.UnknownMethod},
		"no key":                  {op("put", "payload", obj), fault.BadArgument},
		"key not text":            {op("put", "key", 5, "payload", obj), fault.BadArgument},
		"key a long number":       {op("put", "key", 12345, "payload", obj), fault.BadArgument},
		"bad key":                 {op("put", "key", "messages/x", "payload", obj), fault.BadKey},
		"ref key":                 {op("put", "key", "ref/x", "payload", obj), fault.BadKey},
		"no payload":              {op("put", "key", "session"), fault.BadArgument},
		"null payload":            {op("put", "key", "session", "payload", nil), fault.BadArgument},
		"payload a list":          {op("put", "key", "session", "payload", raw(`[1]`)), fault.BadPayload},
		"payload text":            {op("put", "key", "session", "payload", "x"), fault.BadPayload},
		"payload broken":          {op("put", "key", "session", "payload", raw(`{"a":`)), fault.Malformed},
		"payload not UTF-8":       {op("put", "key", "session", "payload", raw("{\"a\":\"\xff\"}")), fault.Malformed},
		"payload too deep":        {op("put", "key", "session", "payload", raw(`{"a":%s1%s}`, strings.Repeat("[", 20000), strings.Repeat("]", 20000))), fault.Malformed},
		"unknown argument":        {op("put", "key", "session", "payload", obj, "colour", 1), fault.BadArgument},
		"schema 0":                {op("put", "key", "session", "payload", obj, "schema_version", 0), fault.BadArgument},
		"schema a half":           {op("put", "key", "session", "payload", obj, "schema_version", 1.5), fault.BadArgument},
		"schema too high":         {op("put", "key", "session", "payload", obj, "schema_version", int64(1)<<40), fault.BadArgument},
		"remove without key":      {op("remove"), fault.BadArgument},
		"begin no id":             {op("begin", "message", "", "payload", obj), fault.BadArgument},
		"begin bad id":            {op("begin", "message", "a/b", "payload", obj), fault.BadKey},
		"append to a message":     {op("appendText", "key", "message/m", "offset", 0, "text", "x"), fault.BadKey},
		"append without offset":   {op("appendText", "key", "part/m/p", "text", "x"), fault.BadArgument},
		"append negative offset":  {op("appendText", "key", "part/m/p", "offset", -1, "text", "x"), fault.BadArgument},
		"append a number":         {op("appendText", "key", "part/m/p", "offset", 0, "text", 55), fault.BadArgument},
		"append without text":     {op("appendText", "key", "part/m/p", "offset", 0), fault.BadArgument},
		"append half a character": {op("appendText", "key", "part/m/p", "offset", 0, "text", raw(`"\ud83d"`)), fault.BadArgument},
		"append the other half":   {op("appendText", "key", "part/m/p", "offset", 0, "text", raw(`"a\\\ude00"`)), fault.BadArgument},
		"finalize without status": {op("finalize", "message", "m"), fault.BadArgument},
		"finalize odd status":     {op("finalize", "message", "m", "status", "done"), fault.BadArgument},
		"finalize odd parts":      {op("finalize", "message", "m", "status", "failed", "parts", raw(`{}`)), fault.BadArgument},
		"finalize part twice":     {op("finalize", "message", "m", "status", "failed", "parts", raw(`[{"id":"a","payload":{}},{"id":"a","payload":{}}]`)), fault.BadArgument},
		"finalize part extra":     {op("finalize", "message", "m", "status", "failed", "parts", raw(`[{"id":"a","payload":{},"x":1}]`)), fault.BadArgument},
		"finalize part schema 0":  {op("finalize", "message", "m", "status", "failed", "parts", raw(`[{"id":"a","payload":{},"schema_version":0}]`)), fault.BadArgument},
		"finalize part schema":    {op("finalize", "message", "m", "status", "failed", "parts", raw(`[{"schema_version":2147483648,"id":"a","payload":{}}]`)), fault.BadArgument},
		"finalize part a text":    {op("finalize", "message", "m", "status", "failed", "parts", raw(`["a"]`)), fault.BadArgument},
		"finalize part id":        {op("finalize", "message", "m", "status", "failed", "parts", raw(`[{"id":"a b","payload":{}}]`)), fault.BadKey},
		"finalize part payload":   {op("finalize", "message", "m", "status", "failed", "parts", raw(`[{"id":"a","payload":[]}]`)), fault.BadPayload},
		"finalize usage":          {op("finalize", "message", "m", "status", "failed", "usage", 7), fault.BadPayload},
		"share without rights":    {op("share", "ref", id, "hash", sha(id)), fault.BadArgument},
		"share odd right":         {op("share", "ref", id, "hash", sha(id), "rights", []string{"fly"}), fault.BadArgument},
		"share rights text":       {op("share", "ref", id, "hash", sha(id), "rights", "read"), fault.BadArgument},
		"share short hash":        {op("share", "ref", id, "hash", "abc", "rights", []string{"read"}), fault.BadArgument},
		"share odd ref":           {op("share", "ref", "abc", "hash", sha(id), "rights", []string{"read"}), fault.BadArgument},
		"share methods text":      {op("share", "ref", id, "hash", sha(id), "rights", []string{"append"}, "methods", "put"), fault.BadArgument},
		"share odd methods":       {op("share", "ref", id, "hash", sha(id), "rights", []string{"append"}, "methods", []string{"share"}), fault.BadArgument},
		"share control label":     {op("share", "ref", id, "hash", sha(id), "rights", []string{"read"}, "label", "a\x00b"), fault.BadArgument},
		"share long label":        {op("share", "ref", id, "hash", sha(id), "rights", []string{"read"}, "label", strings.Repeat("x", 300)), fault.TooLarge},
		"revoke odd ref":          {op("revoke", "ref", "x"), fault.BadArgument},
		"bumpEpoch with more":     {op("bumpEpoch", "to", 5), fault.BadArgument},
		"reference to nobody":     {op("put", "key", ledger.Ref{Op: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Path: "key"}, "payload", obj), fault.BadReference},
	} {
		t.Run(name, func(t *testing.T) {
			out := o.try(c.op)[0]
			if out.Status != ledger.Rejected || out.Reason != c.code || out.Message == "" {
				t.Fatalf("status %d reason %s (%s), want rejected %s", out.Status, out.Reason, out.Message, c.code)
			}
		})
	}
	mustEqual(t, "cursor", o.w.store.Session(o.session).Cursor, 1)
	for takes, x := range map[string]anOp{
		"it takes key, payload, schema_version": op("put", "payload", obj, "key", "session", "colour", 1),
		"it takes nothing":                      op("bumpEpoch", "to", 5),
	} {
		if out := o.try(x)[0]; !strings.HasSuffix(out.Message, takes) {
			t.Errorf("%s with too much: %s", x.method, out.Message)
		}
	}
}

func TestCheckOps(t *testing.T) {
	t.Parallel()
	lim := session.DefaultLimits()
	check := func(o anOp) fault.Code {
		// What comes before it leaves nothing behind, and what comes after it is not reached.
		good := op("finalize", "message", "m", "status", "failed", "error", raw(`{}`))
		ops := []ledger.Intent{{Method: good.method, Args: good.args}, {Method: o.method, Args: o.args}, {Method: "whisper"}}
		at, err := session.CheckOps(ops[:2], lim)
		if err == nil {
			return fault.None
		}
		if again, same := session.CheckOps(ops, lim); at != 1 || again != 1 || same.Error() != err.Error() {
			t.Errorf("%s: op %d: %v; with others behind it, op %d: %v", o.method, at, err, again, same)
		}
		return err.Code
	}
	ref := ledger.Ref{Op: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Path: "x"}
	for name, c := range map[string]struct {
		op   anOp
		code fault.Code
	}{
		"void":                           {op("void"), fault.None},
		"good put":                       {op("put", "key", "session", "payload", raw(`{}`)), fault.None},
		"all references":                 {op("put", "key", ref, "payload", ref, "schema_version", ref), fault.None},
		"fork of references":             {op("fork", "source", ref, "via", ref, "at", ref, "ref", ref, "hash", ref), fault.None},
		"delta of references":            {op("appendText", "key", ref, "offset", ref, "text", ref), fault.None},
		"share of references":            {op("share", "ref", ref, "hash", ref, "rights", ref), fault.None},
		"finalize of references":         {op("finalize", "message", ref, "status", ref), fault.None},
		"a number at its limit":          {op("appendText", "key", ref, "offset", int64(1)<<53, "text", ref), fault.None},
		"a number above it":              {op("appendText", "key", ref, "offset", int64(1)<<53+1, "text", ref), fault.BadArgument},
		"a schema at its limit":          {op("put", "key", ref, "payload", ref, "schema_version", 1<<31-1), fault.None},
		"a schema above it":              {op("put", "key", ref, "payload", ref, "schema_version", 1<<31), fault.BadArgument},
		"a payload at its limit":         {op("put", "key", ref, "payload", raw(`{"a":%q}`, strings.Repeat("x", lim.PayloadBytes-8))), fault.None},
		"a payload above it":             {op("put", "key", ref, "payload", raw(`{"a":%q}`, strings.Repeat("x", lim.PayloadBytes-7))), fault.TooLarge},
		"a label at its limit":           {op("create", "ref", ref, "hash", ref, "label", strings.Repeat("x", lim.LabelBytes)), fault.None},
		"a label above it":               {op("create", "ref", ref, "hash", ref, "label", strings.Repeat("x", lim.LabelBytes+1)), fault.TooLarge},
		"a label that is empty":          {op("create", "ref", ref, "hash", ref, "label", ""), fault.None},
		"as many methods as may be":      {op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", slices.Repeat([]string{"put"}, 64)), fault.None},
		"one method more":                {op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", slices.Repeat([]string{"put"}, 65)), fault.BadArgument},
		"as many redemptions":            {op("share", "ref", ref, "hash", ref, "rights", []string{"read"}, "redemptions", int64(1)<<31), fault.None},
		"one redemption more":            {op("share", "ref", ref, "hash", ref, "rights", []string{"read"}, "redemptions", int64(1)<<31+1), fault.BadArgument},
		"redemptions beyond counting":    {op("share", "ref", ref, "hash", ref, "rights", []string{"read"}, "redemptions", int64(1)<<32), fault.BadArgument},
		"no message's id":                {op("share", "ref", ref, "hash", ref, "rights", []string{"read"}, "message", "a/b"), fault.BadArgument},
		"a short hash":                   {op("share", "ref", ref, "hash", sha("x")[1:], "rights", ref), fault.BadArgument},
		"a short seal":                   {op("share", "ref", ref, "hash", ref, "rights", ref, "seal", sha("x")[1:]), fault.BadArgument},
		"a right that is none":           {op("share", "ref", ref, "hash", ref, "rights", []string{"fly"}), fault.BadArgument},
		"no rights":                      {op("share", "ref", ref, "hash", ref, "rights", []string{}), fault.BadArgument},
		"no methods":                     {op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", []string{}), fault.BadArgument},
		"a source that is none":          {op("fork", "source", "x", "via", ref, "ref", ref, "hash", ref), fault.BadArgument},
		"a reference and a bad value":    {op("put", "key", "nonsense", "payload", ref), fault.BadKey},
		"a reference to no argument":     {op("put", "key", "session", "payload", raw(`{}`), "x", ref), fault.BadArgument},
		"a reference, something missing": {op("put", "key", ref), fault.BadArgument},
		"unknown method":                 {op("shout"), fault.UnknownMethod},
	} {
		if got := check(c.op); got != c.code {
			t.Errorf("%s: %s, want %s", name, got, c.code)
		}
	}
}

// What encoding/json cannot read of an escape is half a character, and nothing else is.
func TestHalfCharacters(t *testing.T) {
	t.Parallel()
	units := []string{`x`, `d800`, `ud800`, `udc00`, `\\`, `\"`, `\n`, `\u0041`, `\ud7ff`, `\ud800`, `\udbff`, `\udc00`, `\udfff`, `\ue000`, `\uD83D`, `\uDE00`}
	texts := slices.Clone(units)
	for _, a := range units {
		for _, b := range units {
			texts = append(texts, a+b)
			for _, c := range units {
				texts = append(texts, a+b+c)
			}
		}
	}
	for _, text := range texts {
		var s string
		if err := json.Unmarshal([]byte(`"`+text+`"`), &s); err != nil {
			t.Fatal(err)
		}
		x := op("appendText", "key", "part/m/p", "offset", 0, "text", raw(`"%s"`, text))
		_, err := session.CheckOps([]ledger.Intent{{Method: x.method, Args: x.args}}, session.DefaultLimits())
		if half := strings.ContainsRune(s, utf8.RuneError); half != (err != nil) {
			t.Errorf("%s reads as %q: %v", text, s, err)
		}
	}
}

// FuzzCheckOps gives an op one argument that may be anything, beside references:
// what passes is JSON text, whatever reads it. The client relies on that. What is
// said of the others is text too.
func FuzzCheckOps(f *testing.F) {
	var all []ledger.Intent
	for m, names := range map[string]string{
		"create": "ref hash external label actor", "fork": "source via at ref hash external label actor", "put": "key payload schema_version",
		"remove": "key", "begin": "message payload schema_version", "appendText": "key offset text", "revoke": "ref", "purge": "key",
		"finalize": "message status payload schema_version parts usage error completed",
		"share":    "ref hash rights methods expires_at from message redemptions seal label actor",
	} {
		for _, name := range strings.Fields(names) {
			in := ledger.Intent{Method: m, Args: []ledger.Arg{{Name: name}}}
			for _, other := range strings.Fields(names) {
				if other != name {
					in.Args = append(in.Args, ledger.Arg{Name: other, Ref: &ledger.Ref{}})
				}
			}
			all = append(all, in)
		}
	}
	for _, text := range []string{`"session"`, `"part/m/p"`, `{}`, `1`, `null`, `["read"]`, "\u00a0{}", `{`, `"a" "b"`, "\"\xff\"", "\v1", "", `nul`, ` "x"`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, in := range all {
			args := slices.Clone(in.Args)
			args[0].JSON = text
			_, err := session.CheckOps([]ledger.Intent{{Method: in.Method, Args: args}}, session.DefaultLimits())
			if err == nil && !(utf8.Valid(text) && json.Valid(text)) {
				t.Errorf("%s takes %q for %s", in.Method, text, args[0].Name)
			}
			if err != nil && !utf8.ValidString(err.Message) {
				t.Errorf("%s refuses %q for %s with %q", in.Method, text, args[0].Name, err.Message)
			}
		}
	})
}

// FuzzParseKey: a key has one text.
func FuzzParseKey(f *testing.F) {
	for _, text := range []string{"session", "session_diff", "message/m", "part/m/p", "model/a/b", "message/", "part/m", "part/m/p/q", "model//", "", "message/é"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if k, err := session.ParseKey(text); err == nil && k.String() != text {
			t.Errorf("%q is printed as %q", text, k.String())
		}
	})
}

func TestCreate(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create("external", "oc-1", "label", "mine", "actor", "ann")
	row := w.store.Session(o.session)
	if row.Life != session.Live || row.External != "oc-1" || row.Epoch != 1 || row.Creator != o.outbox || row.Space != capability.Target(w.space) {
		t.Fatalf("row %+v", row)
	}
	g := w.store.Grant(o.ref)
	if !g.Owner || g.Rights != capability.SessionRights || g.Parent != w.space || g.Actor != "ann" || g.Label != "mine" {
		t.Fatalf("owner %+v", g)
	}
	if ev := o.last(); ev.Ref != w.space || strings.Contains(string(ev.Payload), sha(o.ref)) {
		t.Fatalf("create event %+v %s", ev, ev.Payload)
	}

	t.Run("again", func(t *testing.T) {
		o.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", o.ref, "hash", sha(o.ref)))
	})
	t.Run("external taken", func(t *testing.T) {
		p := w.newWriter()
		out := p.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-1"))
		if strings.Contains(out.Message, o.session) {
			t.Fatalf("the message names the other session: %s", out.Message)
		}
		p.refuse(ledger.Rejected, fault.NotFound, op("put", "key", "session", "payload", raw(`{}`)))
		p.apply(op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-2"))
	})
	t.Run("external taken in another space", func(t *testing.T) {
		p := w.newWriter()
		p.space = w.newSpace()
		p.apply(op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-1"))
	})
	t.Run("without a space", func(t *testing.T) {
		p := o.under(o.ref)
		p.refuse(ledger.Denied, fault.MissingRight, op("create", "ref", o.ref, "hash", sha(o.ref)))
	})
	t.Run("external that was not looked for", func(t *testing.T) {
		p := w.newWriter()
		p.refuse(ledger.Rejected, fault.BadReference, op("create", "ref", p.ref, "hash", sha(p.ref), "external", unseen("oc-4")))
	})
	t.Run("external taken in the same group", func(t *testing.T) {
		making := func(p *writer, more ...anOp) session.Submission {
			return p.batch(true, append([]anOp{op("create", "ref", p.ref, "hash", sha(p.ref), "external", "oc-3")}, more...)...)
		}
		answers, _ := w.commit(making(w.newWriter(), put("nonsense")), making(w.newWriter()), making(w.newWriter()))
		for i, want := range []fault.Code{fault.BadKey, fault.None, fault.AlreadyExists} {
			mustEqual(t, "reason", answers[i].Outcomes[0].Reason, want)
		}
	})
	t.Run("another owner ref than was asked for", func(t *testing.T) {
		p := w.newWriter()
		id, _ := newRef(p.session)
		p.refuse(ledger.Rejected, fault.BadArgument, op("create", "ref", id, "hash", sha(id)))
	})
	t.Run("another session's owner ref", func(t *testing.T) {
		p := w.newWriter()
		p.ref, _ = newRef(o.session)
		p.refuse(ledger.Rejected, fault.BadArgument, op("create", "ref", p.ref, "hash", sha(p.ref)))
	})
	t.Run("an owner ref that is there", func(t *testing.T) {
		p := w.newWriter()
		w.store.AddGrant(capability.Grant{ID: p.ref, Target: p.session, Rights: capability.Read})
		p.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", p.ref, "hash", sha(p.ref)))
	})
	t.Run("under another session's ref", func(t *testing.T) {
		p := o.under(w.create().ref)
		p.refuse(ledger.Denied, fault.UnknownRef, put("message/a"))
	})
	t.Run("under a space ref that may only list", func(t *testing.T) {
		id, hash := newRef(capability.Target(w.space))
		w.store.AddGrant(capability.Grant{ID: id, Target: capability.Target(w.space), Hash: hash, Rights: capability.List})
		p := w.newWriter()
		p.space = id
		p.refuse(ledger.Denied, fault.MissingRight, op("create", "ref", p.ref, "hash", sha(p.ref)))
		p.refuse(ledger.Denied, fault.MissingRight, op("put", "key", "session", "payload", raw(`{}`)))
	})
	t.Run("under a space ref that was narrowed", func(t *testing.T) {
		root := w.store.Grant(w.space)
		for _, rights := range []capability.Rights{capability.List, capability.Create} {
			narrow, err := capability.Attenuate(root, capability.Minting{Rights: rights, Actor: "clerk"}, 0, w.store.Now)
			if err != nil {
				t.Fatal(err)
			}
			p := w.newWriter()
			sub := p.batch(false, op("create", "ref", p.ref, "hash", sha(p.ref)))
			sub.SpaceNarrow = narrow
			answers, _ := w.commit(sub)
			switch out := answers[0].Outcomes[0]; {
			case rights == capability.List:
				mustEqual(t, "to listing", out.Reason, fault.MissingRight)
			case out.Status != ledger.Applied || w.store.Grant(p.ref).Actor != "clerk/owner" || p.last().Actor != "clerk":
				t.Errorf("to making sessions: %+v, by %s", out, p.last().Actor)
			}
		}
	})
	t.Run("under an unknown space ref", func(t *testing.T) {
		p := w.newWriter()
		p.space, _ = newRef(capability.Target(w.space))
		p.refuse(ledger.Denied, fault.UnknownRef, op("create", "ref", p.ref, "hash", sha(p.ref)))
	})
}

// Naming an owner ref to the space is not holding it.
func TestSpaceObjectOfAnotherOutbox(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "session", "payload", raw(`{}`))) // the creating outbox goes on under its space object

	thief := o.under(o.ref)
	thief.space = w.space
	thief.refuse(ledger.Denied, fault.UnknownRef, op("put", "key", "session", "payload", raw(`{"x":1}`)))
	thief.refuse(ledger.Rejected, fault.AlreadyExists, op("create", "ref", o.ref, "hash", sha(o.ref)))
	answers, _ := w.commit(session.Submission{Batch: ledger.Batch{Session: o.session}, Ref: o.ref, Space: w.space, Direct: &session.Direct{Epoch: true}})
	if answers[0].Err == nil || answers[0].Err.Code != fault.UnknownRef {
		t.Fatalf("direct revoke through the space: %v", answers[0].Err)
	}
}

func TestOneBatchCreatesSharesAndAppends(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.newWriter()
	guest, _ := newRef(o.session)
	create := op("create", "ref", o.ref, "hash", sha(o.ref))
	sub := o.batch(true, create,
		op("put", "key", "message/m", "payload", raw(`{}`)),
		op("share", "ref", guest, "hash", sha(guest), "rights", []string{"read"}))
	sub.Batch.Ops[1].Expected = ledger.Expect{}
	last := op("revoke", "ref", ledger.Ref{Op: sub.Batch.Ops[2].OpID, Path: "ref"})
	sub2 := o.batch(false, last)
	answers, published := w.commit(sub, sub2)
	for _, a := range answers {
		for _, out := range a.Outcomes {
			if out.Status != ledger.Applied {
				t.Fatalf("%s: %s", out.Reason, out.Message)
			}
		}
	}
	if g := w.store.Grant(guest); g.Revoked == 0 || g.Cut != 4 {
		t.Fatalf("guest %+v", g)
	}
	if len(published.Sessions) != 1 || len(published.Sessions[0].Events) != 4 || !published.Sessions[0].AuthChanged {
		t.Fatalf("published %+v", published)
	}
}

func TestAtomic(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "part/m/p", "payload", raw(`{"text":"a"}`)))
	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	guest, _ := newRef(o.session)
	before, _ := w.store.State(o.session)
	answers, published := w.commit(o.batch(true,
		op("appendText", "key", "part/m/p", "offset", 1, "text", "b"),
		op("put", "key", "message/n", "payload", raw(`{}`)),
		op("remove", "key", "part/m/p"),
		op("share", "ref", guest, "hash", sha(guest), "rights", []string{"read"}),
		op("bumpEpoch"),
		op("finalize", "message", "m", "status", "completed"),
		op("delete"),
		op("put", "key", "nonsense", "payload", raw(`{}`))))
	for i, out := range answers[0].Outcomes {
		if out.Status != ledger.BatchAborted || out.Cause != answers[0].Outcomes[7].OpID || out.Reason != fault.SessionDeleted && out.Reason != fault.BadKey {
			t.Fatalf("op %d: %+v", i, out)
		}
	}
	after, _ := w.store.State(o.session)
	if len(before) != len(after) || string(after[1].Payload) != string(before[1].Payload) || w.store.Grant(guest) != nil ||
		w.store.Session(o.session).Epoch != 1 || len(published.Sessions) != 0 {
		t.Fatalf("an aborted batch left something: %v", after)
	}
	// The place of the aborted batch is used up; what follows sees none of it.
	o.apply(op("appendText", "key", "part/m/p", "offset", 1, "text", "c"))
	mustEqual(t, "text", o.payload("part/m/p"), `{"text":"ac"}`)
}

// What is undone gives back what the same group had done before it, and leaves nothing
// that it alone was the first to know.
func TestUndoGivesBackTheGroupsOwn(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	a := func(n int) anOp { return op("put", "key", "message/a", "payload", raw(`{"n":%d}`, n)) }
	answers, _ := w.commit(o.batch(false, a(1)), o.batch(true, a(2), op("remove", "key", "message/a"), put("nonsense")), o.batch(false, a(1)))
	mustEqual(t, "put again", string(answers[2].Outcomes[0].Result), `{"cursor":2,"unchanged":true}`)
	mustEqual(t, "left", o.payload("message/a"), `{"n":1}`)

	f := w.newWriter()
	f.with = []string{o.ref}
	fork := op("fork", "source", o.session, "via", o.ref, "ref", f.ref, "hash", sha(f.ref))
	answers, _ = w.commit(f.batch(true, fork, op("begin", "message", "m", "payload", raw(`{}`)), put("nonsense")),
		f.batch(false, op("create", "ref", f.ref, "hash", sha(f.ref)), op("begin", "message", "m", "payload", raw(`{}`))))
	mustEqual(t, "undone", answers[0].Outcomes[0].Status, ledger.BatchAborted)
	mustEqual(t, "begun", string(answers[1].Outcomes[1].Result), `{"cursor":2}`)
	mustEqual(t, "left of the fork", f.payload("message/a"), "")

	o.apply(op("begin", "message", "m", "payload", raw(`{}`)))
	answers, _ = w.commit(o.batch(false, a(3)), o.batch(true, op("delete"), put("nonsense")), o.batch(false, a(3), op("finalize", "message", "m", "status", "completed")))
	mustEqual(t, "there as before", string(answers[2].Outcomes[0].Result), `{"cursor":4,"unchanged":true}`)
	mustEqual(t, "ended", string(answers[2].Outcomes[1].Result), `{"cursor":5,"status":"completed"}`)
	mustEqual(t, "left", o.payload("message/a"), `{"n":3}`)
}

// Text grows within a group as it does over many: on what the database has of it, on
// what the group has put, and on what it has added.
func TestTextGrowsWithinAGroup(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	delta := func(key string, offset int, text string) anOp {
		return op("appendText", "key", key, "offset", offset, "text", text)
	}
	end := func(m string) anOp { return op("finalize", "message", m, "status", "completed") }
	for _, m := range []string{"m", "n"} {
		o.apply(op("begin", "message", m, "payload", raw(`{}`)))
	}
	o.apply(op("put", "key", "part/m/old", "payload", raw(`{"text":"a"}`)))
	o.apply(delta("part/m/old", 1, "b"))
	w.commit(o.batch(false, op("put", "key", "part/m/new", "payload", raw(`{"text":"x"}`)), delta("part/m/new", 1, "y"), delta("part/m/new", 2, "z"),
		op("put", "key", "part/n/p", "payload", raw(`{"text":"1"}`))), o.batch(false, delta("part/n/p", 1, "2")))
	mustEqual(t, "before the end", o.payload("part/m/new")+o.payload("part/n/p"), `{"text":"xyz"}{"text":"12"}`)
	w.commit(o.batch(false, op("put", "key", "part/m/old", "payload", raw(`{"text":"ab"}`)), delta("part/m/old", 2, "c"), delta("part/m/old", 3, "d"), end("m")), o.batch(false, delta("part/n/p", 2, "3"), end("n")))
	for key, want := range map[string]string{"part/m/old": "abcd", "part/m/new": "xyz", "part/n/p": "123"} {
		mustEqual(t, key, o.payload(key), `{"text":"`+want+`"}`)
	}
}

// What one op has read is no answer for what another asks, in one batch.
func TestWhatIsReadForOneOp(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	running := raw(`{"state":{"status":"running"}}`)
	for _, m := range []string{"m", "n"} {
		o.apply(op("begin", "message", m, "payload", raw(`{}`)))
		o.apply(op("put", "key", "part/"+m+"/tool", "payload", running))
	}
	o.apply(op("put", "key", "message/x", "payload", raw(`{"x":1}`)))
	end := func(m string) anOp { return op("finalize", "message", m, "status", "completed") }
	outs := o.try(op("put", "key", "part/n/late", "payload", running), end("m"), op("put", "key", unseen("message/x"), "payload", raw(`{"x":1}`)), end("n"))
	mustEqual(t, "the same again", string(outs[2].Result), `{"cursor":8,"unchanged":true}`)
	for i, want := range map[uint64][]string{8: {"message/m", "part/m/tool"}, 9: {"message/n", "part/n/late", "part/n/tool"}} {
		var p struct{ Entries []struct{ Key string } }
		if err := json.Unmarshal(w.store.Events(o.session)[i-1].Payload, &p); err != nil {
			t.Fatal(err)
		}
		var keys []string
		for _, e := range p.Entries {
			keys = append(keys, e.Key)
		}
		if !slices.Equal(keys, want) {
			t.Errorf("event %d writes %q, want %q", i, keys, want)
		}
	}
}

func TestNotAtomicKeepsSiblings(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	outs := o.try(op("put", "key", "message/a", "payload", raw(`{}`)), op("put", "key", "x", "payload", raw(`{}`)), op("put", "key", "message/b", "payload", raw(`{}`)))
	if outs[0].Status != ledger.Applied || outs[1].Status != ledger.Rejected || outs[2].Status != ledger.Applied || outs[2].Cursor != 3 {
		t.Fatalf("%+v", outs)
	}
}

func TestExpectedCursor(t *testing.T) {
	t.Parallel()
	o := newWorld(t).create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{}`)).expecting(1))
	out := o.refuse(ledger.Conflict, fault.Conflict, op("put", "key", "message/b", "payload", raw(`{}`)).expecting(1))
	mustEqual(t, "cursor of the conflict", out.Cursor, 2)
}

func TestFork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	o.apply(op("put", "key", "message/a", "payload", raw(`{ "n": 1 }`)))
	o.apply(op("begin", "message", "b", "payload", raw(`{}`)))
	o.apply(op("put", "key", "part/b/p", "payload", raw(`{"text":"x"}`), "schema_version", 3))
	o.apply(op("appendText", "key", "part/b/p", "offset", 1, "text", "yz"))
	o.apply(op("put", "key", "message/a", "payload", raw(`{"n":2}`)))
	reader := o.share([]string{"read"})
	late := o.share([]string{"read"}, "from", 4)
	mute := o.share([]string{"append"})
	one := o.share([]string{"read"}, "message", "b")

	fork := func(via string, args ...any) (*writer, anOp) {
		p := w.newWriter()
		p.with = []string{via}
		return p, op("fork", append([]any{"source", o.session, "via", via, "ref", p.ref, "hash", sha(p.ref)}, args...)...)
	}
	t.Run("now", func(t *testing.T) {
		p, x := fork(reader)
		r := p.apply(x)
		if r["session"] != p.session || r["source"] != o.session || r["at"].(float64) != 10 || r["cursor"].(float64) != 1 {
			t.Fatalf("result %v", r)
		}
		ev := p.last()
		mustEqual(t, "event", string(ev.Payload), `{"ref":"`+p.ref+`","actor":"owner","source":"`+o.session+`","at":10,"entries":[`+
			`{"key":"message/a","schema_version":1,"payload":"{\"n\":2}"},{"key":"message/b","schema_version":1,"payload":"{}"},`+
			`{"key":"part/b/p","schema_version":3,"payload":"{\"text\":\"xyz\"}"}]}`)
		p.refuse(ledger.Rejected, fault.AlreadyExists, x)
		mustEqual(t, "ref", r["ref"], any(p.ref))
		mustEqual(t, "message", p.payload("message/a"), `{"n":2}`)
		mustEqual(t, "text", p.payload("part/b/p"), `{"text":"xyz"}`)
		mustEqual(t, "turn", p.turn("b"), 0)
		for _, key := range []string{"message/a", "message/b"} {
			mustEqual(t, key+" as it is", p.apply(op("put", "key", key, "payload", raw("%s", p.payload(key))))["unchanged"], any(true))
		}
		p.apply(op("begin", "message", "b", "payload", raw(`{}`)))
		p.apply(op("appendText", "key", "part/b/p", "offset", 3, "text", "!"))
		mustEqual(t, "text", p.payload("part/b/p"), `{"text":"xyz!"}`)
		mustEqual(t, "the source's text", o.payload("part/b/p"), `{"text":"xyz"}`)
	})
	t.Run("at an earlier cursor", func(t *testing.T) {
		p, x := fork(reader, "at", 4)
		p.apply(x)
		mustEqual(t, "message", p.payload("message/a"), `{ "n": 1 }`)
		mustEqual(t, "text", p.payload("part/b/p"), `{"text":"x"}`)
	})
	t.Run("at a cursor of its own group", func(t *testing.T) {
		at := w.store.Session(o.session).Cursor + 1
		p, x := fork(o.ref, "at", at)
		n := func(n int) anOp { return op("put", "key", "message/group", "payload", raw(`{"n":%d}`, n)) }
		w.commit(o.batch(false, n(1), n(2), op("remove", "key", "message/group")), p.batch(false, x))
		mustEqual(t, "message", p.payload("message/group"), `{"n":1}`)
	})
	t.Run("through a ref that sees the late part only", func(t *testing.T) {
		p, x := fork(late)
		p.apply(x)
		mustEqual(t, "hidden", p.payload("message/b"), "")
		mustEqual(t, "shown", p.payload("message/a"), `{"n":2}`)
		mustEqual(t, "shown, as the first", p.payload("part/b/p"), `{"text":"xyz"}`)
	})
	t.Run("through a ref that is for one message", func(t *testing.T) {
		p, x := fork(one)
		p.apply(x)
		mustEqual(t, "hidden", p.payload("message/a"), "")
		mustEqual(t, "shown", p.payload("part/b/p"), `{"text":"xyz"}`)
	})
	t.Run("at its very cursor", func(t *testing.T) {
		at := w.store.Session(o.session).Cursor
		p, x := fork(reader, "at", at+1)
		p.refuse(ledger.Rejected, fault.BadArgument, x)
		p, x = fork(reader, "at", at)
		p.apply(x)
	})
	t.Run("of one that is not there, or no more", func(t *testing.T) {
		absent, gone := w.newWriter(), w.create()
		w.store.AddGrant(capability.Grant{ID: absent.ref, Target: absent.session, Owner: true, Rights: capability.Read})
		gone.apply(op("delete"))
		for source, code := range map[*writer]fault.Code{absent: fault.NotFound, gone: fault.SessionDeleted} {
			p := w.newWriter()
			p.with = []string{source.ref}
			p.refuse(ledger.Rejected, code, op("fork", "source", source.session, "via", source.ref, "ref", p.ref, "hash", sha(p.ref)))
		}
	})
	t.Run("of one that the op does not name", func(t *testing.T) {
		other := w.create()
		p := w.newWriter()
		p.with = []string{reader, other.ref}
		p.refuse(ledger.Denied, fault.UnknownRef, op("fork", "source", o.session, "via", other.ref, "ref", p.ref, "hash", sha(p.ref)))
		p.refuse(ledger.Rejected, fault.BadReference, op("fork", "source", unseen(o.session), "via", reader, "ref", p.ref, "hash", sha(p.ref)))
	})
	t.Run("of a trimmed log", func(t *testing.T) {
		source := w.create()
		source.apply(put("message/a"))
		source.apply(put("message/b"))
		row := w.store.Session(source.session)
		row.Base = 1
		err := w.store.Update(t.Context(), func(tx session.Tx) error {
			return tx.Save(t.Context(), &session.Changes{Sessions: []*session.Row{row}})
		})
		if err != nil {
			t.Fatal(err)
		}
		p := w.newWriter()
		p.with = []string{source.ref}
		x := op("fork", "source", source.session, "via", source.ref, "ref", p.ref, "hash", sha(p.ref), "at", 2)
		if out := p.refuse(ledger.Rejected, fault.CursorExpired, x); !strings.Contains(out.Message, "after cursor 1") {
			t.Errorf("says %s", out.Message)
		}
		x = op("fork", "source", source.session, "via", source.ref, "ref", p.ref, "hash", sha(p.ref), "at", 3)
		p.apply(x)
	})
	t.Run("no larger than an event may be", func(t *testing.T) {
		limit := w.cfg.Limits.EventBytes
		defer func() { w.cfg.Limits.EventBytes = limit }()
		copied := len(`{"ref":"","source":"` + o.session + `","at":10,"entries":[{"key":"message/b","schema_version":1,"payload":"{}"},` +
			`{"key":"part/b/p","schema_version":3,"payload":"{\"text\":\"xyz\"}"}]}`)
		for less, want := range []fault.Code{fault.None, fault.TooLarge} {
			w.cfg.Limits.EventBytes = copied - less
			p, x := fork(one)
			mustEqual(t, "reason", p.try(x)[0].Reason, want)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		p, x := fork(reader, "at", 100)
		p.refuse(ledger.Rejected, fault.BadArgument, x)
		p, x = fork(mute)
		p.refuse(ledger.Denied, fault.MissingRight, x)
		p, x = fork(reader)
		p.with = nil
		p.refuse(ledger.Denied, fault.UnknownRef, x)
		unknown, _ := newRef(o.session)
		p, x = fork(unknown)
		p.refuse(ledger.Denied, fault.UnknownRef, x)
		o.apply(op("revoke", "ref", reader))
		p, x = fork(reader)
		p.refuse(ledger.Denied, fault.Revoked, x)
		w.cfg.Limits.EventBytes = 50
		p, x = fork(o.ref)
		p.refuse(ledger.Rejected, fault.TooLarge, x)
	})
}

func TestDelete(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create("external", "x")
	g := o.under(o.share([]string{"read", "append", "share", "revoke"}))
	o.apply(op("put", "key", "message/a", "payload", raw(`{"secret":1}`)))
	g.refuse(ledger.Denied, fault.NotAnOwner, op("delete"))
	o.apply(op("delete"))
	row := w.store.Session(o.session)
	if row.Life != session.Deleted || row.Cursor != 4 {
		t.Fatalf("row %+v", row)
	}
	for _, e := range w.store.Events(o.session) {
		if e.Payload != nil {
			t.Fatalf("event %d still has its payload", e.Cursor)
		}
	}
	o.refuse(ledger.Rejected, fault.SessionDeleted, op("put", "key", "message/a", "payload", raw(`{}`)))
	o.refuse(ledger.Rejected, fault.SessionDeleted, op("delete"))
	o.refuse(ledger.Rejected, fault.SessionDeleted, op("create", "ref", o.ref, "hash", sha(o.ref)))
	w.create("external", "x") // the external id is free again
}

func TestResultsHoldNoSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.create()
	id := o.share([]string{"read"})
	for _, e := range w.store.Events(o.session) {
		if strings.Contains(string(e.Payload), sha(id)) || strings.Contains(string(e.Payload), sha(o.ref)) {
			t.Fatalf("event %d holds a hash: %s", e.Cursor, e.Payload)
		}
		if !json.Valid(e.Payload) {
			t.Fatalf("event %d is not JSON", e.Cursor)
		}
	}
}
