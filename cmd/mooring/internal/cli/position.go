// Positions in a log: the flag, and what is said of one beyond the end.

package cli

import (
	"errors"
	"fmt"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// PositionFlag is a flag whose value is a client.Position.
type PositionFlag client.Position

// String implements pflag.Value.
func (f *PositionFlag) String() string {
	if *f == (PositionFlag{}) {
		return ""
	}
	return client.Position(*f).String()
}

// Type implements pflag.Value.
func (f *PositionFlag) Type() string { return "CURSOR[:HASH]" }

// Set implements pflag.Value.
func (f *PositionFlag) Set(text string) error {
	p, err := client.ParsePosition(text)
	*f = PositionFlag(p)
	return err
}

// ExplainServerBehind rewrites, for a command that prints a log or an audit, label, from a position on, the error that it is not
// the one seen before; other errors are unchanged.
func ExplainServerBehind(label string, err error, from client.Position) error {
	var f *fault.Error
	if errors.As(err, &f) && f.Code == fault.ServerBehind && f.At != 0 {
		return beyondEndError(label, from.Cursor, f.At)
	}
	return err
}

// WarnBeyondEnd warns people, not with --json, that the requested position lies beyond the end.
func (env *Env) WarnBeyondEnd(label string, from, end uint64) {
	if from > end && !env.JSON {
		fmt.Fprintf(env.Err, "the %s ends at %d\n", label, end)
	}
}

// beyondEndError returns the error of following from beyond the end: on a server restored meanwhile, later
// events may differ from those seen.
func beyondEndError(label string, from, end uint64) error {
	return fault.ServerBehind.With("the %s ends at %d, before --from %d: give the last cursor that you have seen; if that was %d, the server was restored to an earlier state since", label, end, from, from).Pos(end)
}
