//go:build upgrade

package e2e

// An older binary (MOORING_OLD_BINARY) and this one at work on one Postgres, each with
// clients of either: 10,000 ops, of which none may be lost, doubled or misread.

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// writing is a client of one version at a server of one.
type writing struct {
	*home
	name string
	ref  string // a file with the session's ref at that server
	ops  []string
}

// line adds an op of a batch to lines, and its id to the writer's.
func (w *writing) line(lines *bytes.Buffer, batch int, op map[string]any) {
	op["op_id"], op["batch"] = ulid.Make().String(), fmt.Sprint(batch)
	w.ops = append(w.ops, op["op_id"].(string))
	text, err := json.Marshal(op)
	if err != nil {
		w.t.Fatal(err)
	}
	lines.Write(append(text, '\n'))
}

// round appends what one round consists of: 125 ops of every kind.
func (w *writing) round(round int) {
	w.t.Helper()
	var lines bytes.Buffer
	n := 0
	add := func(line map[string]any) {
		if value, ok := line["payload"].(map[string]any); ok { // by which an export's messages and parts are known
			id, _ := line["message"].(string)
			if key, ok := line["key"].(string); ok {
				id = path.Base(key)
				if message, ok := strings.CutPrefix(path.Dir(key), "part/"); ok {
					value["messageID"] = message // as this binary's exports have it, also where a value lacks it
				}
			}
			value["id"] = id
		}
		w.line(&lines, n/5, line)
		n++
	}
	for i := range 25 {
		id := fmt.Sprintf("%s_%d_%d", w.name, round, i)
		switch i % 5 {
		case 0: // values that stay
			for _, key := range []string{"message/" + id, "part/" + id + "/a", "part/" + id + "/b", "session", "message/of_all"} {
				add(map[string]any{"method": "put", "key": key, "payload": map[string]any{"by": w.name, "n": n}})
			}
		case 1: // a turn that streams
			add(map[string]any{"method": "begin", "message": id, "payload": map[string]any{"role": "assistant"}})
			add(map[string]any{"method": "put", "key": "part/" + id + "/t", "payload": map[string]any{"type": "text"}})
			add(map[string]any{"method": "appendText", "key": "part/" + id + "/t", "offset": 0, "text": "as it "})
			add(map[string]any{"method": "appendText", "key": "part/" + id + "/t", "offset": 6, "text": "comes"})
			add(map[string]any{"method": "finalize", "message": id, "status": "completed"})
		case 2: // what is taken away, and put anew
			add(map[string]any{"method": "put", "key": "message/" + id, "payload": map[string]any{"n": 1}})
			add(map[string]any{"method": "put", "key": "part/" + id + "/a", "payload": map[string]any{"n": 2}})
			add(map[string]any{"method": "remove", "key": "part/" + id + "/a"})
			add(map[string]any{"method": "remove", "key": "message/" + id})
			add(map[string]any{"method": "put", "key": "message/" + id, "payload": map[string]any{"n": 3}})
		case 3: // what is purged
			add(map[string]any{"method": "put", "key": "message/" + id, "payload": map[string]any{"secret": id}})
			add(map[string]any{"method": "put", "key": "model/" + id, "payload": map[string]any{"n": 1}})
			add(map[string]any{"method": "purge", "key": "message/" + id})
			add(map[string]any{"method": "put", "key": "session_diff", "payload": map[string]any{"by": id}})
			add(map[string]any{"method": "put", "key": "message/of_all", "payload": map[string]any{"by": id}})
		case 4: // refs, and a turn that is ended as failed
			share := map[string]any{"method": "share", "rights": []string{"read", "append"}, "label": id, "as": "s" + id}
			add(share)
			add(map[string]any{"method": "revoke", "refs": map[string]any{"ref": map[string]any{"op": "s" + id, "path": "ref"}}})
			add(map[string]any{"method": "begin", "message": id, "payload": map[string]any{"role": "assistant"}})
			add(map[string]any{"method": "finalize", "message": id, "status": "failed", "error": map[string]any{"message": "as it happens"}})
			add(map[string]any{"method": "put", "key": "part/" + id + "/a", "payload": map[string]any{"after": "the end"}})
		}
	}
	if s := w.try(lines.String(), "session", "append", w.ref, "--wait", "--json"); s.code != 0 && !strings.Contains(s.err+s.out, "unavailable") {
		w.t.Errorf("%s, round %d: exit code %d\n%s", w.name, round, s.code, s.err)
	}
}

// oldAndNew are the older binary and a server of each version on one database, of which the older one runs and has made a session.
func oldAndNew(t *testing.T) (old, database string, servers []*server, ref capability.Ref) {
	t.Helper()
	if old = os.Getenv("MOORING_OLD_BINARY"); old == "" {
		t.Fatal("MOORING_OLD_BINARY is not set: make upgrade OLD=COMMIT sets it")
	}
	database = pgtest.URL(t)
	servers = []*server{newServer(t, serverConfig{URL: database, Path: old}), newServer(t, serverConfig{URL: database})}
	servers[0].start("")
	return old, database, servers, makeSession(t, servers[0])
}

func TestReplicasOfTwoVersions(t *testing.T) {
	const rounds = 20
	old, _, servers, ref := oldAndNew(t)
	var writers []*writing
	var tails []*process
	for i, srv := range []string{"old", "new"} {
		for _, binary := range []string{"old", "new"} {
			h := newHome(t)
			if binary == "old" {
				h.path = old
			}
			w := &writing{home: h, name: binary + "_at_" + srv, ref: "@" + writeRef(t, at(ref, servers, i))}
			writers = append(writers, w)
		}
	}
	work := func(from, to int, writers ...*writing) *sync.WaitGroup {
		var all sync.WaitGroup
		for _, w := range writers {
			all.Go(func() {
				for round := from; round < to; round++ {
					w.round(round)
				}
			})
		}
		return &all
	}
	follow := func(writers ...*writing) {
		for _, w := range writers {
			tails = append(tails, w.follow("session", "tail", w.ref, "--follow", "--json"))
		}
	}
	// The newer one comes, and migrates the database, while the older one is at work.
	follow(writers[:2]...)
	first := work(0, 5, writers[:2]...)
	servers[1].start("")
	follow(writers[2:]...)
	second := work(0, rounds, writers[2:]...)
	first.Wait()
	third := work(5, rounds-5, writers[:2]...)
	servers[1].restart() // while all of them write
	third.Wait()
	second.Wait()
	work(rounds-5, rounds, writers[:2]...).Wait()

	var want []string
	for _, w := range writers {
		w.do("outbox", "drain")
		want = append(want, w.ops...)
	}
	if len(want) != 4*rounds*125 {
		t.Fatalf("%d ops were made", len(want))
	}
	var logs [][]tailed
	for i, w := range writers {
		lines := splitLines(w.do("session", "tail", w.ref, "--json"))
		log := tailedLines(t, lines)
		logs = append(logs, log)
		gapless(t, w.name, log, 0, uint64(len(log)))
		if !reflect.DeepEqual(log, logs[0]) {
			t.Errorf("%s has another log than %s", w.name, writers[0].name)
		}
		last := fmt.Sprintf(`{"cursor":%d,`, len(log))
		if _, ok := tails[i].out.await(tails[i].done, func(l string) bool { return strings.HasPrefix(l, last) }); !ok {
			t.Errorf("%s, following, does not come to the end:\n%s", w.name, tails[i].err.text())
		}
		if followed := tailedLines(t, tails[i].out.list()); !reflect.DeepEqual(followed, log) {
			t.Errorf("%s has followed %d events, and the log has %d", w.name, len(followed), len(log))
		}
		w.do("session", "verify", w.ref)
	}
	at, count := map[string]int{}, map[string]int{}
	for i, e := range logs[0] {
		at[e.Op] = i
		count[e.Op]++
	}
	for _, w := range writers {
		last := -1
		for _, op := range w.ops {
			switch i, ok := at[op]; {
			case !ok:
				t.Errorf("%s: op %s is lost", w.name, op)
			case count[op] != 1:
				t.Errorf("%s: op %s is there %d times", w.name, op, count[op])
			case i < last:
				t.Errorf("%s: op %s is out of order", w.name, op)
			default:
				last = i
			}
		}
	}
	if extra := len(logs[0]) - len(want); extra != 1 { // the session's creation
		t.Errorf("%d events for %d ops", len(logs[0]), len(want))
	}
	var exports []map[string]any
	for _, w := range writers {
		export := exported(t, w.do("session", "export", w.ref))
		exports = append(exports, export)
		if !reflect.DeepEqual(export, exports[0]) {
			t.Errorf("%s exports another state than %s", w.name, writers[0].name)
		}
	}
	imports(t, servers, old)
}

// Ops that the older binary does not know, from clients of this one at servers of either: they wait in
// the outboxes, and each applies once when the older server has been upgraded. Readers of the older
// version are shown nothing that they would misread.
func TestNewOpsWaitForTheUpgrade(t *testing.T) {
	const rounds, perRound = 5, 200 // of five ops each, for either writer
	old, database, servers, ref := oldAndNew(t)
	servers[1].start("")

	var writers []*writing
	var tails []*process
	for i, srv := range []string{"old", "new"} {
		file := "@" + writeRef(t, at(ref, servers, i))
		reader := newHome(t)
		reader.path = old
		tails = append(tails, reader.follow("session", "tail", file, "--follow", "--json"))
		writers = append(writers, &writing{home: newHome(t), name: srv, ref: file})
	}
	for round := range rounds {
		for _, w := range writers {
			w.newOps(round, perRound)
		}
	}
	for _, w := range writers {
		if s := w.try("", "outbox", "status"); s.code != 0 || !strings.Contains(s.out+s.err, "unsupported") {
			t.Errorf("%s: outbox status says\n%s%s", w.name, s.out, s.err)
		}
		if log := splitLines(w.do("session", "tail", w.ref, "--json")); len(log) != 1 {
			t.Fatalf("%s: %d events, while a server of the older version runs", w.name, len(log))
		}
	}

	servers[0].cfg.Path = ""
	servers[0].restart()
	newHome(t).do("admin", "upgrade", "finish", "--data", servers[1].data, "--database-url", database)
	var want []string
	for _, w := range writers {
		eventually(t, w.name+"'s outbox is empty", func() bool { return w.try("", "outbox", "drain").code == 0 })
		want = append(want, w.ops...)
	}
	if len(want) != 2*rounds*perRound*5 {
		t.Fatalf("%d ops were made", len(want))
	}
	log := tailedLines(t, splitLines(writers[0].do("session", "tail", writers[0].ref, "--json")))
	gapless(t, "the log", log, 0, uint64(len(want))+1)
	at := map[string]int{}
	for i, e := range log {
		at[e.Op] = i
	}
	for _, w := range writers {
		last := -1
		for _, op := range w.ops {
			if i, ok := at[op]; !ok || i <= last {
				t.Fatalf("%s: op %s is lost, or out of order", w.name, op)
			} else {
				last = i
			}
		}
		w.do("session", "verify", w.ref)
		if got := strings.TrimSpace(w.do("session", "get", w.ref, "count/all")); got != fmt.Sprintf(`{"n":%d}`, len(want)/5) {
			t.Errorf("%s: the counter is %s, of %d additions", w.name, got, len(want)/5)
		}
		done := splitLines(w.do("session", "ls", w.ref, "todo/", "--values", "--json"))
		if len(done) != len(want)/5 {
			t.Errorf("%s: %d values, want %d", w.name, len(done), len(want)/5)
		}
		for _, line := range done {
			if !strings.Contains(line, `"state":"done"`) {
				t.Fatalf("%s: a value is %s", w.name, line)
			}
		}
	}
	for i, tail := range tails {
		if !within(patience, tail.done) || tail.cmd.ProcessState.ExitCode() == 0 || !strings.Contains(tail.err.text(), "incompatible") {
			t.Errorf("an older reader at the %s server was not refused:\n%s", writers[i].name, tail.err.text())
		}
		if shown := tailedLines(t, tail.out.list()); len(shown) > 1 {
			t.Errorf("an older reader was shown %d events of which it knows one", len(shown))
		}
	}
}

// A ref that reaches children has no authority at a server of the older version that runs beside this one, neither in
// its session nor below, whichever client asks; and it goes on at the others.
func TestReachAtAnOlderServer(t *testing.T) {
	old, database, servers, ref := oldAndNew(t)
	servers[1].start("")
	h := newHome(t)
	owner := "@" + writeRef(t, at(ref, servers, 1))
	space := "@" + writeRef(t, at(servers[0].owner(), servers, 1))
	h.do("admin", "upgrade", "finish", "--data", servers[1].data, "--database-url", database) // although the older one runs
	var child, text string
	eventually(t, "a child is made", func() bool {
		s := h.try("", "session", "create", "--owner", space, "--parent", owner)
		child = strings.TrimSpace(s.out)
		return s.code == 0 && h.try("", "outbox", "drain").code == 0
	})
	text = strings.TrimSpace(h.do("share", owner, "--rights", "read,append", "--with-children", "--child-rights", "read,append"))
	h.do("outbox", "drain")
	shared, err := capability.ParseRef(text)
	if err != nil {
		t.Fatal(err)
	}
	atNew, atOld := "@"+writeRef(t, at(shared, servers, 1)), "@"+writeRef(t, at(shared, servers, 0))
	line := `{"method":"put","key":"message/m","payload":{}}`
	newHome(t).do("session", "show", atNew)
	newHome(t).do("session", "show", atNew+"/"+child)
	for _, binary := range []string{old, ""} {
		guest := newHome(t)
		guest.path = binary
		guest.refused("", "missing_right", nil, "session", "show", atOld)
		guest.refused("", "missing_right", nil, "session", "tail", atOld)
		guest.refused(line, "missing_right", nil, "session", "append", atOld, "--wait")
	}
	log := splitLines(h.do("session", "tail", owner, "--json"))
	for _, l := range log {
		if strings.Contains(l, `"message/m"`) {
			t.Errorf("it wrote at the older server: %s", l)
		}
	}
	newHome(t).feed(line, "session", "append", atNew+"/"+child, "--wait")
}

// A large fork that a server of this version has made is a session as any other for an older server beside it, and for clients of
// either version: they read it, follow it and append to it.
func TestLargeForksBesideAnOlderServer(t *testing.T) {
	old, database, servers, ref := oldAndNew(t)
	servers[1].start("")
	h := newHome(t)
	owner, space := "@"+writeRef(t, at(ref, servers, 1)), "@"+writeRef(t, at(servers[0].owner(), servers, 1))
	var lines strings.Builder
	for i := range 15 {
		fmt.Fprintf(&lines, `{"method":"put","key":"message/m%02d","payload":{"id":"m%02d","text":%q}}`+"\n", i, i, strings.Repeat(fmt.Sprint(i%10), 700_000))
	}
	h.feed(lines.String(), "session", "append", owner, "-", "--wait")
	var file string
	forkAt := func(server int) string {
		line, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fork, err := capability.ParseRef(strings.TrimSpace(string(line)))
		if err != nil {
			t.Fatal(err)
		}
		return "@" + writeRef(t, at(fork, servers, server))
	}
	text := strings.Repeat("1", 700_000)
	h.do("admin", "upgrade", "finish", "--data", servers[1].data, "--database-url", database) // although the older one runs
	eventually(t, "a fork is made in pieces", func() bool {                                   // its log begins after its source's cursor
		file = filepath.Join(t.TempDir(), "fork.ref")
		h.do("session", "fork", owner, "--owner", space, "--to", file)
		h.do("outbox", "drain")
		var shown struct{ Cursor uint64 }
		if err := json.Unmarshal([]byte(h.do("session", "show", forkAt(1), "--json")), &shown); err != nil {
			t.Fatal(err)
		}
		return shown.Cursor == 17
	})
	n := 0
	for server := range servers {
		for _, binary := range []string{old, ""} {
			guest := newHome(t)
			guest.path = binary
			if out := guest.do("session", "export", forkAt(server)); strings.Count(out, text) != 2 { // m01 and m11
				t.Errorf("at server %d %q exports %d bytes", server, binary, len(out))
			}
			n++
			guest.feed(fmt.Sprintf(`{"method":"put","key":"message/more%d","payload":{"id":"more%d"}}`, n, n), "session", "append", forkAt(server), "--wait")
		}
	}
	for server := range servers {
		for _, binary := range []string{old, ""} {
			guest := newHome(t)
			guest.path = binary
			if out := guest.do("session", "tail", forkAt(server), "--from", "17", "--json"); strings.Count(out, `"key":"message/more`) != n {
				t.Errorf("server %d sends %q\n%s", server, binary, out)
			}
		}
	}
}

// newOps appends ops on keys of own kinds, which the older version does not know.
func (w *writing) newOps(round, n int) {
	w.t.Helper()
	var lines bytes.Buffer
	add := func(i int, line map[string]any) { w.line(&lines, i, line) }
	for i := range n {
		todo, scratch := fmt.Sprintf("todo/%s_%d_%d", w.name, round, i), fmt.Sprintf("scratch/%s/%d", w.name, i)
		add(i, map[string]any{"method": "put", "key": todo, "payload": map[string]any{"state": "open", "n": i}, "expect": 0})
		add(i, map[string]any{"method": "patch", "key": todo, "patch": map[string]any{"state": "done"}})
		add(i, map[string]any{"method": "add", "key": "count/all", "member": "n", "by": 1})
		add(i, map[string]any{"method": "put", "key": scratch, "payload": []int{i}})
		add(i, map[string]any{"method": "remove", "key": scratch})
	}
	w.feed(lines.String(), "session", "append", w.ref)
}

// exported reads an export, with its messages and their parts by id: the order is
// another for an older client.
func exported(t *testing.T, text string) map[string]any {
	t.Helper()
	var export map[string]any
	if err := json.Unmarshal([]byte(text), &export); err != nil {
		t.Fatal(err)
	}
	byID := map[string]any{}
	for _, m := range export["messages"].([]any) {
		m := m.(map[string]any)
		parts := map[string]any{}
		for _, p := range m["parts"].([]any) {
			parts[p.(map[string]any)["id"].(string)] = p
		}
		m["parts"] = parts
		byID[m["info"].(map[string]any)["id"].(string)] = m
	}
	export["messages"] = byID
	return export
}

// imports has a client of either version import a recording at a server of either.
func imports(t *testing.T, servers []*server, old string) {
	names := []string{"a-edit-1.18.33", "b-long-1.18.33", "f-streamlong-1.1.65", "d-revert-unshare-1.18.33"}
	for i, srv := range []string{"old", "new"} {
		for j, binary := range []string{old, mooring} {
			name, h := names[2*i+j], newHome(t)
			h.path = binary
			owner := "@" + writeRef(t, at(servers[0].owner(), servers, i))
			s := h.try("", "session", "import", filepath.Join(recordings, name+".jsonl"), "--owner", owner)
			if s.code != 0 {
				t.Errorf("%s imports at the %s server: exit code %d\n%s%s", binary, srv, s.code, s.out, s.err)
				continue
			}
			h.do("outbox", "drain")
			got, want := h.do("session", "export", strings.TrimSpace(lastLine(s.out))), string(expectedExport(t, name))
			if !reflect.DeepEqual(exported(t, got), exported(t, want)) {
				t.Errorf("%s imports at the %s server, and the export is another:\n got %s\nwant %s", binary, srv, clipped(got), clipped(want))
			}
		}
	}
}
