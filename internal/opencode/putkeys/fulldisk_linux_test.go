package putkeys

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/smalldisk"
)

// A write that does not fit leaves nothing: neither of the file, nor of what is known.
func TestKeysOnAFullDisk(t *testing.T) {
	t.Parallel()
	smalldisk.Run(t, filepath.Join(t.TempDir(), "disk"), func(disk *smalldisk.Disk) { onAFullDisk(t, disk) })
}

func onAFullDisk(t *testing.T, disk *smalldisk.Disk) {
	name := filepath.Join(disk.Dir, "keys")
	k := New(name)
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
	disk.Fill()
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
	if text, err := os.ReadFile(name); err != nil || text[len(text)-1] != '\n' {
		t.Errorf("a line is cut off: %q", text[max(0, len(text)-100):])
	}
	disk.Empty()
	b := opencode.Put{Key: "message/b", Payload: []byte("3")}
	if err := put(b); err != nil {
		t.Fatal(err)
	}
	k.Unload()
	if err := k.Load(); err != nil || !k.Has(&a) || !k.Has(&b) {
		t.Errorf("read again it has %v, %v", k, err)
	}
}
