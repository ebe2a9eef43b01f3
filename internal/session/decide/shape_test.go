package decide_test

// What an op and a key may look like, before anything is asked of a session.

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

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
		"bad key":                 {op("put", "key", "Messages/x", "payload", obj), fault.BadKey},
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
		"reserved kind":           {op("put", "key", "request/1", "payload", obj), fault.BadKey},
		"own value absent":        {op("put", "key", "todo/1"), fault.BadArgument},
		"own value broken":        {op("put", "key", "todo/1", "payload", raw(`{`)), fault.Malformed},
		"expect a text":           {op("put", "key", "todo/1", "payload", obj, "expect", "1"), fault.BadArgument},
		"expect less than 0":      {op("remove", "key", "todo/1", "expect", -1), fault.BadArgument},
		"patch without patch":     {op("patch", "key", "todo/1"), fault.BadArgument},
		"patch without key":       {op("patch", "patch", obj), fault.BadArgument},
		"patch a message":         {op("patch", "key", "message/m", "patch", obj), fault.BadKey},
		"patch a reserved kind":   {op("patch", "key", "turn/x", "patch", obj), fault.BadKey},
		"patch a schema":          {op("patch", "key", "schema/todo", "patch", obj), fault.BadKey},
		"add to a schema":         {op("add", "key", "schema/todo", "member", "maximum", "by", 1), fault.BadKey},
		"schema of a known kind":  {op("put", "key", "schema/message", "payload", obj), fault.BadKey},
		"schema of a schema":      {op("put", "key", "schema/schema", "payload", obj), fault.BadKey},
		"schema of one key":       {op("put", "key", "schema/todo/1", "payload", obj), fault.BadKey},
		"schema that is none":     {op("put", "key", "schema/todo", "payload", 7), fault.BadPayload},
		"schema that is wrong":    {op("put", "key", "schema/todo", "payload", raw(`{"type":"objekt"}`)), fault.BadPayload},
		"schema from elsewhere":   {op("put", "key", "schema/todo", "payload", raw(`{"$ref":"https://example.org/x"}`)), fault.BadPayload},
		"schema of a large size":  {op("put", "key", "schema/todo", "payload", raw(`{"title":"%s"}`, strings.Repeat("x", 64<<10))), fault.TooLarge},
		"patch twice a name":      {op("patch", "key", "todo/1", "patch", raw(`{"a":1,"a":2}`)), fault.BadPayload},
		"patch with payload":      {op("patch", "key", "todo/1", "payload", obj), fault.BadArgument},
		"patch schema 0":          {op("patch", "key", "todo/1", "patch", obj, "schema_version", 0), fault.BadArgument},
		"add without member":      {op("add", "key", "todo/1", "by", 1), fault.BadArgument},
		"add without by":          {op("add", "key", "todo/1", "member", "n"), fault.BadArgument},
		"add a half":              {op("add", "key", "todo/1", "member", "n", "by", 0.5), fault.BadArgument},
		"add a text":              {op("add", "key", "todo/1", "member", "n", "by", "1"), fault.BadArgument},
		"add too much":            {op("add", "key", "todo/1", "member", "n", "by", int64(1)<<53), fault.BadArgument},
		"add to a member 7":       {op("add", "key", "todo/1", "member", 7, "by", 1), fault.BadArgument},
		"add half a character":    {op("add", "key", "todo/1", "member", raw(`"\ud83d"`), "by", 1), fault.BadArgument},
		"add a long member":       {op("add", "key", "todo/1", "member", strings.Repeat("x", 300), "by", 1), fault.TooLarge},
		"add to a part":           {op("add", "key", "part/m/p", "member", "n", "by", 1), fault.BadKey},
		"claim without lease":     {op("claim", "key", "todo/1"), fault.BadArgument},
		"claim without key":       {op("claim", "lease", 5000), fault.BadArgument},
		"claim no key":            {op("claim", "key", nil, "lease", 5000), fault.BadArgument},
		"claim key and prefix":    {op("claim", "key", "todo/1", "prefix", "todo/", "lease", 5000), fault.BadArgument},
		"claim a prefix as a key": {op("claim", "key", "todo/", "lease", 5000), fault.BadKey},
		"claim a key as a prefix": {op("claim", "prefix", "todo/1", "lease", 5000), fault.BadKey},
		"claim below nothing":     {op("claim", "prefix", "", "lease", 5000), fault.BadKey},
		"claim below a slash":     {op("claim", "prefix", "/", "lease", 5000), fault.BadKey},
		"claim below a number":    {op("claim", "prefix", 7, "lease", 5000), fault.BadArgument},
		"claim below messages":    {op("claim", "prefix", "message/", "lease", 5000), fault.BadKey},
		"claim a message":         {op("claim", "key", "message/m", "lease", 5000), fault.BadKey},
		"claim a reserved kind":   {op("claim", "key", "turn/1", "lease", 5000), fault.BadKey},
		"claim below a reserved":  {op("claim", "prefix", "ref/", "lease", 5000), fault.BadKey},
		"claim for too short":     {op("claim", "key", "todo/1", "lease", 999), fault.BadArgument},
		"claim for too long":      {op("claim", "key", "todo/1", "lease", 3_600_001), fault.BadArgument},
		"claim for half a ms":     {op("claim", "key", "todo/1", "lease", 5000.5), fault.BadArgument},
		"claim for a text":        {op("claim", "key", "todo/1", "lease", "5000"), fault.BadArgument},
		"claim by a long worker":  {op("claim", "key", "todo/1", "lease", 5000, "worker", strings.Repeat("w", 65)), fault.TooLarge},
		"claim by a number":       {op("claim", "key", "todo/1", "lease", 5000, "worker", 7), fault.BadArgument},
		"claim by a NUL":          {op("claim", "key", "todo/1", "lease", 5000, "worker", "a\x00"), fault.BadArgument},
		"claim with a claim":      {op("claim", "key", "todo/1", "lease", 5000, "claim", 7), fault.BadArgument},
		"claim of no value":       {op("claim", "key", "todo/1", "lease", 5000, "worker", strings.Repeat("w", 64)), fault.NotFound},
		"release without claim":   {op("release", "key", "todo/1"), fault.BadArgument},
		"release without key":     {op("release", "claim", 7), fault.BadArgument},
		"release a prefix":        {op("release", "key", "todo/", "claim", 7), fault.BadKey},
		"release a part":          {op("release", "key", "part/m/p", "claim", 7), fault.BadKey},
		"release with a lease":    {op("release", "key", "todo/1", "claim", 7, "lease", 5000), fault.BadArgument},
		"put with a text claim":   {op("put", "key", "todo/1", "payload", obj, "claim", "7"), fault.BadArgument},
		"patch with claim -1":     {op("patch", "key", "todo/1", "patch", obj, "claim", -1), fault.BadArgument},
		"append to an own key":    {op("appendText", "key", "todo/1", "offset", 0, "text", "x"), fault.BadKey},
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
		"it takes claim, expect, key, payload, schema_version, sync": op("put", "payload", obj, "key", "session", "colour", 1),
		"it takes nothing": op("bumpEpoch", "to", 5),
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
		at, err := opargs.CheckOps(ops[:2], lim)
		if err == nil {
			return fault.None
		}
		if again, same := opargs.CheckOps(ops, lim); at != 1 || again != 1 || same.Error() != err.Error() {
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
		"a schema above it":              {op("put", "key", ref, "payload", ref, "schema_version", int64(1)<<31), fault.BadArgument},
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
		"a reference and a bad value":    {op("put", "key", "ref/x", "payload", ref), fault.BadKey},
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
		_, err := opargs.CheckOps([]ledger.Intent{{Method: x.method, Args: x.args}}, session.DefaultLimits())
		if half := strings.ContainsRune(s, utf8.RuneError); half != (err != nil) {
			t.Errorf("%s reads as %q: %v", text, s, err)
		}
	}
}

// argsOf returns the names of a method's arguments: they are in the refusal of another.
func argsOf(t testing.TB, method string) []string {
	in := ledger.Intent{Method: method, Args: []ledger.Arg{{Name: "colour", JSON: raw(`1`)}}}
	for {
		_, err := opargs.CheckOps([]ledger.Intent{in}, session.DefaultLimits())
		switch _, takes, found := strings.Cut(err.Message, "; it takes "); {
		case found && takes == "nothing":
			return nil
		case found:
			return strings.Split(takes, ", ")
		}
		_, needs, found := strings.Cut(err.Message, method+" needs ")
		if !found {
			t.Fatalf("%s: %v", method, err)
		}
		name, _, _ := strings.Cut(needs, " ")
		in.Args = append(in.Args, ledger.Arg{Name: name, Ref: &ledger.Ref{}})
	}
}

// FuzzCheckOps gives an op one argument that may be anything, beside references:
// what passes is JSON text, whatever reads it. The client relies on that. What is
// said of the others is text too.
func FuzzCheckOps(f *testing.F) {
	var all []ledger.Intent
	for _, m := range opargs.Methods() {
		names := argsOf(f, m)
		for _, name := range names {
			in := ledger.Intent{Method: m, Args: []ledger.Arg{{Name: name}}}
			for _, other := range names {
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
			_, err := opargs.CheckOps([]ledger.Intent{{Method: in.Method, Args: args}}, session.DefaultLimits())
			if err == nil && !(utf8.Valid(text) && json.Valid(text)) {
				t.Errorf("%s takes %q for %s", in.Method, text, args[0].Name)
			}
			if err != nil && !utf8.ValidString(err.Message) {
				t.Errorf("%s refuses %q for %s with %q", in.Method, text, args[0].Name, err.Message)
			}
		}
	})
}
