// Checks of all flags, and flags that several commands have.

package cli

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/fault"
)

// RejectEmptyFlags refuses a flag given with an empty value, as by a script with an unset
// variable. Taken as absent it would allow more than intended: a ref that is not sealed, a secret
// that is printed.
func RejectEmptyFlags(cmd *cobra.Command) (err error) {
	cmd.Flags().Visit(func(f *pflag.Flag) { // the flags given
		if err == nil && emptyFlag(f) {
			err = fault.Usage.With("--%s is empty: give it a value, or leave it out (see %s --help)", f.Name, cmd.CommandPath())
		}
	})
	return err
}

func emptyFlag(f *pflag.Flag) bool {
	if list, is := f.Value.(pflag.SliceValue); is {
		for _, v := range list.GetSlice() {
			if strings.TrimSpace(v) == "" {
				return true
			}
		}
		return len(list.GetSlice()) == 0
	}
	return f.Value.Type() == "string" && strings.TrimSpace(f.Value.String()) == ""
}

// RejectZeroLimits refuses zero and negative values of flags that are limits, since zero would
// mean no limit.
func RejectZeroLimits(flags *pflag.FlagSet, names ...string) error {
	for _, name := range names {
		f := flags.Lookup(name)
		if v := f.Value.String(); f.Changed && (v == "0" || v == "0s" || strings.HasPrefix(v, "-")) {
			return fault.Usage.With("--%s %s limits nothing: give it a value above 0, or leave it out", name, v)
		}
	}
	return nil
}

// CompleteList completes a flag's value, a comma-separated list of values.
func CompleteList(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, begun string) (list []string, after cobra.ShellCompDirective) { // the flag exists
		message := ""
		if i := strings.LastIndexByte(begun, ','); i >= 0 {
			message = begun[:i+1]
		}
		for _, v := range values {
			if !slices.Contains(strings.Split(message, ","), v) && strings.HasPrefix(message+v, begun) {
				list = append(list, message+v)
			}
		}
		return list, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	})
}

// The longest expiry of a request that servers take, and its text.
const (
	MaxRequestExpiry     = 30 * 24 * time.Hour
	MaxRequestExpiryText = "30d"
)

// OwnerFlag adds the flag of the owner's ref.
func OwnerFlag(cmd *cobra.Command, owner *string) {
	cmd.Flags().StringVar(owner, "owner", "", "the owner's ref: its text or @FILE (MOORING_OWNER; default: the one used last)")
}
