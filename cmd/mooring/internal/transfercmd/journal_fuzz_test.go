package transfercmd

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The journal may be cut short anywhere, or be another file altogether: it is read
// all the same, knows no batch that no line of it names, and takes more.
func FuzzJournal(f *testing.F) {
	one, two := sha256.Sum256([]byte("1")), sha256.Sum256([]byte("2"))
	f.Add([]byte{})
	f.Add(fmt.Appendf(nil, "\n%x\n\n%x\n", one, two))
	f.Add(fmt.Appendf(nil, "\n%x\n\n%x", one, two[:20]))
	f.Add(fmt.Appendf(nil, "%X\r\n%x%x\n", one, one, two))
	f.Add([]byte("\x00\xff\nnot hexadecimal, and as long as a line of the journal has to be.\n"))
	const session = "ses_01ARZ3NDEKTSV4RRFFQ69G5FAV"
	f.Fuzz(func(t *testing.T, data []byte) {
		home := t.TempDir()
		path := filepath.Join(home, "imports", session)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		j, err := openJournal(home, session)
		if err != nil {
			t.Fatal(err)
		}
		for chain := range j.done {
			if !bytes.Contains(bytes.ToLower(data), fmt.Appendf(nil, "%x", chain)) {
				t.Errorf("%q is said to tell of %x", data, chain)
			}
		}
		before := len(j.done)
		added := sha256.Sum256(data)
		if err := j.add(added); err != nil {
			t.Fatal(err)
		}
		again, err := openJournal(home, session)
		if err != nil {
			t.Fatal(err)
		}
		if !again.done[added] || len(again.done) != len(j.done) || before > len(again.done) {
			t.Errorf("%q told of %d batches and with one more of %d", data, before, len(again.done))
		}
	})
}
