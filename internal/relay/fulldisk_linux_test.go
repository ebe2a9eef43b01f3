package relay

import (
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/putkeys"
	"github.com/mooring-rpc/mooring/internal/relay/relaytest"
)

// smallDisk is a file system of its own, where this user may mount one.
type smallDisk struct {
	t   *testing.T
	dir string
}

// newSmallDisk mounts one at dir, until the test ends.
func newSmallDisk(t *testing.T, dir string) *smallDisk {
	t.Helper()
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=64k,mode=0700"); err != nil {
		t.Skipf("a full disk is not tried: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return &smallDisk{t, dir}
}

func (d *smallDisk) filler() string { return filepath.Join(d.dir, "filler") }

// fill leaves no room: what is written to it next does not fit.
func (d *smallDisk) fill() {
	d.t.Helper()
	if err := os.WriteFile(d.filler(), make([]byte, 1<<20), 0o600); err == nil {
		d.t.Fatal("the disk took a megabyte")
	}
}

func (d *smallDisk) empty() {
	d.t.Helper()
	if err := os.Remove(d.filler()); err != nil {
		d.t.Fatal(err)
	}
}

// On a full disk nothing is answered that is not kept, a start succeeds, and what was to end ends: at once here, and at the server when there is
// room.
func TestAFullDisk(t *testing.T) {
	t.Parallel()
	oc := relaytest.NewOpencode(t)
	disk := newSmallDisk(t, filepath.Join(t.TempDir(), "relay"))
	r := start(t, func(c *Config) { c.Dir, c.Opencode = disk.dir, []*url.URL{parseURL(t, oc.URL())} })
	c, ends, made := create(t, r.http.URL, "ses_x"), create(t, r.http.URL, "ses_ends"), create(t, r.http.URL, "ses_made")
	all := []string{infoItem("ses_x", "a", ""), messageItem(1)}
	oc.Store(c.URL, all...)
	syncTo(t, r.http.URL, c, all...)
	syncTo(t, r.http.URL, ends, messageItem(1))
	syncTo(t, r.http.URL, made, messageItem(1))
	r.caughtUp()
	r.drained()
	r.stopRelay()
	rec := readRecord(t, disk.dir, made.ID)
	rec.Made = false
	if err := rec.write(disk.dir); err != nil {
		t.Fatal(err)
	}
	disk.fill()
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
	disk.empty()
	r.caughtUp()
	r.settled()
	if r.data(ends.ID) != nil {
		t.Error("the share goes on at the server")
	}
	if got, want := bare(r.data(c.ID)), append(all, items...); strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("the share has\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if ends, made := readRecord(t, disk.dir, ends.ID), readRecord(t, disk.dir, made.ID); !ends.EndSent || ends.Ended == 0 || !made.Made {
		t.Errorf("the files have %+v and %+v", ends, made)
	}
	text = string(readFile(t, keysName(disk.dir, c.ID)))
	for line := range strings.Lines(text) {
		if strings.Count(line, "message/") > 1 || !strings.HasSuffix(line, "\n") {
			t.Errorf("the file of keys has the line %q", line)
		}
	}
	files, err := os.ReadDir(disk.dir)
	if err != nil || len(files) != 6 {
		t.Errorf("the folder has %v, %v", files, err)
	}
}

// A write that does not fit leaves nothing: neither of the file, nor of what is known.
func TestKeysOnAFullDisk(t *testing.T) {
	t.Parallel()
	disk := newSmallDisk(t, filepath.Join(t.TempDir(), "keys"))
	name := keysName(disk.dir, "x")
	k := putkeys.New(name)
	a := opencode.Put{Key: "message/a", Payload: []byte("1")}
	put := func(puts ...opencode.Put) error {
		err := k.Expect(puts)
		if err == nil {
			err = k.Committed(puts)
		}
		return err
	}
	if err := put(a); err != nil {
		t.Fatal(err)
	}
	disk.fill()
	for n := range 200 { // of 30 bytes: beyond a page
		err := put(opencode.Put{Key: "message/" + strings.Repeat("x", 20+n), Payload: []byte("2")})
		if n == 199 && err == nil {
			t.Fatal("it takes any number of lines")
		}
	}
	if err := put(opencode.Put{Key: "session", Payload: []byte(`{"revert":{"messageID":"a"}}`)}, opencode.Put{Key: "message/" + strings.Repeat("y", 4000)}); err == nil {
		t.Fatal("it takes a line that has no room")
	}
	if err := k.Load(); err != nil {
		t.Fatal(err)
	}
	if !k.Has(&a) {
		t.Errorf("a reset that was not written counts: %v", k)
	}
	if text := readFile(t, name); text[len(text)-1] != '\n' {
		t.Errorf("a line is cut off: %q", text[max(0, len(text)-100):])
	}
	disk.empty()
	b := opencode.Put{Key: "message/b", Payload: []byte("3")}
	if err := put(b); err != nil {
		t.Fatal(err)
	}
	k.Unload()
	if err := k.Load(); err != nil || !k.Has(&a) || !k.Has(&b) {
		t.Errorf("read again it has %v, %v", k, err)
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
