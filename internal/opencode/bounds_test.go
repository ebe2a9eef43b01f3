package opencode

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

// endless gives a text again and again.
type endless struct {
	text string
	read int
}

func (e *endless) Read(p []byte) (n int, err error) {
	for ; n < len(p); n++ {
		p[n] = e.text[(e.read+n)%len(e.text)]
	}
	e.read += n
	return n, nil
}

// What never ends is refused, and read no further than it has to be.
func TestReadingIsBounded(t *testing.T) {
	t.Parallel()
	limits := Limits{Ops: 10, Bytes: 1000, Payload: 1000}
	request := `{"method":"POST","path":"/api/share","body":{"sessionID":"ses_x"}}` + "\n"
	for _, c := range []struct {
		name, first, then string
		code              fault.Code
		words             string
		most              int
	}{
		{"zeros", "", "\x00", fault.Malformed, "line 1: not JSON", 1 << 17},
		{"one line", "", `{"a":`, fault.TooLarge, "the file has more than 1048576 bytes", 1<<20 + 1<<17},
		{"an array", "", "[\n", fault.TooLarge, "the file has more than 1048576 bytes", 1<<20 + 1<<17},
		{"requests", "", request, fault.TooLarge, "the file has more than 1048576 bytes", 1<<20 + 1<<17},
		{"a long request", request, "x", fault.TooLarge, "line 2: longer than 65536 bytes", 1 << 18},
		{"blank", "", "\n", fault.TooLarge, "the file has more than 1048576 bytes", 1<<20 + 1<<17},
	} {
		then := &endless{text: c.then}
		_, err := readRecording(io.MultiReader(strings.NewReader(c.first), then), limits, 1<<20, 1<<16)
		if fault.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.words) || then.read > c.most {
			t.Errorf("%s: %v after %d bytes", c.name, err, then.read)
		}
	}
	// As much as is allowed is not too much; and what the reader says is told.
	export := fmt.Sprintf(`{"info":{"id":"ses_x","title":%q},"messages":[]}`, strings.Repeat("x", 500))
	if _, err := readRecording(strings.NewReader("\ufeff\n\n"+export), limits, len(export)+5, 16); err != nil {
		t.Errorf("a long line of an export, to the bound: %v", err)
	}
	broken := errors.New("the disk is gone")
	if _, err := readRecording(io.MultiReader(strings.NewReader(request), failing{broken}), limits, 1<<20, 1<<16); !errors.Is(err, broken) {
		t.Errorf("a broken reader: %v", err)
	}
	stopped := fault.Canceled.With("stopped")
	if _, err := readRecording(failing{stopped}, limits, 1<<20, 1<<16); err != error(stopped) {
		t.Errorf("a reader that was stopped: %v", err)
	}
}

type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }
