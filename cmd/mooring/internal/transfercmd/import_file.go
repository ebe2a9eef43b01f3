// The file of mooring session import: which it is, and what secrets it has.

package transfercmd

import (
	"bufio"
	"context"
	"errors"
	"fmt"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/secrets"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/transcripts"
	"github.com/mooring-rpc/mooring/internal/uimessage"
)

// importOptions say how a file is read.
type importOptions struct {
	format       string
	external     string
	skipTooLarge bool
	redact       bool
}

// importFormats are the values of import's --format.
var importFormats = append([]string{formatUIMessage}, transcripts.Formats...)

func (o *importOptions) limits() opencode.Limits {
	lim := session.DefaultLimits()
	return opencode.Limits{Ops: lim.BatchOps, Bytes: lim.BatchBytes, Payload: lim.PayloadBytes, SkipTooLarge: o.skipTooLarge}
}

// guard looks for secrets in what was read, before any of it is in the outbox: it redacts them, or warns of them.
func (o *importOptions) guard(env *cli.Env, rec *opencode.Recording) error {
	var found secrets.Scanner
	rec.Payloads(found.Scan)
	what := found.Summary()
	if what == "" {
		return nil
	}
	if !o.redact {
		fmt.Fprintf(env.Err, "warning: the file has what looks like secrets, which whoever reads the session will see: %s; --redact puts marks in their place\n", what)
		return nil
	}
	fmt.Fprintf(env.Err, "redacted: %s\n", what)
	return rec.Rewrite(o.limits(), found.Redact)
}

// readRecording reads FILE, or standard input.
func readRecording(ctx context.Context, h *home.Folder, args []string, o importOptions) (rec *opencode.Recording, err error) {
	in, closeIn, err := h.Env.Input(ctx, args)
	if err == nil {
		defer closeIn()
		progress := cli.NewReadProgress(h.Env, in, cli.InputSize(args))
		defer progress.Clear()
		reading := bufio.NewReader(progress)
		if head, _ := reading.Peek(reading.Size()); o.format == "" && uimessage.Recognises(head) { // what ends it is met again
			o.format = formatUIMessage
		}
		switch {
		case o.format == formatUIMessage:
			rec, err = uimessage.Read(reading, uimessage.Options{Limits: o.limits(), External: o.external})
		case o.external != "":
			err = fault.Usage.With("--external is for UIMessages: the file names its session itself")
		default:
			rec, err = transcripts.Read(reading, o.format, o.limits())
		}
		if errors.Is(err, fault.TooLarge) && !o.skipTooLarge {
			err = fault.TooLarge.Because(err, "%s; --skip-too-large leaves out values that are larger than a payload may be", cli.MessageOf(err))
		}
	}
	if errors.Is(err, cli.ErrStopped) {
		err = fault.Canceled.With("stopped while the file was read: nothing was imported")
	}
	return rec, err
}
