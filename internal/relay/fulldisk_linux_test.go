package relay

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/relay/relaytest"
	"github.com/mooring-rpc/mooring/internal/smalldisk"
)

// On a full disk nothing is answered that is not kept, a start succeeds, and what was to end ends: at once here, and at the server when there is
// room.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	smalldisk.Run(t, filepath.Join(t.TempDir(), "relay"), func(disk *smalldisk.Disk) { onAFullDisk(t, disk) })
}

func onAFullDisk(t *testing.T, disk *smalldisk.Disk) {
	oc := relaytest.NewOpencode(t)
	r := start(t, func(c *Config) { c.Dir, c.Opencode = disk.Dir, []*url.URL{parseURL(t, oc.URL())} })
	c, ends, made := create(t, r.http.URL, "ses_x"), create(t, r.http.URL, "ses_ends"), create(t, r.http.URL, "ses_made")
	all := []string{infoItem("ses_x", "a", ""), messageItem(1)}
	oc.Store(c.URL, all...)
	syncTo(t, r.http.URL, c, all...)
	syncTo(t, r.http.URL, ends, messageItem(1))
	syncTo(t, r.http.URL, made, messageItem(1))
	r.caughtUp()
	r.drained()
	r.stopRelay()
	rec := readRecord(t, disk.Dir, made.ID)
	rec.Made = false
	if err := rec.write(disk.Dir); err != nil {
		t.Fatal(err)
	}
	disk.Fill()
	r.startRelay() // and it has to write that the one share was made
	at := r.http.URL + "/api/share"
	text := want(t, http.StatusInsufficientStorage, "POST", at, `{"sessionID":"ses_y"}`)
	if !strings.Contains(text, "disk_full") {
		t.Errorf("a create is answered %s", text)
	}
	want(t, http.StatusInsufficientStorage, "DELETE", at+"/"+ends.ID, `{"secret":"`+ends.Secret+`"}`)
	want(t, http.StatusNotFound, "POST", at+"/"+ends.ID+"/sync", syncBody(ends.Secret, messageItem(2)))
	r.drained()
	if r.data(ends.ID) == nil {
		t.Error("the share has ended at the server before its file says so")
	}
	// Until its last page is full, the file of keys takes lines.
	var items []string
	status := 0
	for n := 2; status != http.StatusInsufficientStorage; n++ {
		items = append(items, messageItem(n))
		oc.Store(c.URL, append(all, items...)...)
		status, text = ask(t, "POST", at+"/"+c.ID+"/sync", syncBody(c.Secret, items[len(items)-1]))
		if status != http.StatusOK && status != http.StatusInsufficientStorage {
			t.Fatalf("a sync is answered %d, %s", status, text)
		}
	}
	if !strings.Contains(text, "disk_full") {
		t.Errorf("a sync is answered %s", text)
	}
	disk.Empty()
	r.caughtUp()
	r.settled()
	if r.data(ends.ID) != nil {
		t.Error("the share goes on at the server")
	}
	if got, want := bare(r.data(c.ID)), append(all, items...); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the share has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if ends, made := readRecord(t, disk.Dir, ends.ID), readRecord(t, disk.Dir, made.ID); !ends.EndSent || ends.Ended == 0 || !made.Made {
		t.Errorf("the files have %+v and %+v", ends, made)
	}
	text = string(readFile(t, keysOf(disk.Dir, c.ID)))
	for line := range strings.Lines(text) {
		if strings.Count(line, "message/") > 1 || !strings.HasSuffix(line, "\n") {
			t.Errorf("the file of keys has the line %q", line)
		}
	}
	files, err := os.ReadDir(disk.Dir)
	if err != nil || len(files) != 6 {
		t.Errorf("the folder has %v, %v", files, err)
	}
}

func readRecord(t *testing.T, dir, id string) *record {
	t.Helper()
	list, err := readRecords(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, rec := range list {
		if rec.ID == id {
			return &rec
		}
	}
	t.Fatalf("there is no file of %s", id)
	return nil
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}
