// The environment of a command, and how results and errors are printed.

package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/mooring-rpc/mooring/fault"
)

// The exit codes of every command.
const (
	ExitOK      = 0 // done
	ExitRefused = 1 // refused or failed; the text says why and what to do
	ExitUsage   = 2 // the command line is wrong; nothing was done
)

// Env is the environment of a command: its input and outputs, and the root command's flags.
type Env struct {
	In      io.Reader
	Out     io.Writer // results only
	Err     io.Writer // logs, progress, errors
	JSON    bool      // --json
	Signals *Signals  // the process's; nil in a test
	Parsed  bool      // the command line was valid; later errors are not usage errors
}

// Report writes an error for people, without terminal control characters, or with --json as one
// object: {"error":{"code":"revoked","message":"…","at":0}}.
func (env *Env) Report(err error) {
	if !env.JSON {
		fmt.Fprintf(env.Err, "mooring: %s\n", SanitizeText(err.Error()))
		return
	}
	var body struct {
		Error struct {
			Code    string `json:"code"`
			Message string `json:"message"`
			At      uint64 `json:"at,omitempty"`
			Batch   string `json:"batch,omitempty"`
		} `json:"error"`
	}
	body.Error.Code = fault.CodeOf(err).String()
	body.Error.Message = err.Error()
	var f *fault.Error
	if errors.As(err, &f) {
		body.Error.At, body.Error.Batch = f.At, f.Batch
	}
	line, _ := json.Marshal(body) // strings and a number: cannot fail
	fmt.Fprintf(EscapeInvisible(env.Err), "%s\n", line)
}

// Print writes a result: v as JSON on one line with --json, else as text.
func (env *Env) Print(v any, format string, args ...any) error {
	if env.JSON {
		return env.PrintJSON(v)
	}
	_, err := fmt.Fprintf(env.Out, format, args...)
	return err
}

// PrintJSON writes v to the results, on one line.
func (env *Env) PrintJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	_, err = fmt.Fprintf(env.Out, "%s\n", line)
	return err
}
