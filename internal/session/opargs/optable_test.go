package opargs_test

// Which ops a client refuses, with what words, and which need a feature of the server: the table in
// testdata/ops.json, which the JavaScript client's tests read too.

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/ledger/ledgertest"
)

var updateOps = flag.Bool("update", false, "write testdata/ops.json anew")

type (
	tableRef struct {
		Op   string `json:"op"`
		Path string `json:"path"`
	}
	tableArg struct {
		Name string    `json:"name"`
		JSON string    `json:"json,omitempty"`
		Ref  *tableRef `json:"ref,omitempty"`
	}
	tableOp struct {
		Method string     `json:"method"`
		Args   []tableArg `json:"args"`
		Error  string     `json:"error,omitempty"`
		Needs  []string   `json:"needs,omitempty"`
	}
)

// anOp is an op without its place in a stream.
type anOp struct {
	method string
	args   []ledger.Arg
}

// op makes one, of arguments as ledgertest.Args has them.
func op(method string, args ...any) anOp { return anOp{method, ledgertest.Args(args...)} }

func raw(format string, args ...any) json.RawMessage {
	return json.RawMessage(fmt.Sprintf(format, args...))
}

func TestOpsAreTheTables(t *testing.T) {
	t.Parallel()
	obj, ref := raw(`{}`), ledger.Ref{Op: "01ARZ3NDEKTSV4RRFFQ69G5FAV", Path: "cursor"}
	long := func(n int) string { return strings.Repeat("x", n) }
	var ops []anOp
	for _, key := range []string{
		"session", "session_diff", "message/m", "part/m/p", "model/a/b/c", "plan", "todo/1", "todo/a/b/c/d/e/f", "a-b_c9/A.b:c@d+e-f",
		long(64), "k/" + long(200), "k/" + long(200) + "/" + long(200) + "/" + long(107), "sessions", "session_diffs/1", "turns/1",
		"", "/", "Todo/1", "9/1", "_a", "-a", "a b", "ä/1", "todo.x", long(65), "ref", "ref/x", "request", "request/1", "request/1/state", "request/1/2", "schema/todo", "schema", "schema/", "schema/a/b", "schema/Todo", "schema/message", "schema/schema", "schema/turn", "schema/" + long(64), "schema/" + long(65), "turn/m", "todo/", "todo//1", "/1", "todo/ä", "todo/1 ",
		"todo/a/b/c/d/e/f/g", "k/" + long(201), "k/" + long(200) + "/" + long(200) + "/" + long(109), "k/" + strings.Repeat("ä", 256),
		"session/x", "session_diff/1", "message", "message/", "message/a/b", "part/m", "part/m/p/q", "model", "model/", "model/" + long(201),
	} {
		ops = append(ops, op("put", "key", key, "payload", obj), op("remove", "key", key), op("patch", "key", key, "patch", obj))
	}
	for _, value := range []string{`null`, ` null `, `true`, `7`, `-0.50e1`, `"é\u00e9"`, ` [ 1 , {"a":1,"a":2} ] `, ` {"a" : null}`} {
		ops = append(ops, op("put", "key", "plan", "payload", raw("%s", value)), op("put", "key", "session", "payload", raw("%s", value)), op("patch", "key", "plan", "patch", raw("%s", value)))
	}
	for _, n := range []string{`0`, ` 1 `, `9007199254740992`, `9007199254740993`, `18446744073709551616`, `-0`, `-1`, `1.0`, `1e3`, `"1"`, `true`, `[]`, `null`} {
		for _, x := range []anOp{op("put", "key", "todo/1", "payload", 7), op("put", "key", "message/m", "payload", obj), op("remove", "key", "message/m"), op("patch", "key", "todo/1", "patch", obj), op("add", "key", "todo/1", "member", "n", "by", 1)} {
			x.args = append(x.args, ledger.Arg{Name: "expect", JSON: raw("%s", n)})
			ops = append(ops, x)
		}
		ops = append(ops, op("patch", "key", "todo/1", "patch", obj, "schema_version", raw("%s", n)))
	}
	for _, by := range []string{`0`, `-0`, ` -7 `, `9007199254740991`, `-9007199254740991`, `9007199254740992`, `-9007199254740992`, `9007199254740993`, `99999999999999999999`, `1.0`, `1e3`, `"1"`, `null`, `{}`} {
		ops = append(ops, op("add", "key", "n", "member", "a", "by", raw("%s", by)))
	}
	for _, member := range []string{`""`, `"a b"`, `"\u0000\ufffd"`, `"` + long(256) + `"`, `"` + long(257) + `"`, `"\ud83d\ude00"`, `"\ud83d"`, `"\ude00\ud83d"`, `7`, `null`, `["a"]`, ` "a" `, `"\"ä\u00e4"`} {
		ops = append(ops, op("add", "key", "n", "member", raw("%s", member), "by", 1))
	}
	ops = append(ops,
		op("put"), op("put", "key", "todo/1"), op("put", "payload", obj), op("put", "key", nil, "payload", obj), op("put", "key", 5, "payload", obj), op("put", "key", raw(`"\u0074odo/1"`), "payload", 7),
		op("put", "key", "todo/1", "payload", 7, "colour", 1), op("put", "key", ref, "payload", obj), op("put", "key", ref, "payload", 7), op("put", "key", "todo/1", "payload", ref), op("put", "key", "todo/1", "payload", 7, "expect", ref), op("put", "key", ref, "payload", obj, "expect", 0),
		op("put", "key", "todo/1", "payload", 7, "schema_version", 3), op("put", "key", "todo/1", "payload", 7, "schema_version", 0),
		op("remove"), op("remove", "key", "todo/1", "payload", 1), op("purge", "key", "todo/1"), op("purge", "key", "message/m"), op("purge", "key", "turn/m"), op("purge", "key", "todo/1", "expect", 1),
		op("patch", "key", "todo/1"), op("patch", "patch", obj), op("patch", "key", 7, "patch", obj), op("patch", "key", ref, "patch", ref), op("patch", "key", "todo/1", "patch", raw(`{"a":1,"a":2}`)), op("patch", "key", "todo/1", "payload", obj),
		op("add"), op("add", "key", "n"), op("add", "key", "n", "by", 1), op("add", "key", "n", "member", "a"), op("add", "key", ref, "member", ref, "by", ref, "expect", ref), op("add", "key", "part/m/p", "member", "n", "by", 1), op("add", "key", "n", "member", "a", "by", 1, "schema_version", 2),
		op("begin", "message", "m", "payload", obj), op("begin", "message", "m", "payload", 7), op("begin", "message", "m", "payload", obj, "expect", 0),
		op("appendText", "key", "todo/1", "offset", 0, "text", "x"), op("appendText", "key", "part/m/p", "offset", 0, "text", "x"), op("appendText", "key", "part/m/p", "offset", int64(1)<<53+1, "text", "x"),
		op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", []string{"put"}), op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", []string{"put", "patch"}),
		op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", []string{"add"}), op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", []string{"delete"}),
		op("share", "ref", ref, "hash", ref, "rights", []string{"read"}, "read_keys", []string{"todo/"}), op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "write_keys", []string{"todo/"}), op("share", "ref", ref, "hash", ref, "rights", []string{"read"}),
		op("share", "ref", ref, "hash", ref, "rights", []string{"read"}, "read_keys", []string{"Todo/"}), op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "write_keys", []string{"todo/", "1"}),
		op("bumpEpoch"), op("bumpEpoch", "key", "todo/1"), op("snatch", "key", "todo/1"), op("constructor"),
		op("claim"), op("claim", "lease", 5000), op("claim", "key", "todo/1"), op("claim", "key", "todo/1", "lease", 5000), op("claim", "key", "message/m", "lease", 5000), op("claim", "key", nil, "prefix", nil, "lease", 5000), op("claim", "key", ref, "lease", ref, "worker", ref),
		op("claim", "key", "todo/1", "prefix", "todo/", "lease", 5000), op("claim", "prefix", "todo/a/", "lease", 999), op("claim", "prefix", "todo/a/", "lease", 3_600_001), op("claim", "prefix", "todo/a/", "lease", 3_600_000, "worker", strings.Repeat("ä", 32)),
		op("claim", "prefix", "todo", "lease", 5000), op("claim", "prefix", "", "lease", 5000), op("claim", "prefix", "part/m/", "lease", 5000), op("claim", "prefix", 7, "lease", 5000), op("claim", "prefix", "todo/", "lease", 5000, "worker", strings.Repeat("ä", 33)), op("claim", "prefix", "todo/", "lease", 5000, "claim", 1),
		op("release", "key", "todo/1", "claim", 7), op("release", "key", "todo/1"), op("release", "claim", 7), op("release", "key", "part/m/p", "claim", 7), op("release", "key", "todo/1", "claim", -1),
		op("put", "key", "message/m", "payload", obj, "claim", 7), op("remove", "key", "todo/1", "claim", "7"), op("patch", "key", "todo/1", "patch", obj, "claim", ref), op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", []string{"claim"}),
		op("share", "ref", ref, "hash", ref, "rights", []string{"append", "schema"}), op("share", "ref", ref, "hash", ref, "rights", []string{"break"}, "write_keys", []string{"todo/"}), op("share", "ref", ref, "hash", ref, "rights", []string{"schema"}, "write_keys", []string{"schema/todo"}), op("share", "ref", ref, "hash", ref, "rights", []string{"", "none"}),
		op("put", "key", "schema/todo", "payload", true), op("put", "key", "schema/todo", "payload", raw(`{"type":"null"}`), "expect", 0), op("remove", "key", "schema/todo", "expect", 1), op("purge", "key", "schema/todo"), op("add", "key", "schema/todo", "member", "a", "by", 1),
	)
	ops = append(ops, op("unrevert"), op("unrevert", "to", "message/m"), op("revert"), op("revert", "to", "message/m", "cursor", 3), op("revert", "to", ref), op("revert", "cursor", ref), op("revert", "to", nil, "cursor", 0),
		op("share", "ref", ref, "hash", ref, "rights", []string{"revert"}), op("share", "ref", ref, "hash", ref, "rights", []string{"append", "revert"}, "write_keys", []string{"todo/"}), op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", []string{"revert"}))
	for _, children := range []any{[]string{"read"}, []string{"append", "read"}, []string{"share"}, []string{"create"}, []string{"compact"}, []string{}, ref, nil} {
		ops = append(ops, op("share", "ref", ref, "hash", ref, "rights", []string{"read", "compact"}, "children", children))
	}
	for _, limit := range [][2]any{{"message", "m"}, {"message", ""}, {"from", 2}, {"from", 1}, {"read_keys", []string{"todo/"}}, {"write_keys", []string{"todo/"}}, {"methods", []string{"put"}}} {
		ops = append(ops, op("share", "ref", ref, "hash", ref, "rights", []string{"read", "append"}, "children", []string{"read"}, limit[0].(string), limit[1]))
	}
	for _, v := range []any{raw(`true`), raw(` true `), raw(`false`), raw(`null`), "yes", 1, ref} {
		ops = append(ops, op("put", "key", "message/m", "payload", obj, "sync", v), op("put", "key", "todo/1", "payload", 7, "sync", v), op("remove", "key", "message/m", "sync", v),
			op("create", "ref", ref, "hash", ref, "shared_external", v), op("create", "ref", ref, "hash", ref, "parent", json.RawMessage(`"ses_01ARZ3NDEKTSV4RRFFQ69G5FAV"`), "via", ref, "shared_external", v),
			op("share", "ref", ref, "hash", ref, "rights", []string{"read"}, "public", v), op("share", "ref", ref, "hash", ref, "rights", []string{"append", "read"}, "public", v))
	}
	for _, limit := range [][2]any{{"redemptions", 1}, {"redemptions", 0}, {"seal", strings.Repeat("A", 43)}, {"seal", ""}, {"message", "m"}, {"read_keys", []string{"todo/"}}, {"rights", ref}} {
		share := op("share", "ref", ref, "hash", ref, "public", raw(`true`), limit[0].(string), limit[1])
		if limit[0] != "rights" {
			share.args = append(share.args, op("share", "rights", []string{"read"}).args...)
		}
		ops = append(ops, share)
	}
	for _, to := range []any{"message/m", "part/m/p", "todo/1", "session", "part/m", "", 7} {
		ops = append(ops, op("revert", "to", to))
	}
	for _, at := range []string{`0`, ` 7 `, `9007199254740992`, `9007199254740993`, `-1`, `1.0`, `"1"`, `null`} {
		ops = append(ops, op("revert", "cursor", raw("%s", at)))
	}
	ops = append(ops, op("compact"), op("compact", "upto", "message/m"), op("compact", "upto", ref, "summary", ref), op("compact", "upto", "message/m", "summary", "message/n", "to", "message/o"),
		op("share", "ref", ref, "hash", ref, "rights", []string{"read", "compact"}), op("share", "ref", ref, "hash", ref, "rights", []string{"append"}, "methods", []string{"compact"}))
	for _, k := range []any{"message/m", "part/m/p", "todo/1", "session", "message/", "", 7, nil} {
		ops = append(ops, op("compact", "upto", k, "summary", "message/n"), op("compact", "upto", ref, "summary", k))
	}
	for _, more := range [][]any{nil, {"message", "msg_1"}, {"message", ""}, {"message", "a/b"}, {"message", 7}, {"message", nil}, {"message", ref}, {"message", long(201)}, {"at", 3, "message", "m"}, {"messages", "m"}} {
		ops = append(ops, op("fork", append([]any{"source", ref, "via", ref, "ref", ref, "hash", ref}, more...)...))
	}
	parent := json.RawMessage(`"ses_01ARZ3NDEKTSV4RRFFQ69G5FAV"`)
	for _, more := range [][]any{{"parent", parent, "via", ref}, {"parent", parent, "via", ref, "part", "part/msg_1/prt_1"}, {"parent", ref, "via", ref, "part", ref}, {"parent", parent, "via", ref, "part", "message/msg_1"}, {"parent", parent, "via", ref, "part", ""},
		{"origin", parent, "origin_at", 7}, {"origin", parent, "origin_at", 7, "origin_message", "m"}, {"origin", ref, "origin_at", ref, "origin_message", ref}, {"origin", parent}, {"origin", "ses_1", "origin_at", 7}, {"origin_at", 7}, {"origin_message", "m"}, {"origin", parent, "origin_at", 7, "origin_message", "a/b"},
		{"parent", parent}, {"parent", ""}, {"parent", nil}, {"parent", 7}, {"parent", "ses_1", "via", ref}, {"via", ref}, {"part", "message/m"}, {"parent", parent, "via", "x"}, {"parent", parent, "via", ref, "part", "todo/1"}, {"parent", parent, "via", ref, "part", "part/a"}} {
		ops = append(ops, op("create", append([]any{"ref", ref, "hash", ref}, more...)...))
	}
	for _, more := range [][]any{nil, {"payload", 7}, {"payload", obj, "expires_in", 1000, "message", "m"}, {"expires_in", 999}, {"expires_in", int64(2592000000)}, {"expires_in", int64(2592000001)}, {"message", ""}, {"message", "a/b"},
		{"choices", raw(`[{"id":"a"},{"id":"b","label":"B"}]`)}, {"choices", raw(`[]`)}, {"choices", raw(`[{"id":"a"},{"id":"a"}]`)}, {"choices", raw(`["a"]`)}, {"choices", raw(`[{"id":7}]`)}, {"choices", raw(`[{"id":""}]`)}, {"choices", raw(`{"id":"a"}`)},
		{"choices", raw(`[{"id":%q}]`, long(64))}, {"choices", raw(`[{"id":%q}]`, long(65))}, {"choices", ref}, {"payload", ref, "message", ref, "expires_in", ref}, {"answer", "x"}} {
		ops = append(ops, op("ask", append([]any{"request", "r", "kind", "own"}, more...)...))
	}
	for _, kind := range []any{"prompt", "stop", "permission", "own-kind_2", "Own", "", long(64), long(65), 7, nil, ref} {
		ops = append(ops, op("ask", "request", "r", "kind", kind), op("ask", "request", "r", "kind", kind, "message", "m"))
	}
	for _, id := range []any{"r", "A.b:c@d+e-f", long(200), long(201), "", "a/b", 7, nil, ref} {
		ops = append(ops, op("ask", "request", id, "kind", "own"), op("claim", "request", id, "lease", 1000), op("release", "request", id, "claim", 3), op("answer", "request", id), op("withdraw", "request", id))
	}
	for _, more := range [][]any{{"choice", "a", "shown", long(64), "claim", 7, "payload", 7}, {"choice", ref, "shown", ref, "claim", ref, "payload", ref}, {"state", "answered"}, {"state", "unknown", "claim", 7, "reason", "gone"}, {"state", "unknown", "choice", "a"}, {"state", "open"}, {"reason", "x"}, {"claim", "7"}, {"payload", nil}, {"state", ref}} {
		ops = append(ops, op("answer", append([]any{"request", "r"}, more...)...))
	}
	ops = append(ops, op("ask", "request", "r"), op("ask", "kind", "own"), op("answer"), op("withdraw"), op("withdraw", "request", "r", "reason", "late"), op("withdraw", "request", "r", "claim", 1),
		op("claim", "request", "r", "key", "todo/1", "lease", 1000), op("claim", "request", "r", "prefix", "todo/", "lease", 1000), op("claim", "request", "r", "lease", 1000, "worker", "w"), op("claim", "request", "r"), op("release", "request", "r"), op("release", "request", "r", "key", "todo/1", "claim", 1),
		op("claim", "key", "request/r", "lease", 1000), op("patch", "key", "request/r", "patch", obj), op("purge", "key", "request/r"), op("purge", "key", "request/r/state"))
	for _, limit := range [][]any{{"ask", []string{"prompt", "stop"}}, {"answer", []string{"permission"}}, {"ask", []string{}}, {"ask", []string{"No"}}, {"ask", ref}, {"ask", nil}} {
		ops = append(ops, op("share", append([]any{"ref", ref, "hash", ref, "rights", []string{"read", "ask", "answer"}}, limit...)...), op("share", append([]any{"ref", ref, "hash", ref, "rights", []string{"read"}}, limit...)...), op("share", append([]any{"ref", ref, "hash", ref, "rights", ref}, limit...)...))
	}
	table := make([]tableOp, len(ops))
	for i, x := range ops {
		intents := []ledger.Intent{{Method: x.method, Args: x.args}}
		row := tableOp{Method: x.method, Args: []tableArg{}, Needs: opargs.FeaturesOf(intents).Names()}
		for _, a := range x.args {
			arg := tableArg{Name: a.Name, JSON: string(a.JSON)}
			if a.Ref != nil {
				arg.Ref = &tableRef{a.Ref.Op, a.Ref.Path}
			}
			row.Args = append(row.Args, arg)
		}
		if _, err := opargs.CheckOps(intents, session.DefaultLimits()); err != nil {
			row.Error = err.Error()
		}
		table[i] = row
	}
	var text bytes.Buffer
	for i, row := range table {
		text.WriteString(map[bool]string{true: "[\n", false: ",\n"}[i == 0])
		enc := json.NewEncoder(&text)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(row); err != nil {
			t.Fatal(err)
		}
		text.Truncate(text.Len() - 1)
	}
	text.WriteString("\n]\n")
	path := filepath.Join("..", "..", "..", "testdata", "ops.json")
	if *updateOps {
		if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	kept, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(kept, text.Bytes()) {
		t.Errorf("testdata/ops.json is not what is checked (%v): go test ./internal/session/opargs -run TestOpsAreTheTables -update", err)
	}
}
