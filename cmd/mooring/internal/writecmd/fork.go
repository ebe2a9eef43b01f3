// mooring session fork: a new session that begins as a copy of another.

package writecmd

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
)

// forkFlags are where the copy ends, and what the new session is.
type forkFlags struct {
	newSessionFlags
	at string
}

func sessionForkCmd(h *home.Folder) *cobra.Command {
	var f forkFlags
	cmd := &cobra.Command{
		Use:   "fork REF",
		Short: "Make a session that begins as a copy of another",
		Long: "Make a session in an owner's space that begins with what REF shows of another session, and\n" +
			"print its id. Its ref is stored in the home folder. --at CURSOR copies the state as of a\n" +
			"cursor, or CURSOR:HASH if the event there has that hash; --at message/ID leaves out the\n" +
			"messages that come after that one in the session's order, with their parts, and copies all\n" +
			"else as it is now. Refs, turns and claims are not copied. The fork is durable in the outbox,\n" +
			"with or without a server. A large session is copied by the server in pieces; if no\n" +
			"cursor is given, as it is when the fork arrives. Stopped meanwhile (Ctrl-C), the server goes\n" +
			"on, and mooring outbox drain waits for the rest.\n\n" + home.RefHelp,
		Example: "  mooring session fork ses_01J…\n  mooring session fork ses_01J… --at message/msg_01 --label \"another way\"\n  mooring session fork @reader.ref --at 120 --owner @data/owner.ref --to fork.ref",
		Args:    cli.ArgCount(1, 1),
		RunE: func(cmd *cobra.Command, args []string) error {
			at, err := f.parse()
			if err != nil {
				return err
			}
			return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
				return forkSession(ctx, h, c, args[0], at, &f)
			})
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&f.at, "at", "", "a cursor, or message/ID (default: the present state)")
	return cmd
}

// parse checks --at, and returns its cursor, 0 for none.
func (f *forkFlags) parse() (at uint64, err error) {
	if id, ok := strings.CutPrefix(f.at, session.MessageKey("")); ok {
		if _, refused := session.ParseKey(f.at); refused != nil {
			return 0, fault.Usage.Because(refused, "--at: %s", refused.Message)
		}
		f.options.Message = id
		return 0, nil
	}
	if f.at == "" {
		return 0, nil
	}
	p, err := client.ParsePosition(f.at)
	if err != nil || p.Cursor == 0 {
		return 0, fault.Usage.With("--at is %q: give a cursor from 1 on, or message/ID", cli.SanitizeLine(f.at))
	}
	f.options.AtHash = p.Hash
	return p.Cursor, nil
}

func forkSession(ctx context.Context, h *home.Folder, c *client.Client, arg string, at uint64, f *forkFlags) error {
	source, err := h.PassedSession(ctx, c, arg)
	if err != nil {
		return err
	}
	space, err := h.Owner(ctx, c, f.owner, capability.Create)
	if err != nil {
		return err
	}
	if err := sameServer(source, space); err != nil {
		return err
	}
	s, b := space.Fork(source, at, f.options)
	return commitNew(ctx, h, c, s, b, f.file, "fork", map[string]any{"session": s.ID(), "ref": s.Ref().ID, "source": source.ID()})
}

// sameServer refuses a session, if not nil, that is not on the server of a space.
func sameServer(s *client.Session, space *client.Space) error {
	if s == nil || s.Ref().Address() == space.Ref().Address() {
		return nil
	}
	return fault.Usage.With("the session is on %s and the owner's space on %s: name a space of the session's server with --owner", s.Ref().Address(), space.Ref().Address())
}

// commitNew commits the batch that makes a session, and prints its id, or shown as JSON. file, if not "", is
// where its ref is written too.
func commitNew(ctx context.Context, h *home.Folder, c *client.Client, s *client.Session, b *client.Batch, file, what string, shown map[string]any) error {
	to, err := cli.NewRefFile(file, false)
	if err != nil {
		return err
	}
	queued, refused, err := h.CommitRef(ctx, c, b, s.Ref(), to, what, "the session can be used here meanwhile")
	if refused != nil { // a ref that will never work is not kept
		return errors.Join(refused, c.Outbox().DropRef(context.WithoutCancel(ctx), s.Ref().ID, false))
	}
	if err != nil {
		return err
	}
	if file != "" {
		fmt.Fprintf(h.Env.Err, "the ref is in %s\n", file)
	}
	shown["queued"] = queued
	return h.Env.Print(shown, "%s\n", s.ID())
}
