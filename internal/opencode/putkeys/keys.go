// Package putkeys knows durably which of opencode's keys were put into a session, with hashes of their values: what differs from opencode's own
// state is found without a server. A file has them, a line each:
//
//	+KEY       a value is about to be committed: from here on the session may have the key
//	=HASH KEY  the value with that hash was committed
//	-KEY       the key was removed
//	~1         an info is about to be committed that says that the session is reverted; no value is known any more
//	~0         an info was committed that says that it no longer is
//
// While a session is reverted, the server may remove what is hidden with the next sync, and so no value counts as known from the sync that reverts it until
// the one that ends that.
//
// What a batch makes unknown is synced before it is committed. All other lines only make values known, or keys not there, so that a power cut,
// which may lose some, has values put or keys removed once more, which changes nothing.
package putkeys

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"

	"github.com/mooring-rpc/mooring/internal/newfile"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/decide"
)

// Keys are a session's. They are for one goroutine at a time. The file is open while it is written to.
type Keys struct {
	name   string
	hashes map[string]string // by key; "" if it is not known which value is there. nil: they have to be read
	lines  int               // of the file

	reverted bool // by the last info
	passing  bool // by the last info, or one of the piece that is being committed
	next     bool // by the last info, once that piece is committed
}

// New returns the keys that a file of this name has, or will have.
func New(name string) *Keys { return &Keys{name: name} }

// files is what errors call the file.
const files = "the keys of opencode's sessions"

// hashBytes is how much of a SHA-256 tells values of a key apart.
const hashBytes = 16

// valueHash returns the hash of a value, whatever the order of its members: opencode writes them in different ones.
func valueHash(payload []byte) string {
	in := json.NewDecoder(bytes.NewReader(payload))
	in.UseNumber()
	var v any
	if in.Decode(&v) == nil {
		payload, _ = json.Marshal(v) // what was decoded
	}
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:hashBytes])
}

// Load reads the file, or makes one, unless they are there.
func (k *Keys) Load() error {
	if k.hashes != nil {
		return nil
	}
	text, err := os.ReadFile(k.name)
	if errors.Is(err, fs.ErrNotExist) {
		err = newfile.Fault(newfile.Replace(k.name, nil), files)
	} else if whole := bytes.LastIndexByte(text, '\n') + 1; err == nil && whole < len(text) { // the last write broke off
		text, err = text[:whole], newfile.Fault(os.Truncate(k.name, int64(whole)), files)
	}
	if err != nil {
		return fmt.Errorf("read the keys: %w", err)
	}
	k.hashes, k.lines, k.reverted = map[string]string{}, 0, false
	for line := range bytes.Lines(text) {
		k.read(strings.TrimSuffix(string(line), "\n"))
		k.lines++
	}
	return nil
}

// Unload has them read again when they are needed.
func (k *Keys) Unload() { k.hashes = nil }

// read applies a line.
func (k *Keys) read(line string) {
	if line == "" {
		return
	}
	kind, key := line[0], line[1:]
	hash := ""
	switch kind {
	case '~':
		k.reverted = key == "1"
		k.Forget()
		return
	case '=':
		hash, key, _ = strings.Cut(key, " ")
	}
	switch _, bad := session.ParseKey(key); {
	case bad != nil: // a write that broke off where the next one went on, as in older versions
	case kind == '-':
		delete(k.hashes, key)
	case kind == '+' || kind == '=':
		k.hashes[key] = hash
	}
}

// compact writes the file anew.
func (k *Keys) compact() error {
	var b bytes.Buffer
	lines := 0
	if k.reverted {
		b.WriteString("~1\n")
		lines++
	}
	for key, hash := range k.hashes {
		if hash == "" {
			fmt.Fprintf(&b, "+%s\n", key)
		} else {
			fmt.Fprintf(&b, "=%s %s\n", hash, key)
		}
		lines++
	}
	err := newfile.Replace(k.name, b.Bytes())
	if err == nil {
		k.lines = lines
	}
	return err
}

// Expect notes changes that are about to be committed.
func (k *Keys) Expect(changes []opencode.Put) error {
	if err := k.Load(); err != nil {
		return err
	}
	k.passing, k.next = k.reverted, k.reverted
	for _, p := range changes {
		if p.Key == "session" {
			k.next = decide.InfoRevert(p.Payload) != ""
			k.passing = k.passing || k.next
		}
	}
	var b strings.Builder
	if k.passing && !k.reverted {
		k.reverted = true
		k.Forget()
		b.WriteString("~1\n")
	}
	for _, p := range changes {
		if hash, there := k.hashes[p.Key]; !there || hash != "" {
			k.hashes[p.Key] = ""
			b.WriteString("+" + p.Key + "\n")
		}
	}
	return k.append(b.String(), true)
}

// Committed notes changes that were committed. One without a payload is a removal, which need not have been expected.
func (k *Keys) Committed(changes []opencode.Put) error {
	if err := k.Load(); err != nil {
		return err
	}
	var b strings.Builder
	for _, p := range changes {
		switch {
		case p.Payload == nil:
			delete(k.hashes, p.Key)
			b.WriteString("-" + p.Key + "\n")
		case !k.passing:
			k.hashes[p.Key] = valueHash(p.Payload)
			b.WriteString("=" + k.hashes[p.Key] + " " + p.Key + "\n")
		}
	}
	if k.passing && !k.next {
		k.reverted = false
		b.WriteString("~0\n")
	}
	k.passing = false
	return k.append(b.String(), false)
}

// append writes lines. If that fails, the file stays as it was, and is read again, so that what was not written does not count.
func (k *Keys) append(lines string, sync bool) error {
	if lines == "" {
		return nil
	}
	f, err := os.OpenFile(k.name, os.O_WRONLY|os.O_APPEND, 0)
	if err == nil {
		err = errors.Join(appendTo(f, lines, sync), f.Close())
	}
	if err != nil {
		k.Unload()
		return newfile.Fault(err, files)
	}
	if k.lines += strings.Count(lines, "\n"); k.lines > 4*len(k.hashes)+1000 { // most of it is history
		_ = k.compact() // or after the next line
	}
	return nil
}

// appendTo writes to the end of a file, all or nothing. If there is an end that it cannot cut off, the next load does.
func appendTo(f *os.File, text string, sync bool) error {
	was, err := f.Stat()
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil && sync {
		err = f.Sync()
	}
	if err != nil {
		err = errors.Join(err, f.Truncate(was.Size()))
	}
	return err
}

// Known reports whether the session may have a key.
func (k *Keys) Known(key string) bool {
	_, there := k.hashes[key]
	return there
}

// List returns the keys with a prefix that the session may have, sorted. Each is one that can be removed.
func (k *Keys) List(prefix string) (list []string) {
	for key := range k.hashes {
		if strings.HasPrefix(key, prefix) {
			list = append(list, key)
		}
	}
	slices.Sort(list)
	return list
}

// Forget makes every value unknown, in this process.
func (k *Keys) Forget() {
	for key := range k.hashes {
		k.hashes[key] = ""
	}
}

// Has reports whether a value is the one that the session has.
func (k *Keys) Has(p *opencode.Put) bool { return k.hashes[p.Key] == valueHash(p.Payload) }
