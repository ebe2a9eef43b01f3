// Messages about invalid command lines.

package cli

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/fault"
)

// FlagError describes an error of a flag. It does not repeat the value, which may be a misplaced
// secret.
func FlagError(cmd *cobra.Command, err error) error {
	var value *pflag.InvalidValueError
	var missing *pflag.ValueRequiredError
	label := err.Error()
	switch {
	case errors.As(err, &value):
		label = "--" + value.GetFlag().Name + " takes " + flagValueHelp(value.GetFlag())
	case errors.As(err, &missing):
		label = "--" + missing.GetFlag().Name + " takes " + flagValueHelp(missing.GetFlag()) + ", and none was given"
	}
	return fault.Usage.With("%s (see %s --help)", label, cmd.CommandPath())
}

// flagValueHelp describes a flag's value.
func flagValueHelp(f *pflag.Flag) string {
	switch f.Value.Type() {
	case "int":
		return "a whole number"
	case "uint32":
		return fmt.Sprintf("a whole number up to %d", uint32(math.MaxUint32))
	case "uint64":
		return "a whole number that is not negative"
	case "bool":
		return "true or false"
	case "duration":
		return fmt.Sprintf("a time such as 10s, 5m, 24h, 7d or 2w, up to %dd", maxDuration/(24*time.Hour))
	case "CURSOR[:HASH]":
		return "a cursor, or CURSOR:HASH as --json prints them"
	case "ROW[:HASH]":
		return "a row's number, or ROW:HASH as --json prints them"
	case "size":
		return "a size such as 64KiB or 16MiB"
	}
	return "a value"
}

// ArgCount checks a command's number of arguments, and refuses others as fault.Usage; a negative limit is none. The command's
// first line of help names them.
func ArgCount(least, limit int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (limit < 0 || len(args) <= limit) {
			return nil
		}
		_, takes, _ := strings.Cut(cmd.Use, " ")
		if takes == "" {
			takes = "no arguments"
		}
		return fault.Usage.With("%s takes %s, and got %s (see %s --help)", cmd.CommandPath(), takes, Plural(len(args), "argument"), cmd.CommandPath())
	}
}

// durationFlag is a flag's duration: 90s, 24h, 7d, 2w, 1d12h.
type durationFlag time.Duration

// maxDuration bounds a flag's duration.
const maxDuration = time.Duration(math.MaxInt64 / 2)

// DurationVar adds a flag of a duration: 90s, 24h, 7d, 2w, 1d12h.
func DurationVar(f *pflag.FlagSet, p *time.Duration, name string, value time.Duration, help string) {
	*p = value
	f.Var((*durationFlag)(p), name, help)
}

// Set implements pflag.Value.
func (s *durationFlag) Set(text string) error {
	rest, sum := text, 0.0
	for {
		i := strings.IndexFunc(rest, func(r rune) bool { return (r < '0' || r > '9') && r != '.' })
		if i <= 0 || rest[i] != 'd' && rest[i] != 'w' {
			break
		}
		n, err := strconv.ParseFloat(rest[:i], 64)
		if err != nil {
			return fmt.Errorf("%q is no time", text)
		}
		days := 1.0
		if rest[i] == 'w' {
			days = 7
		}
		sum += n * days * 24 * float64(time.Hour)
		rest = rest[i+1:]
	}
	d := time.Duration(0)
	if rest != "" || text == "" {
		var err error
		if d, err = time.ParseDuration(rest); err != nil {
			return fmt.Errorf("%q is no time", text)
		}
	}
	if sum+float64(d) > float64(maxDuration) {
		return fmt.Errorf("%q is too long", text)
	}
	*s = durationFlag(time.Duration(sum) + d)
	return nil
}

// String implements pflag.Value.
func (s *durationFlag) String() string {
	if *s == 0 {
		return "0" // which the help omits as a default
	}
	return time.Duration(*s).String()
}

// Type implements pflag.Value.
func (s *durationFlag) Type() string { return "duration" }

// UsageError is an error visible from the command line alone: the exit code is ExitUsage, whatever the error's code.
type UsageError struct{ Err error }

// Error implements error.
func (e UsageError) Error() string { return e.Err.Error() }

// Unwrap returns the error that is a usage error.
func (e UsageError) Unwrap() error { return e.Err }
