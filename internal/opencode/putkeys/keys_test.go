package putkeys

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/mooring-rpc/mooring/internal/opencode"
)

// What a crash leaves of the file of keys is read as far as it says something.
func TestKeys(t *testing.T) {
	t.Parallel()
	a, b := opencode.Put{Key: "message/a", Payload: []byte("1")}, opencode.Put{Key: "part/a/b", Payload: []byte("2")}
	open := func(name string) *Keys {
		k := New(name)
		if err := k.Load(); err != nil {
			t.Fatal(err)
		}
		return k
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(t.TempDir(), "keys")
	k := open(name)
	must(k.Expect([]opencode.Put{a, b}))
	if k.Has(&a) {
		t.Error("a value is there that was not committed")
	}
	must(k.Committed([]opencode.Put{a, b}))
	must(k.Expect([]opencode.Put{b}))
	if k = open(name); !k.Has(&a) || k.Has(&b) || len(k.hashes) != 2 {
		t.Errorf("read again: %v", k.hashes)
	}
	torn := func(text string) {
		t.Helper()
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND, 0)
		must(err)
		_, err = f.WriteString(text)
		must(errors.Join(err, f.Close()))
	}
	torn("=0011 part/a")
	if k = open(name); len(k.hashes) != 2 || !k.Has(&a) {
		t.Errorf("read after a crash: %v", k.hashes)
	}
	c := opencode.Put{Key: "message/c", Payload: []byte("3")}
	must(k.Expect([]opencode.Put{c}))
	must(k.Committed([]opencode.Put{c}))
	if k = open(name); len(k.hashes) != 3 || !k.Has(&c) {
		t.Errorf("written after a crash: %v", k.hashes)
	}
	must(k.Committed([]opencode.Put{{Key: c.Key}}))
	torn("+messa=0011 message/c\n")
	if k = open(name); len(k.hashes) != 2 || !k.Has(&a) {
		t.Errorf("with a line where two writes met: %v", k.hashes)
	}
	info := func(revert string) []opencode.Put {
		return []opencode.Put{{Key: "session", Payload: []byte(`{"revert":{"messageID":"` + revert + `"}}`)}}
	}
	step := func(what string, known bool, puts ...opencode.Put) {
		t.Helper()
		must(k.Expect(puts))
		must(k.Committed(puts))
		if k = open(name); k.Has(&a) != known {
			t.Errorf("%s: %v", what, k.hashes)
		}
	}
	step("reverted", false, info("a")[0])
	step("put while it is reverted", false, a)
	step("no longer", false, info("")[0])
	step("put again", true, a)
	must(k.Committed([]opencode.Put{{Key: "session"}}))
	for range 2000 {
		must(k.Committed([]opencode.Put{b}))
	}
	must(k.Committed([]opencode.Put{{Key: a.Key}}))
	if k = open(name); len(k.hashes) != 1 || !k.Has(&b) {
		t.Errorf("read again: %v", k.hashes)
	}
	if info, err := os.Stat(name); err != nil || info.Size() > 100_000 {
		t.Errorf("its history stays: %v, %v", info.Size(), err)
	}
}
