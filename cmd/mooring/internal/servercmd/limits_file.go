// The file with the limits of mooring serve, reloaded while the server runs.

package servercmd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/server"
)

// maxLimitsFile bounds such a file, in bytes.
const maxLimitsFile = 64 << 10

// fixedLimits are the limits promised to clients, or to net/http: they change only at the next
// start.
var fixedLimits = []string{"handshake-timeout", "batch-timeout", "write-timeout", "max-message-bytes"}

// limitSet is all limits, each from the defaults, the file or the command line.
type limitSet struct {
	limits server.Limits
	values map[string]string
}

// limitsFile is the file, as of its last valid load.
type limitsFile struct {
	path  string
	flags *pflag.FlagSet // the command line's, which take precedence
	log   *slog.Logger
	apply func(limitSet)

	text    []byte
	current limitSet
	lastErr string // why the last load failed
}

// load reads the file. On an error the previous limits stay. changed is nil if the file has not
// changed.
func (l *limitsFile) load(ctx context.Context) (changed, later []string, err error) {
	text, err := cli.ReadFileLimited(ctx, l.path, maxLimitsFile)
	if err != nil {
		return nil, nil, fmt.Errorf("--limits: %w", err)
	}
	if l.current.values != nil && bytes.Equal(text, l.text) {
		return nil, nil, nil
	}
	set, err := readLimits(string(text), l.flags, nil)
	if err == nil && l.current.values != nil {
		wanted := set.values
		set, err = readLimits(string(text), l.flags, l.current.values)
		for _, name := range fixedLimits {
			if wanted[name] != l.current.values[name] {
				later = append(later, name+"="+wanted[name])
			}
		}
	}
	if err != nil {
		return nil, nil, fault.Usage.With("--limits %s: %s", cli.SanitizeLine(l.path), faultMessage(err))
	}
	changed = []string{}
	limitFlags(&set.limits).VisitAll(func(f *pflag.Flag) {
		if v := set.values[f.Name]; v != l.current.values[f.Name] {
			changed = append(changed, f.Name+"="+v)
		}
	})
	l.text, l.current = text, set
	return changed, later, nil
}

// reload is load while the server runs, with the result logged: a repeated failure once, unless
// it was asked for.
func (l *limitsFile) reload(ctx context.Context, asked bool) {
	var changed, later []string
	err := checkRegularFiles(l.path)
	if err == nil {
		changed, later, err = l.load(ctx)
	}
	switch {
	case ctx.Err() != nil:
	case err != nil && (asked || err.Error() != l.lastErr):
		l.log.Warn("the limits were not read again: the previous ones stay", "error", faultMessage(err))
	case changed != nil:
		l.apply(l.current)
		l.log.Info("the limits were read again", "file", l.path, "changed", strings.Join(changed, " "))
	case err == nil && asked:
		l.log.Info("the limits are unchanged", "file", l.path)
	}
	if len(later) > 0 {
		l.log.Warn("these limits change only at the next start", "limits", strings.Join(later, " "))
	}
	if l.lastErr = ""; err != nil {
		l.lastErr = err.Error()
	}
}

// faultMessage returns an error's message without its code.
func faultMessage(err error) string {
	if f, is := errors.AsType[*fault.Error](err); is {
		return f.Message
	}
	return err.Error()
}

// readLimits parses one limit a line, NAME = VALUE, with the names and values of the flags. Text
// after # is a comment. Flags given on the command line take precedence, as do the values of
// running, if it is not nil, for limits that cannot change.
func readLimits(text string, given *pflag.FlagSet, running map[string]string) (set limitSet, err error) {
	set = limitSet{limits: server.DefaultLimits(), values: map[string]string{}}
	flags := limitFlags(&set.limits)
	number := 0
	for line := range strings.Lines(text) {
		number++
		line, _, _ = strings.Cut(line, "#")
		name, value, is := strings.Cut(strings.TrimSpace(line), "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		f := flags.Lookup(name)
		switch {
		case name == "" && !is:
			continue
		case name == "" || value == "":
			return set, fault.Usage.With("line %d is not NAME = VALUE", number)
		case f == nil:
			return set, fault.Usage.With("line %d: no limit has the name %q: mooring serve --help lists them", number, cli.SanitizeLine(fault.Clip(name)))
		case f.Changed:
			return set, fault.Usage.With("line %d: %s is given twice", number, name)
		}
		if err := flags.Set(name, value); err != nil {
			return set, fault.Usage.With("line %d: %q is not a value for %s", number, cli.SanitizeLine(fault.Clip(value)), name)
		}
		if err := checkLimit(f); err != nil {
			return set, fault.Usage.With("line %d: %s", number, faultMessage(err))
		}
	}
	over := func(name, value string) {
		if err == nil && flags.Lookup(name) != nil {
			err = flags.Set(name, value)
		}
	}
	given.Visit(func(f *pflag.Flag) { over(f.Name, f.Value.String()) })
	if running != nil {
		for _, name := range fixedLimits {
			over(name, running[name])
		}
	}
	if err == nil {
		err = checkLimits(flags, set.limits)
	}
	flags.VisitAll(func(f *pflag.Flag) { set.values[f.Name] = f.Value.String() })
	return set, err
}
