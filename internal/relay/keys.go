package relay

// The keys that were put into a share, with hashes of their values: what differs from opencode's own state is found without a server. A file
// has them, a line each:
//
//	+KEY       a value is about to be committed: from here on the share may have the key
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
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
)

// keys are a share's. They are read when they are first needed, and are for one goroutine at a time: who has the share's turn.
type keys struct {
	name   string
	file   *os.File          // nil before the first use
	hashes map[string]string // by key; "" if it is not known which value is there

	reverted bool // by the last info
	passing  bool // by the last info, or the one before: of the piece that is being committed
}

func keysName(dir, id string) string { return filepath.Join(dir, id+keysSuffix) }

// hashBytes is how much of a SHA-256 tells values of a key apart.
const hashBytes = 16

func valueHash(payload []byte) string {
	sum := sha256.Sum256(payload)
	return hex.EncodeToString(sum[:hashBytes])
}

// open reads the file, and writes it anew if most of it is history.
func (k *keys) open() error {
	if k.file != nil {
		return nil
	}
	text, err := os.ReadFile(k.name)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("read a share's keys: %w", err)
	}
	k.hashes = map[string]string{}
	lines := 0
	for line := range bytes.Lines(text) {
		k.read(string(line))
		lines++
	}
	if lines > 2*len(k.hashes)+1000 || len(text) > 0 && text[len(text)-1] != '\n' {
		if err := k.compact(); err != nil {
			return err
		}
	}
	k.file, err = os.OpenFile(k.name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
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
	return writeFault(err)
}

// expect notes puts that are about to be committed.
func (k *keys) expect(puts []opencode.Put) error {
	if err := k.open(); err != nil {
		return err
	}
	was := k.reverted
	for _, p := range puts {
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
	return k.append(begin, puts, func(p *opencode.Put) string {
		if hash, there := k.hashes[p.Key]; there && hash == "" {
			return ""
		}
		k.hashes[p.Key] = ""
		return "+" + p.Key + "\n"
	})
}

// committed notes puts that were committed.
func (k *keys) committed(puts []opencode.Put) error {
	if k.passing {
		return nil
	}
	return k.append("", puts, func(p *opencode.Put) string {
		k.hashes[p.Key] = valueHash(p.Payload)
		return "=" + k.hashes[p.Key] + " " + p.Key + "\n"
	})
}

// removed notes keys whose removal was committed.
func (k *keys) removed(list []string) error {
	puts := make([]opencode.Put, len(list))
	for i, key := range list {
		puts[i].Key = key
	}
	return k.append("", puts, func(p *opencode.Put) string {
		delete(k.hashes, p.Key)
		return "-" + p.Key + "\n"
	})
}

// append writes lines: begin, and one for each put.
func (k *keys) append(begin string, puts []opencode.Put, line func(*opencode.Put) string) error {
	var b strings.Builder
	b.WriteString(begin)
	for i := range puts {
		b.WriteString(line(&puts[i]))
	}
	_, err := k.file.WriteString(b.String())
	return writeFault(err)
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

// has reports whether a value is the one that the share has.
func (k *keys) has(p *opencode.Put) bool { return k.hashes[p.Key] == valueHash(p.Payload) }

func (k *keys) close() error {
	if k.file == nil {
		return nil
	}
	err := k.file.Close()
	k.file, k.hashes = nil, nil
	return err
}

// writeFault returns the error of a write to the relay's folder.
func writeFault(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC):
		return fault.DiskFull.Because(err, "there is no space left for the relay's files: %v", err)
	}
	return fmt.Errorf("write the relay's files: %w", err)
}
