// Questions before what cannot be undone.

package cli

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// YesFlag adds the flag that leaves the question out.
func YesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// CanAsk reports whether a user can be asked: whether In is a terminal.
func (env *Env) CanAsk() bool {
	in, isFile := env.In.(*os.File)
	return isFile && term.IsTerminal(int(in.Fd()))
}

// Confirm asks, and reports whether the answer was yes. The end of the input, or of ctx, is a no.
func (env *Env) Confirm(ctx context.Context, question string) bool {
	fmt.Fprintf(env.Err, "%s Type yes: ", question)
	// The end of the input, and a signal, count as no.
	answer, err := bufio.NewReader(&ctxReader{ctx: ctx, r: env.In}).ReadString('\n')
	if err != nil {
		fmt.Fprintln(env.Err) // ends the line of the question
	}
	return strings.EqualFold(strings.TrimSpace(answer), "yes")
}
