// mooring share: mints a ref of a session or a space.

package refcmd

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/session/opargs"
	"github.com/mooring-rpc/mooring/ledger"
)

// shareFlags are the limits of the new ref.
type shareFlags struct {
	rights      string
	expires     time.Duration
	label       string
	actor       string
	methods     []string
	from        uint64
	message     string
	readKeys    []string
	writeKeys   []string
	ask         []string
	answer      []string
	redemptions uint32
	children    bool
	childRights string
	seal        string
	file        string
}

// Share returns the command mooring share.
func Share(env *cli.Env) *cobra.Command {
	var f shareFlags
	cmd := &cobra.Command{
		Use:   "share REF --rights read[,append,ask,answer,share,revoke]",
		Short: "Make a new ref to a session or space and print it",
		Long: "Make a new ref to a session that allows at most what REF allows, and print it. Anyone who\n" +
			"has the text has the capability. The ref is made here and sent through the outbox, so it can\n" +
			"be given away without a server, and works once it has arrived there. If REF is a space's,\n" +
			"the server makes the new one at once.\n\n" +
			"--read-keys and --write-keys limit the ref to some keys, each by itself: with --read-keys\n" +
			"alone it may write any key, with --write-keys alone it shows all. A text that ends in / is\n" +
			"all that is below it. To answer in message M, a ref writes message/M and part/M/.\n\n" +
			"--ask and --answer limit the rights of these names to kinds of requests: prompt, stop,\n" +
			"permission, question or your own.\n\n" +
			"--with-children lets the ref into the sessions that were created under this one, of all\n" +
			"depths, those that are there and those that come: to read them, or what --child-rights\n" +
			"names. They are given as REF/ID. It ends in all of them at once. It does not go with --from,\n" +
			"--message and keys.\n\n" +
			"--to names a new file. It is written when the share is durable, with or without a server; if\n" +
			"the server refuses the share there is no file.\n\n" + home.RefHelp,
		Example: "  mooring share ses_01J… --rights read --expires 24h --label reviewer\n" +
			"  mooring share ses_01J… --rights read --message msg_01 --redemptions 1\n" +
			"  mooring share ses_01J… --rights read,append --actor helper --to helper.ref\n" +
			"  mooring share ses_01J… --rights read,append --read-keys todo/ --write-keys todo/mine/\n" +
			"  mooring share ses_01J… --rights read,ask,answer --ask prompt,stop --answer permission --to phone.ref\n" +
			"  mooring share ses_01J… --rights read --with-children --to watcher.ref\n" +
			"  mooring share @srv/owner.ref --rights create,list --actor team --to team.ref",
		Args: cli.ArgCount(1, 1),
	}
	h := home.AddFlags(env, cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.rights, "rights", "", "read, append, share, revoke, ask, answer, break, schema; of a space create, list, share, revoke; with commas (required)")
	cli.DurationVar(flags, &f.expires, "expires", 0, "how long it lasts from when the server makes it, such as 30m, 24h, 7d or 2w (default: for ever)")
	flags.BoolVar(&f.children, "with-children", false, "also the sessions below this one, those that are there and those that come")
	flags.StringVar(&f.childRights, "child-rights", "read", "with --with-children, what it allows there; with commas")
	flags.StringVar(&f.label, "label", "", "a name for people")
	flags.StringVar(&f.actor, "actor", "", "name of its user in events and audit: a path below REF's actor")
	flags.StringSliceVar(&f.methods, "methods", nil, "allow appending with these methods only")
	flags.Uint64Var(&f.from, "from", 0, "first cursor it can see")
	flags.StringVar(&f.message, "message", "", "only this message, with its parts and turn")
	flags.StringSliceVar(&f.readKeys, "read-keys", nil, "show only these keys; todo/ is all that is below it (writing is not limited)")
	flags.StringSliceVar(&f.writeKeys, "write-keys", nil, "write only these keys (reading is not limited)")
	flags.StringSliceVar(&f.ask, "ask", nil, "ask requests of these kinds only: prompt, stop, …")
	flags.StringSliceVar(&f.answer, "answer", nil, "claim and answer requests of these kinds only: permission, question, …")
	flags.Uint32Var(&f.redemptions, "redemptions", 0, "how often it may be redeemed (default: any number)")
	flags.StringVar(&f.seal, "seal", "", "bind the new ref to this key, which mooring key prints at its receiver")
	flags.StringVar(&f.file, "to", "", "write the ref to this new file (mode 0600) instead of printing it")
	cli.CompleteList(cmd, "rights", capability.RightNames()...)
	cli.CompleteList(cmd, "methods", appendable...)
	cli.CompleteList(cmd, "child-rights", capability.ChildRights.Names()...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := cli.RejectZeroLimits(flags, "expires", "redemptions", "from"); err != nil {
			return err
		}
		if flags.Changed("child-rights") && !f.children {
			return fault.Usage.With("--child-rights says what --with-children allows: give both")
		}
		o, err := f.options()
		if err != nil {
			return err
		}
		return h.WithRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			return shareRef(ctx, h, c, args[0], o, f.file)
		})
	}
	h.CompleteRefs(cmd)
	return cmd
}

// options checks the flags.
func (f *shareFlags) options() (client.ShareOptions, error) {
	if f.rights == "" {
		return client.ShareOptions{}, fault.Usage.With("give what the new ref allows: --rights read[,append,ask,answer,share,revoke]")
	}
	rights, err := capability.ParseRights(f.rights)
	if err != nil {
		return client.ShareOptions{}, fault.Usage.Because(err, "--rights: %v", err)
	}
	o := client.ShareOptions{
		Rights: rights, Methods: f.methods, From: f.from, Message: f.message, ReadKeys: f.readKeys, WriteKeys: f.writeKeys, AskKinds: f.ask, AnswerKinds: f.answer, Redemptions: f.redemptions, Label: f.label, Actor: f.actor,
	}
	if f.children {
		if o.Children, err = capability.ParseRights(f.childRights); err != nil {
			return o, fault.Usage.Because(err, "--child-rights: %v", err)
		}
	}
	if err := f.check(rights, o.Children); err != nil {
		return o, err
	}
	if f.seal != "" {
		if o.Seal, err = capability.ParseSealKey(f.seal); err != nil {
			return o, fault.Usage.Because(err, "--seal: %v", err)
		}
	}
	o.Lifetime = f.expires
	return o, nil
}

// check refuses values that no share can have.
func (f *shareFlags) check(rights, children capability.Rights) error {
	share := ledger.Intent{Method: session.MethodShare}
	later := &ledger.Ref{} // a reference in place of unknown values
	for _, name := range []string{"ref", "hash"} {
		share.Args = append(share.Args, ledger.Arg{Name: name, Ref: later})
	}
	values := map[string]any{"rights": rights, "methods": f.methods, "message": f.message, "read_keys": f.readKeys, "write_keys": f.writeKeys, "ask": f.ask, "answer": f.answer, "label": f.label, "actor": f.actor}
	if children != 0 {
		values["children"], values["from"] = children, f.from
	}
	for name, value := range values {
		text, err := json.Marshal(value)
		if err != nil {
			return fmt.Errorf("--%s: %w", name, err)
		}
		share.Args = append(share.Args, ledger.Arg{Name: name, JSON: text})
	}
	if _, bad := opargs.CheckOps([]ledger.Intent{share}, session.DefaultLimits()); bad != nil {
		return fault.Usage.Because(bad, "--%s", shareFlagNames.Replace(bad.Message)) // the message begins with the argument's name
	}
	return nil
}

// shareFlagNames replaces the names of arguments by those of flags.
var shareFlagNames = strings.NewReplacer(" and message exclude", " and --message exclude", "children and message", "with-children and --message",
	"children and from", "with-children and --from", "children and read_keys", "with-children and --read-keys", "children and write_keys", "with-children and --write-keys",
	"_keys", "-keys", "children: ", "child-rights: ", "children and ", "with-children and ")

func shareRef(ctx context.Context, h *home.Folder, c *client.Client, arg string, o client.ShareOptions, name string) error {
	s, sp, err := h.SessionOrSpace(ctx, c, arg, capability.Share)
	if err != nil {
		return err
	}
	file, err := cli.NewRefFile(name, false)
	if err != nil {
		return err
	}
	if sp != nil {
		ref, err := sp.Share(ctx, o)
		if err != nil {
			file.Discard()
			return err
		}
		if err := errors.Join(file.Write(ref), file.Commit()); err != nil {
			return err
		}
		return printShared(h, ref, name, false)
	}
	b := s.Batch()
	ref, _ := b.Share(o)
	queued, refused, err := h.CommitRef(ctx, c, b, ref, file, "share", "the ref works as soon as it has arrived")
	if refused != nil {
		return h.ExplainRefUsed(ctx, c, arg, s, capability.Share, refused)
	}
	if err != nil {
		return err
	}
	return printShared(h, ref, name, queued)
}

// printShared prints the new ref, or its id if the text is in a file.
func printShared(h *home.Folder, ref capability.Ref, file string, queued bool) error {
	shown := map[string]any{"ref": ref.ID, "id": ref.ID, "queued": queued}
	text := ref.Text()
	if file == "" {
		shown["text"] = text
	} else {
		text = ref.ID
		fmt.Fprintf(h.Env.Err, "the ref is in %s\n", file)
	}
	return h.Env.Print(shown, "%s\n", text)
}

// appendable are the methods that --methods takes.
var appendable = []string{"add", "appendText", "begin", "claim", "finalize", "patch", "put", "release", "remove"}
