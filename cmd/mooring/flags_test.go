//go:build unix

package main

import (
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// A limit that was given and limits nothing is a mistake, not a ref without limits.
func TestShareRefusesALimitThatIsNone(t *testing.T) {
	t.Parallel()
	for _, limit := range [][]string{
		{"--seal", ""}, {"--message", ""}, {"--message", " "}, {"--methods", ""}, {"--methods", "put,"}, {"--actor", ""},
		{"--expires", "0"}, {"--expires", "0s"}, {"--redemptions", "0"}, {"--from", "0"}, {"--to", ""}, {"--rights", ""},
		{"--home", ""}, {"--outbox-url", ""}, {"--tls-ca", ""},
	} {
		args := append([]string{"share", "ses_1", "--rights", "read"}, limit...)
		if code, out, message := command(t, args...); code != cli.ExitUsage || out != "" || !strings.Contains(message, limit[0]) {
			t.Errorf("%q: exit %d, %q %q", limit, code, out, message)
		}
	}
}

// A limit below zero is none either.
func TestLimitsAreAboveZero(t *testing.T) {
	t.Parallel()
	home := t.TempDir()
	for _, args := range [][]string{
		{"outbox", "drain", "--timeout", "-2s"}, {"outbox", "drain", "--timeout", "0"}, {"outbox", "list", "--limit", "-1"}, {"outbox", "list", "--limit", "0"},
		{"share", "ses_1", "--rights", "read", "--expires", "-1s"},
	} {
		if code, out, message := command(t, append(args, "--home", home)...); code != cli.ExitUsage || out != "" || !strings.Contains(message, args[len(args)-2]+" "+args[len(args)-1]) {
			t.Errorf("%q: exit %d, %q %q", args, code, out, message)
		}
	}
}

// arguments are those in a command's use.
var arguments = regexp.MustCompile(` (REF|FILE|KEY|OP…|SESSION|WORDS|KIND|REQUEST|URL|ID)`)

// Whatever the command, a flag that was given has a value.
func TestNoFlagIsTakenEmpty(t *testing.T) {
	t.Parallel()
	flags := 0
	var walk func(cmd *cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, sub := range cmd.Commands() {
			walk(sub)
		}
		if !cmd.Runnable() {
			return
		}
		line := strings.Fields(cmd.CommandPath())[1:]
		use, _, _ := strings.Cut(cmd.Use, " --")
		for range arguments.FindAllString(use, -1) {
			line = append(line, "x")
		}
		each := func(f *pflag.Flag) {
			if kind := f.Value.Type(); kind != "string" && kind != "stringSlice" && kind != "stringArray" {
				return
			}
			flags++
			if code, _, message := command(t, append(line, "--"+f.Name, "")...); code != cli.ExitUsage || !strings.Contains(message, "--"+f.Name+" is empty") {
				t.Errorf("%s --%s '': exit %d, %q", cmd.CommandPath(), f.Name, code, message)
			}
		}
		cmd.InheritedFlags()
		cmd.Flags().VisitAll(each)
	}
	walk(newRoot(&cli.Env{}))
	if flags < 40 {
		t.Errorf("only %d flags were found", flags)
	}
}
