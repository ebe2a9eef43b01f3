package transcripts

// Which program wrote a file, and its lines one by one.

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/jsonerr"
	"github.com/mooring-rpc/mooring/internal/jsonlines"
	"github.com/mooring-rpc/mooring/internal/opencode"
)

// Formats of files, by name.
const (
	Opencode = "opencode" // an export, a recording of share traffic, or a share's data
	Claude   = "claude"   // a transcript of Claude Code
	Codex    = "codex"    // a rollout of Codex
)

// Formats are the formats in the order of messages and help.
var Formats = []string{Opencode, Claude, Codex}

// sniffBytes is how much of a file is looked at to recognize its format.
const sniffBytes = 256 << 10

// Read reads a whole file of a format; "" recognizes it by its first line. The error is Malformed or TooLarge and names the
// line, BadArgument for a format that is not one, or r's. A last line that was cut off is left out, with a notice.
func Read(r io.Reader, format string, limits opencode.Limits) (*opencode.Recording, error) {
	in := bufio.NewReaderSize(r, sniffBytes)
	if format == "" {
		begin, _ := in.Peek(sniffBytes) // an error comes again
		format = recognize(begin)
	}
	switch format {
	case Opencode:
		return opencode.ReadRecording(in, limits)
	case Claude:
		return read(in, limits, newClaude())
	case Codex:
		return read(in, limits, newCodex())
	}
	return nil, fault.BadArgument.With("the format %q is none: %s", fault.Clip(format), strings.Join(Formats, ", "))
}

// recognize returns the format of a file that begins so: opencode's, if it is none of the others.
func recognize(begin []byte) string {
	line := strings.TrimLeft(strings.TrimPrefix(string(begin), "\ufeff"), " \t\r\n")
	line, _, _ = strings.Cut(line, "\n")
	top := gjson.GetMany(line, "type", "sessionId", "leafUuid", "messageId", "payload", "method")
	has := func(i int) bool { return top[i].Exists() }
	switch {
	case !strings.HasPrefix(line, "{") || !has(0) || has(5):
		return Opencode
	case top[0].Str == "session_meta" && has(4):
		return Codex
	case has(1) || has(2) || has(3):
		return Claude
	}
	return Opencode
}

// program reads the lines of a program's transcript.
type program interface {
	// line records a line, which is an object. It returns the type that it is counted by if it is left out; ours says
	// that this is known, and of no conversation.
	line(n int, line gjson.Result) (leftOut string, ours bool, err error)
	// recorded returns what was recorded so far.
	recorded() *writer
}

// read reads a transcript.
func read(r io.Reader, limits opencode.Limits, p program) (*opencode.Recording, error) {
	lines := jsonlines.NewReader(r, jsonlines.MaxFile, jsonlines.MaxLine)
	known, unknown := map[string]int{}, map[string]int{}
	w := p.recorded()
	for line, err := lines.First(); ; line, err = lines.Next() {
		switch {
		case errors.Is(err, io.EOF):
			return w.finish(limits, known, unknown)
		case errors.Is(err, jsonlines.ErrLongLine):
			return nil, lines.TooLong()
		case err != nil:
			return nil, err
		case len(line) == 0:
			continue
		}
		if err := validObject(line); err != nil {
			if lines.Torn() {
				w.notice("line %d is not complete and was left out: import the file again when it is", lines.Line())
				continue
			}
			return nil, fault.Malformed.With("line %d: %s", lines.Line(), err)
		}
		leftOut, ours, err := p.line(lines.Line(), gjson.ParseBytes(line))
		if err != nil {
			return nil, err
		}
		switch {
		case leftOut == "":
		case ours:
			known[leftOut]++
		default:
			unknown[leftOut]++
		}
		if err := w.commit(lines.Line()); err != nil {
			return nil, err
		}
	}
}

// validObject says what is wrong with a line that is not a JSON object.
func validObject(line []byte) error {
	var object map[string]json.RawMessage
	if err := json.Unmarshal(line, &object); err != nil {
		return errors.New("not a JSON object: " + jsonerr.Text(err))
	}
	return nil
}

// counts lists counts by their names.
func counts(of map[string]int) string {
	var list []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		list = append(list, fmt.Sprintf("%s (%d)", fault.Clip(name), of[name]))
	}
	return strings.Join(list, ", ")
}

// millis returns the time of a text as of RFC 3339, in Unix ms; 0 for another.
func millis(text string) int64 {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return 0
	}
	return t.UnixMilli()
}

// titleOf returns the first line of a prompt, as a title.
func titleOf(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if r := []rune(line); len(r) > 100 {
		return string(r[:99]) + "…"
	}
	return line
}
