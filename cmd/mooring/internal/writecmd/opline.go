// Op lines: JSONL, one op intent a line, the input of `mooring session append`. All lines are
// parsed before any is committed.

package writecmd

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/jsonerr"
	"github.com/mooring-rpc/mooring/ledger"
)

// opLine is one line. A member that is not a field of the line is an argument of the method.
type opLine struct {
	Line      int
	Method    string
	OpID      string // "" unless given
	As        string // a label for references in later lines
	Batch     string // adjacent lines with one batch label are one batch
	Atomic    bool
	DependsOn []string
	Expected  *opValue
	Args      []opArg // by name
}

type opArg struct {
	Name string
	opValue
}

// opValue is JSON text, or a reference to an earlier op's result.
type opValue struct {
	JSON []byte
	Ref  *opLineRef
}

// opLineRef refers to an earlier op by its label or op id.
type opLineRef struct {
	Op   string `json:"op"`
	Path string `json:"path"`
}

// maxOpLine bounds one line, in bytes: no server accepts a payload of that size.
const maxOpLine = 64 << 20

// readOpLines parses and checks all lines. The error is that of the first bad line, and names it.
func readOpLines(r io.Reader) ([]opLine, error) {
	var lines []opLine
	labels := map[string]bool{}
	scan := bufio.NewScanner(r)
	scan.Buffer(nil, maxOpLine)
	n := 0
	for scan.Scan() {
		n++
		text := bytes.TrimSpace(scan.Bytes())
		if len(text) == 0 {
			continue
		}
		l, err := parseOpLine(n, text)
		if err != nil {
			return nil, err
		}
		if err := l.checkNames(labels); err != nil {
			return nil, err
		}
		lines = append(lines, *l)
	}
	if err := scan.Err(); err != nil {
		if err == bufio.ErrTooLong {
			return nil, fault.TooLarge.With("line %d: longer than %d bytes", n+1, maxOpLine)
		}
		return nil, fmt.Errorf("read op lines: %w", err)
	}
	if len(lines) == 0 {
		return nil, fault.Malformed.With("there are no op lines")
	}
	return lines, nil
}

// parseOpLine parses one line.
func parseOpLine(n int, text []byte) (*opLine, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(text, &fields); err != nil {
		return nil, lineError(n, "not a JSON object: %s", jsonerr.Text(err))
	}
	l := &opLine{Line: n}
	var refs map[string]opLineRef
	take := func(name string, into any, label string) error {
		raw, ok := fields[name]
		delete(fields, name)
		if !ok {
			return nil
		}
		if err := json.Unmarshal(raw, into); err != nil {
			return lineError(n, "%s must be %s", name, label)
		}
		return nil
	}
	expected, hasExpected := fields["expected_cursor"]
	delete(fields, "expected_cursor")
	for _, f := range []struct {
		name string
		into any
		what string
	}{
		{"method", &l.Method, "a text"}, {"as", &l.As, "a text"}, {"batch", &l.Batch, "a text"},
		{"op_id", &l.OpID, "a text"}, {"atomic", &l.Atomic, "true or false"},
		{"depends_on", &l.DependsOn, "an array of labels or op ids"},
		{"refs", &refs, `an object {"ARGUMENT":{"op":"LABEL or op id","path":"cursor"}}`},
	} {
		if err := take(f.name, f.into, f.what); err != nil {
			return nil, err
		}
	}
	if l.Method == "" {
		return nil, lineError(n, `no method; an op line is {"method":"put","key":"message/msg_1","payload":{…}}`)
	}
	if hasExpected {
		v, err := parseExpected(n, expected)
		if err != nil {
			return nil, err
		}
		l.Expected = v
	}
	for name, raw := range fields {
		l.Args = append(l.Args, opArg{Name: name, opValue: opValue{JSON: raw}})
	}
	for name, ref := range refs {
		if _, twice := fields[name]; twice {
			return nil, lineError(n, "argument %q is given as a value and as a reference", name)
		}
		if ref.Op == "" {
			return nil, lineError(n, "the reference for %q names no op", name)
		}
		l.Args = append(l.Args, opArg{Name: name, opValue: opValue{Ref: &ref}})
	}
	slices.SortFunc(l.Args, func(a, b opArg) int { return bytes.Compare([]byte(a.Name), []byte(b.Name)) })
	return l, nil
}

// parseExpected parses a cursor or a reference to one.
func parseExpected(n int, raw []byte) (*opValue, error) {
	var cursor uint64
	if json.Unmarshal(raw, &cursor) == nil {
		return &opValue{JSON: raw}, nil
	}
	var ref opLineRef
	if json.Unmarshal(raw, &ref) == nil && ref.Op != "" {
		return &opValue{Ref: &ref}, nil
	}
	return nil, lineError(n, `expected_cursor must be a number or {"op":"LABEL or op id","path":"cursor"}`)
}

// checkNames checks that labels are new and that references are known: an earlier label, or an op
// id.
func (l *opLine) checkNames(labels map[string]bool) error {
	refer := func(op string) error {
		if labels[op] {
			return nil
		}
		if _, err := ulid.ParseStrict(op); err == nil {
			return nil
		}
		return lineError(l.Line, "%q is neither the label of an earlier line nor an op id", op)
	}
	for _, op := range l.DependsOn {
		if err := refer(op); err != nil {
			return err
		}
	}
	for _, a := range l.Args {
		if a.Ref != nil {
			if err := refer(a.Ref.Op); err != nil {
				return err
			}
		}
	}
	if l.Expected != nil && l.Expected.Ref != nil {
		if err := refer(l.Expected.Ref.Op); err != nil {
			return err
		}
	}
	if l.OpID != "" {
		if _, err := ulid.ParseStrict(l.OpID); err != nil {
			return lineError(l.Line, "op_id must be a ULID of 26 characters")
		}
		labels[l.OpID] = true
	}
	if l.As != "" {
		if labels[l.As] {
			return lineError(l.Line, "the label %q is taken by an earlier line", l.As)
		}
		labels[l.As] = true
	}
	return nil
}

// has reports whether an argument is given.
func (l *opLine) has(name string) bool {
	return slices.ContainsFunc(l.Args, func(a opArg) bool { return a.Name == name })
}

// bytes returns the line's size as counted for a batch's limit.
func (l *opLine) bytes() int {
	n := 0
	for _, a := range l.Args {
		n += len(a.JSON)
	}
	return n
}

// batchesOf groups lines into batches: adjacent lines with the same batch label, and lines
// without one up to the limits.
func batchesOf(lines []opLine, limits ledger.Limits) [][]opLine {
	var out [][]opLine
	size := 0
	for i, l := range lines {
		fits := l.Batch != "" || len(out) > 0 && len(out[len(out)-1]) < limits.BatchOps && size+l.bytes() <= limits.BatchBytes
		if i > 0 && l.Batch == lines[i-1].Batch && fits {
			out[len(out)-1] = append(out[len(out)-1], l)
			size += l.bytes()
			continue
		}
		out = append(out, []opLine{l})
		size = l.bytes()
	}
	return out
}

func lineError(line int, format string, args ...any) error {
	return fault.Malformed.With("line %d: %s", line, fmt.Sprintf(format, args...))
}

// maxInput bounds an input that is kept whole, in bytes.
const maxInput = 1 << 30

// boundedInput is a reader that fails beyond maxInput.
type boundedInput struct {
	io.Reader
	n int
}

// Read implements io.Reader.
func (b *boundedInput) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if b.n += n; b.n > maxInput {
		return 0, fault.TooLarge.With("there are more than %d bytes of input: give it in pieces", maxInput)
	}
	return n, err
}
