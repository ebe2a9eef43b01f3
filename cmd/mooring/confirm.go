// Questions before what cannot be undone.

package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// yesFlag adds the flag that leaves the question out.
func yesFlag(cmd *cobra.Command, yes *bool) {
	cmd.Flags().BoolVarP(yes, "yes", "y", false, "do not ask")
}

// canAsk reports whether a user can be asked.
func (sh *cliEnv) canAsk() bool {
	in, isFile := sh.in.(*os.File)
	return isFile && term.IsTerminal(int(in.Fd()))
}

// confirm asks, and reports whether the answer was yes.
func (sh *cliEnv) confirm(ctx context.Context, question string) bool {
	fmt.Fprintf(sh.err, "%s Type yes: ", question)
	// The end of the input, and a signal, count as no.
	answer, err := bufio.NewReader(&ctxReader{ctx: ctx, r: sh.in}).ReadString('\n')
	if err != nil {
		fmt.Fprintln(sh.err) // ends the line of the question
	}
	return strings.EqualFold(strings.TrimSpace(answer), "yes")
}
