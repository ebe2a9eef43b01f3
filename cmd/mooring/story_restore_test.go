//go:build unix

// A server that is restored from an older copy of its data folder.

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// TestFollowersOfTheOldLogAreRefused also when the new one has passed the cursor, and who
// followed the audit.
func TestFollowersOfTheOldLogAreRefused(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_followed")
	writer := r.shareTo("writer", id, "--rights", "read,append,share")
	r.stop()
	backup := r.otherHome("backup")
	copyFolder(t, backup, r.data())
	r.start()
	r.okIn(putLine("old_1")+"\n"+putLine("old_2"), "session", "append", id, "--wait")
	var last struct {
		Cursor uint64
		Hash   string
	}
	lines := strings.Split(strings.TrimSpace(r.ok("session", "tail", id, "--json")), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil {
		t.Fatal(err)
	}
	at := fmt.Sprintf("%d:%s", last.Cursor, last.Hash)
	if got := r.ok("session", "tail", id, "--from", at); got != "" {
		t.Errorf("after the last event there is %q", got)
	}
	r.ok("share", id, "--rights", "read", "--to", filepath.Join(r.dir, "old.ref"))
	rows := r.auditRows(id)
	row := rows[len(rows)-1]
	rowAt := fmt.Sprintf("%d:%s", row.Seq, row.Hash)
	if more := r.auditRows(id, "--from", rowAt); len(more) > 0 && more[0].Seq != row.Seq+1 {
		t.Errorf("after the last row there is %+v", more)
	}
	r.stop()
	putBack(t, r.data(), backup)
	r.start()
	other := r.otherHome("other")
	for _, n := range []string{"new_1", "new_2", "new_3", "new_4"} {
		r.okAs(other, putLine(n), "session", "append", writer, "--wait")
	}

	for i := range 2 * len(rows) {
		r.okAs(other, "", "share", writer, "--rights", "read", "--to", filepath.Join(r.dir, fmt.Sprintf("new%d.ref", i)))
	}

	for _, follow := range [][]string{nil, {"--follow"}} {
		r.refusedAs(r.home(), "", []string{"server_behind", "restored"}, append([]string{"audit", id, "--from", rowAt}, follow...)...)
		r.refusedAs(other, "", []string{"server_behind", "restored"}, append([]string{"session", "tail", writer, "--from", at}, follow...)...)
	}
	r.refusedAs(r.home(), "", []string{"server_behind", "before --from 1000", "restored"}, "audit", id, "--from", "1000", "--follow")
	if more := r.auditRows(id, "--from", fmt.Sprint(row.Seq)); len(more) == 0 || more[0].Seq != row.Seq+1 {
		t.Errorf("without a hash there is %+v", more)
	}
	got := r.okAs(other, "", "session", "tail", writer, "--from", at, "--start-over")
	if !strings.Contains(got, "\tstartOver\t") || !strings.Contains(got, "\tstate\tmessage/new_4\t") || strings.Contains(got, "old") {
		t.Errorf("starting over prints\n%s", got)
	}
	if got := r.okAs(other, "", "session", "tail", writer, "--from", fmt.Sprint(last.Cursor)); strings.Contains(got, "startOver") {
		t.Errorf("without a hash it prints\n%s", got)
	}
}

func TestARestoredServerIsNoticedAndNothingIsLost(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	hit, spared := r.create("ses_hit"), r.create("ses_spared")
	helper := r.shareTo("helper", hit, "--rights", "read,append")
	home := r.otherHome("agent")
	wait := func(home, ref, id string) { r.okAs(home, putLine(id), "session", "append", ref, "--wait") }
	wait(r.home(), spared, "spared_1")
	wait(home, helper, "m1")
	r.stop()
	backup, newer := r.otherHome("backup"), r.otherHome("newer")
	copyFolder(t, backup, r.data())
	r.start()
	wait(home, helper, "m2")
	wait(home, helper, "m3")
	young := r.create("ses_young")
	before := r.keys(hit)
	r.stop()
	copyFolder(t, newer, r.data())
	putBack(t, r.data(), backup)
	r.start()

	// The stream stops, at once and with the reason; what was appended stays.
	message := []string{"server_behind", hit, "restored", "restore its newer data", "mooring outbox reconcile"}
	got := r.refusedAs(home, putLine("m4"), message, "session", "append", helper, "--wait")
	if !strings.Contains(got.out, "queued") {
		t.Errorf("append --wait prints %q", got.out)
	}
	r.refusedAs(home, "", message, "outbox", "drain")
	text := r.okAs(home, "", "outbox", "status")
	for _, w := range append(message, "stopped") {
		if !strings.Contains(text, w) {
			t.Errorf("outbox status is without %q:\n%s", w, text)
		}
	}
	if st := r.statusOf(home); len(st.Streams) != 1 || st.Streams[0].Stopped != "server_behind" || st.Streams[0].Unfinished != 1 {
		t.Errorf("outbox status: %+v", st)
	}
	r.refusedAs(home, putLine("m5"), append(message, "durable", "not sent"), "session", "append", helper)
	// Readers are told as well, who have seen more than there is now.
	r.refusedAs(home, "", []string{"server_behind"}, "session", "tail", helper, "--from", "6", "--follow")
	if keys := r.keys(hit); count(keys, "m1") != 1 || count(keys, "m2")+count(keys, "m3")+count(keys, "m4")+count(keys, "m5") != 0 {
		t.Errorf("the restored session has %q", keys)
	}
	// A session that is younger than the copy is gone, and no waiting brings it back.
	gone := []string{"server_behind", young, "restored", "restore its newer data"}
	r.refusedAs(r.home(), putLine("y1"), gone, "session", "append", young, "--wait")
	r.refusedAs(r.home(), "", gone, "outbox", "drain")
	grown := `[{"type":"session","data":{"id":"ses_young","title":"ses_young"}},{"type":"message","data":{"id":"msg_1","sessionID":"ses_young","role":"user"}}]`
	r.refusedAs(r.home(), grown, append(gone, "durable"), "session", "import", "-")
	// Another session's stream goes on, and so does whoever begins with a new outbox.
	wait(r.home(), spared, "spared_2")
	wait(r.otherHome("new agent"), helper, "m2")

	// With the newer data back all that waited arrives, once.
	r.stop()
	putBack(t, r.data(), newer)
	r.start()
	r.okAs(home, "", "outbox", "drain")
	r.okAs(r.home(), "", "outbox", "drain")
	if keys := r.keys(young); count(keys, "y1") != 1 {
		t.Errorf("the session that was gone has %q", keys)
	}
	keys := r.keys(hit)
	if len(keys) != len(before)+2 || count(keys, "m4") != 1 || count(keys, "m5") != 1 {
		t.Errorf("before the restore %q, after it was undone %q", before, keys)
	}
	if st := r.statusOf(home); st.States["acked"] != 5 || len(st.Streams) != 0 {
		t.Errorf("outbox status: %+v", st)
	}
}
