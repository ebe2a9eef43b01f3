package share

// opencode's own revert, which its syncs show by the session's info alone.

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/teststore"
	"github.com/mooring-rpc/mooring/ledger"
)

// infoItem is a session's info, reverted to a message, or a part of it, or not.
func infoItem(title, message, part string) string {
	revert := ""
	switch {
	case part != "":
		revert = fmt.Sprintf(`,"revert":{"messageID":%q,"partID":%q}`, message, part)
	case message != "":
		revert = fmt.Sprintf(`,"revert":{"messageID":%q,"snapshot":"abc"}`, message)
	}
	return fmt.Sprintf(`{"type":"session","data":{"id":"ses_r","title":%q%s}}`, title, revert)
}

func messageItem(n int) string {
	return fmt.Sprintf(`{"type":"message","data":{"id":"m%d","role":"user","time":{"created":%d}}}`, n, 1000+n)
}

func partItem(n, part int) string {
	return fmt.Sprintf(`{"type":"part","data":{"id":"m%dp%d","messageID":"m%d","type":"text","text":"hello"}}`, n, part, n)
}

// turns are the items of messages with two parts each.
func turns(from, to int) (items []string) {
	for n := from; n <= to; n++ {
		items = append(items, messageItem(n), partItem(n, 1), partItem(n, 2))
	}
	return items
}

var idInData = regexp.MustCompile(`"id":"(m\d+(?:p\d+)?)"`)

// ids are those of the messages and parts of a share.
func (r *rig) ids(c opencode.CreateReply) string {
	r.t.Helper()
	var ids []string
	for _, found := range idInData.FindAllStringSubmatch(strings.Join(r.data(c), " "), -1) {
		ids = append(ids, found[1])
	}
	slices.Sort(ids)
	return strings.Join(ids, " ")
}

func TestRevertsOfOpencode(t *testing.T) {
	t.Parallel()
	const all = "m1 m1p1 m1p2 m2 m2p1 m2p2 m3 m3p1 m3p2"
	plain, toSecond := infoItem("a", "", ""), infoItem("a", "m2", "")
	steps := []struct {
		name string
		do   [][]string // syncs
		want string
	}{
		{"nothing", nil, all},
		{"to a message", [][]string{{toSecond}}, "m1 m1p1 m1p2"},
		{"to a part", [][]string{{infoItem("a", "m2", "m2p2")}}, "m1 m1p1 m1p2 m2 m2p1"},
		{"taken back", [][]string{{toSecond}, {plain}}, all},
		{"of a part, taken back", [][]string{{infoItem("a", "m2", "m2p2")}, {plain}}, all},
		{"taken back, then a prompt", [][]string{{toSecond}, {plain}, {messageItem(4)}}, all + " m4"},
		{"a prompt", [][]string{{toSecond}, {messageItem(4), plain}}, "m1 m1p1 m1p2 m4"},
		{"a prompt, its info first", [][]string{{toSecond}, {plain, messageItem(4)}}, "m1 m1p1 m1p2 m4"},
		{"a prompt, and more of it later", [][]string{{toSecond}, {messageItem(4), plain}, {partItem(4, 1), infoItem("b", "", "")}}, "m1 m1p1 m1p2 m4 m4p1"},
		{"a prompt after a part", [][]string{{infoItem("a", "m2", "m2p2")}, {messageItem(4), plain}}, "m1 m1p1 m1p2 m2 m2p1 m4"},
		{"moved back", [][]string{{infoItem("a", "m3", "")}, {toSecond}}, "m1 m1p1 m1p2"},
		{"moved on", [][]string{{toSecond}, {infoItem("a", "m3", "")}}, "m1 m1p1 m1p2 m2 m2p1 m2p2"},
		{"said again", [][]string{{toSecond}, {infoItem("b", "m2", "")}}, "m1 m1p1 m1p2"},
		{"what is hidden comes again, and its info does not", [][]string{{toSecond}, {partItem(3, 1)}}, "m1 m1p1 m1p2"},
		{"all comes again", [][]string{{toSecond}, append([]string{toSecond}, turns(1, 3)...)}, "m1 m1p1 m1p2"},
		{"all comes again, taken back", [][]string{{toSecond}, {plain}, append([]string{plain}, turns(1, 3)...)}, all},
		{"to what is not there", [][]string{{infoItem("a", "m9", "")}}, all},
		{"to a part that is not there", [][]string{{infoItem("a", "m2", "m2p9")}}, all},
		{"to what comes later", [][]string{{infoItem("a", "m4", "")}, turns(4, 5)}, all},
		{"no object", [][]string{{`{"type":"session","data":{"id":"ses_r","revert":7}}`}}, all},
		{"no name", [][]string{{`{"type":"session","data":{"id":"ses_r","revert":{"messageID":"a/b c"}}}`}}, all},
	}
	teststore.OnBoth(t, func(t *testing.T, st *store.Store) {
		r := start(t, st, func(c *settings) { c.share.CommitLimits = opencode.Limits{Ops: 20, Bytes: 1 << 20, Payload: 1 << 16} })
		for i, step := range steps {
			id := fmt.Sprintf("ses_%d", i)
			c := r.create(id)
			for _, items := range append([][]string{append([]string{plain}, turns(1, 3)...)}, step.do...) {
				items = slices.Clone(items)
				for k, item := range items {
					items[k] = strings.ReplaceAll(item, "ses_r", id)
				}
				r.want(200, r.sync(c, items...))
			}
			if got := r.ids(c); got != step.want {
				t.Errorf("%s: the share has %s, want %s", step.name, got, step.want)
			}

			c = r.create(id + "_ops") // the same by an outbox's ops
			sync := r.outboxSync(c)
			for _, items := range append([][]string{append([]string{plain}, turns(1, 3)...)}, step.do...) {
				sync(items...)
			}
			if got := r.ids(c); got != step.want {
				t.Errorf("%s, by ops: the share has %s, want %s", step.name, got, step.want)
			}
		}

		late := r.create("ses_r") // shared while it is reverted, in several transactions
		r.want(200, r.sync(late, append([]string{toSecond}, turns(1, 30)...)...))
		if got := r.ids(late); got != "m1 m1p1 m1p2" {
			t.Errorf("shared while it is reverted, it has %s", got)
		}
	})
}

// outboxSync returns what puts a sync's items by the ops of one batch, under the owner's ref of a share's session.
func (r *rig) outboxSync(c opencode.CreateReply) func(items ...string) {
	r.t.Helper()
	live := r.server.Caller(r.t.Context(), "127.0.0.1:1").Assume(shared(r.t, r, c).Owner)
	stream, err := live.OpenStream(r.t.Context(), "obx_"+ulid.Make().String(), capability.NewSecret().Reveal(), 1)
	if err != nil {
		r.t.Fatal(err)
	}
	seq := uint64(0)
	return func(items ...string) {
		r.t.Helper()
		var raw []json.RawMessage
		for _, item := range items {
			raw = append(raw, json.RawMessage(item))
		}
		var read opencode.Reader
		if err := read.Items(raw); err != nil {
			r.t.Fatal(err)
		}
		b := ledger.Batch{BatchID: ulid.Make().String()}
		for _, p := range opencode.Last(read.Puts) {
			seq++
			op := intent("put", "key", fmt.Sprintf("%q", p.Key), "payload", string(p.Payload), "sync", "true")
			op.Seq, op.BatchID = seq, b.BatchID
			b.Ops = append(b.Ops, op)
		}
		answer, err := stream.Apply(r.t.Context(), b)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, o := range answer.Outcomes {
			if o.Status != ledger.Applied {
				r.t.Fatalf("%+v", o)
			}
		}
	}
}

// What the session's owner reverts stays so, whatever opencode's info says meanwhile, until some of it is synced.
func TestOwnersRevertAndOpencodes(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	c := r.create("ses_r")
	do := r.writer(r.server.Caller(t.Context(), "127.0.0.1:1").Assume(shared(t, r, c).Owner))
	step := func(name, want string, items ...string) {
		t.Helper()
		if len(items) > 0 {
			r.want(200, r.sync(c, items...))
		}
		if got := r.ids(c); got != want {
			t.Errorf("%s: the share has %s, want %s", name, got, want)
		}
	}
	const all = "m1 m1p1 m1p2 m2 m2p1 m2p2 m3 m3p1 m3p2"
	step("all", all, append([]string{infoItem("a", "", "")}, turns(1, 3)...)...)
	do("revert", "to", `"message/m2"`)
	step("an info", "m1 m1p1 m1p2", infoItem("b", "", ""))
	step("opencode's", "m1 m1p1 m1p2 m2 m2p1 m2p2", infoItem("b", "m3", ""))
	do("revert", "to", `"message/m2"`)
	step("opencode's, taken back", "m1 m1p1 m1p2", infoItem("b", "", ""))
	step("some of it", all, partItem(2, 1))
	step("opencode's", "m1 m1p1 m1p2", infoItem("b", "m2", ""))
	do("unrevert")
	step("taken back by the owner, an info", all, infoItem("c", "m2", ""))
	page, err := r.store.ReadLog(t.Context(), shared(t, r, c).Session, 0, 1<<20, 100, nil)
	if err != nil {
		t.Fatal(err)
	}
	var reverts []string
	for _, e := range page.Shown(&capability.Grant{Owner: true, Rights: capability.OwnerRights}).Events {
		if session.IsRevert(e.Method) {
			reverts = append(reverts, e.Method)
		}
	}
	if want := []string{"revert", "revert", "revert", "unrevert", "revert", "unrevert"}; !slices.Equal(reverts, want) {
		t.Errorf("the log has %v, want %v", reverts, want)
	}
}
