// The environment of a command, and how results and errors are printed.

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/mooring-rpc/mooring/fault"
)

// The exit codes of every command.
const (
	exitOK      = 0 // done
	exitRefused = 1 // refused or failed; the text says why and what to do
	exitUsage   = 2 // the command line is wrong; nothing was done
)

// cliEnv is the environment of a command: its input and outputs, and the root command's flags.
type cliEnv struct {
	in      io.Reader
	out     io.Writer // results only
	err     io.Writer // logs, progress, errors
	json    bool      // --json
	signals *signals  // the process's; nil in a test
	parsed  bool      // the command line was valid; later errors are not usage errors
}

// report writes an error for people, without terminal control characters, or with --json as one
// object: {"error":{"code":"revoked","message":"…","at":0}}.
func (sh *cliEnv) report(err error) {
	if !sh.json {
		fmt.Fprintf(sh.err, "mooring: %s\n", sanitizeText(err.Error()))
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
	fmt.Fprintf(escapeInvisible(sh.err), "%s\n", line)
}

// print writes a result: v as JSON on one line with --json, else as text.
func (sh *cliEnv) print(v any, format string, args ...any) error {
	if sh.json {
		return sh.printJSON(v)
	}
	_, err := fmt.Fprintf(sh.out, format, args...)
	return err
}

// printJSON writes v to the results, on one line.
func (sh *cliEnv) printJSON(v any) error {
	line, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode result: %w", err)
	}
	_, err = fmt.Fprintf(sh.out, "%s\n", line)
	return err
}
