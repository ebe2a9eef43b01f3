package mirror

// The keys that were put, with hashes of their values. A file has them, a line each:
//
//	+KEY       a value is about to be committed: from here on the session may have the key
//	=HASH KEY  the value with that hash was committed
//	-KEY       the key was removed
//	~1, ~0     the info that is about to be committed says that the session is reverted, or no longer; no value is known any more
//
// While a session is reverted, the server may remove what is hidden with the next sync, and so no value counts as known from the sync that reverts it until
// the one that ends that.
//
// A line is written with one write, before or after its batch, and not synced: after a power cut, which may lose some, values are put again
// that are there already, which changes nothing.

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
)

// keys are a session's.
type keys struct {
	name   string
	file   *os.File
	size   int64 // of the file, as far as lines were written whole
	lines  int
	hashes map[string]string // by key; "" if it is not known which value is there

	reverted bool // by the last info
	passing  bool // by the last info, or the one before: of the piece that is being committed
}

// maxHistory is how many lines more than keys a file has at most before it is written anew.
const maxHistory = 20_000

// hashBytes is how much of a SHA-256 tells values of a key apart.
const hashBytes = 16

// valueHash returns the hash of a value, whatever the order of its members: opencode's events and its API write them in different ones.
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

// open reads the file, and writes it anew if most of it is history.
func (k *keys) open() error {
	text, err := os.ReadFile(k.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read the session's keys: %w", err)
	}
	k.hashes = map[string]string{}
	for line := range bytes.Lines(text) {
		k.read(string(line))
		k.lines++
	}
	if k.lines > len(k.hashes)+maxHistory || len(text) > 0 && text[len(text)-1] != '\n' {
		return k.compact()
	}
	return k.openFile()
}

// openFile opens the file to write lines at its end.
func (k *keys) openFile() (err error) {
	if k.file, err = os.OpenFile(k.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600); err == nil {
		k.size, err = k.file.Seek(0, io.SeekEnd)
	}
	return writeFault(err)
}

// read applies a line. One that a crash has cut off has no line feed, and says nothing.
func (k *keys) read(line string) {
	line, whole := strings.CutSuffix(line, "\n")
	if !whole || line == "" {
		return
	}
	switch rest := line[1:]; line[0] {
	case '+':
		k.hashes[rest] = ""
	case '-':
		delete(k.hashes, rest)
	case '~':
		k.reverted = rest == "1"
		k.forget()
	case '=':
		if hash, key, ok := strings.Cut(rest, " "); ok {
			k.hashes[key] = hash
		}
	}
}

// forget makes every value unknown.
func (k *keys) forget() {
	for key := range k.hashes {
		k.hashes[key] = ""
	}
}

// compact writes the file anew.
func (k *keys) compact() error {
	var b bytes.Buffer
	out := bufio.NewWriter(&b)
	if k.reverted {
		fmt.Fprintln(out, "~1")
	}
	for key, hash := range k.hashes {
		if fmt.Fprintf(out, "+%s\n", key); hash != "" {
			fmt.Fprintf(out, "=%s %s\n", hash, key)
		}
	}
	_ = out.Flush() // to memory
	err := os.WriteFile(k.name+".tmp", b.Bytes(), 0o600)
	if err == nil {
		err = os.Rename(k.name+".tmp", k.name)
	}
	if err != nil {
		return writeFault(err)
	}
	k.lines = bytes.Count(b.Bytes(), []byte{'\n'})
	return errors.Join(k.close(), k.openFile())
}

// expect notes changes that are about to be committed.
func (k *keys) expect(changes []opencode.Put) error {
	was := k.reverted
	for _, p := range changes {
		if p.Key == "session" {
			k.reverted = isReverted(p.Payload)
		}
	}
	begin := ""
	if k.passing = was || k.reverted; k.passing {
		k.forget()
		begin = "~0\n"
		if k.reverted {
			begin = "~1\n"
		}
	}
	return k.append(begin, changes, func(p *opencode.Put) string {
		if hash, there := k.hashes[p.Key]; there && hash == "" {
			return ""
		}
		k.hashes[p.Key] = ""
		return "+" + p.Key + "\n"
	})
}

// committed notes changes that were committed.
func (k *keys) committed(changes []opencode.Put) error {
	return k.append("", changes, func(p *opencode.Put) string {
		switch {
		case p.Payload == nil:
			delete(k.hashes, p.Key)
			return "-" + p.Key + "\n"
		case k.passing:
			return ""
		}
		k.hashes[p.Key] = valueHash(p.Payload)
		return "=" + k.hashes[p.Key] + " " + p.Key + "\n"
	})
}

// append writes lines: begin, and one for each change.
func (k *keys) append(begin string, changes []opencode.Put, line func(*opencode.Put) string) error {
	var b strings.Builder
	b.WriteString(begin)
	for i := range changes {
		b.WriteString(line(&changes[i]))
	}
	if _, err := k.file.WriteString(b.String()); err != nil {
		return writeFault(errors.Join(err, k.file.Truncate(k.size))) // half a line would spoil the next
	}
	k.size += int64(b.Len())
	if k.lines += len(changes); k.lines > len(k.hashes)+maxHistory {
		return k.compact()
	}
	return nil
}

// isReverted reports whether an info of opencode's says that its session is reverted.
func isReverted(info []byte) bool {
	var of struct {
		Revert struct {
			Message string `json:"messageID"`
		} `json:"revert"`
	}
	return json.Unmarshal(info, &of) == nil && of.Revert.Message != ""
}

// has reports whether a value is the one that the session has.
func (k *keys) has(p *opencode.Put) bool { return k.hashes[p.Key] == valueHash(p.Payload) }

func (k *keys) close() error {
	if k.file == nil {
		return nil
	}
	return k.file.Close()
}

// writeFault returns the error of a write to the folder of the keys.
func writeFault(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return fault.DiskFull.Because(err, "there is no space left for the session's keys: %v", err)
	}
	return fmt.Errorf("write the session's keys: %w", err)
}
