// mooring share: mints a ref of a session or a space.

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/ledger"
	"github.com/mooring-rpc/mooring/outbox"
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

func shareCmd(sh *cliEnv) *cobra.Command {
	var f shareFlags
	cmd := &cobra.Command{
		Use:   "share REF --rights read[,append,share,revoke]",
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
			"the server refuses the share there is no file.\n\n" + refHelp,
		Example: "  mooring share ses_01J… --rights read --expires 24h --label reviewer\n" +
			"  mooring share ses_01J… --rights read --message msg_01 --redemptions 1\n" +
			"  mooring share ses_01J… --rights read,append --actor helper --to helper.ref\n" +
			"  mooring share ses_01J… --rights read,append --read-keys todo/ --write-keys todo/mine/\n" +
			"  mooring share ses_01J… --rights read,ask,answer --ask prompt,stop --answer permission --to phone.ref\n" +
			"  mooring share ses_01J… --rights read --with-children --to watcher.ref\n" +
			"  mooring share @srv/owner.ref --rights create,list --actor team --to team.ref",
		Args: argCount(1, 1),
	}
	h := withHome(sh, cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.rights, "rights", "", "read, append, share, revoke, ask, answer, break, schema; of a space create, list, share, revoke; with commas (required)")
	durationVar(flags, &f.expires, "expires", 0, "how long it lasts from when the server makes it, such as 30m, 24h, 7d or 2w (default: for ever)")
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
	completeList(cmd, "rights", capability.RightNames()...)
	completeList(cmd, "methods", appendable...)
	completeList(cmd, "child-rights", capability.ChildRights.Names()...)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := rejectZeroLimits(flags, "expires", "redemptions", "from"); err != nil {
			return err
		}
		if flags.Changed("child-rights") && !f.children {
			return fault.Usage.With("--child-rights says what --with-children allows: give both")
		}
		o, err := f.options()
		if err != nil {
			return err
		}
		return h.withRef(cmd.Context(), args[0], func(ctx context.Context, c *client.Client) error {
			return h.share(ctx, c, args[0], o, f.file)
		})
	}
	h.completeRefs(cmd)
	return cmd
}

// options checks the flags.
func (f *shareFlags) options() (client.ShareOptions, error) {
	if f.rights == "" {
		return client.ShareOptions{}, fault.Usage.With("give what the new ref allows: --rights read[,append,share,revoke]")
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
	if _, bad := session.CheckOps([]ledger.Intent{share}, session.DefaultLimits()); bad != nil {
		return fault.Usage.Because(bad, "--%s", shareFlagNames.Replace(bad.Message)) // the message begins with the argument's name
	}
	return nil
}

// shareFlagNames replaces the names of arguments by those of flags.
var shareFlagNames = strings.NewReplacer("_keys", "-keys", "children: ", "child-rights: ", "children and ", "with-children and ")

func (h *homeFlags) share(ctx context.Context, c *client.Client, arg string, o client.ShareOptions, name string) error {
	s, sp, err := h.sessionOrSpace(ctx, c, arg, capability.Share)
	if err != nil {
		return err
	}
	file, err := newRefFile(name, false)
	if err != nil {
		return err
	}
	if sp != nil {
		ref, err := sp.Share(ctx, o)
		if err != nil {
			file.discard()
			return err
		}
		if err := errors.Join(file.write(ref), file.commit()); err != nil {
			return err
		}
		return h.printShared(ref, name, false)
	}
	b := s.Batch()
	ref, _ := b.Share(o)
	queued, refused, err := h.commitRef(ctx, c, b, ref, file, "share", "the ref works as soon as it has arrived")
	if refused != nil {
		return h.explainRefUsed(ctx, c, arg, s, capability.Share, refused)
	}
	if err != nil {
		return err
	}
	return h.printShared(ref, name, queued)
}

// commitRef commits a batch, named by what, that mints a ref, and writes the ref to a file before it is
// used anywhere. It waits for the answer while a server can be reached; without one the batch is durable
// all the same (queued), which it reports with what happens then. If the batch is refused, or will not be
// answered until someone decides, refused says why, and the file is discarded: the ref may never work.
func (h *homeFlags) commitRef(ctx context.Context, c *client.Client, b *client.Batch, ref capability.Ref, file *refFile, what, then string) (queued bool, refused, err error) {
	err = file.write(ref)
	var ticket client.Ticket
	if err == nil {
		ticket, err = b.Commit(ctx)
	}
	if err != nil {
		file.discard()
		return false, nil, err
	}
	wait, stop := whileReachable(ctx, c, sendGrace)
	defer stop()
	results, still, err := awaitResults(ctx, wait, c, ticket)
	if err == nil && still == nil && results == nil && h.isCopied(ctx, c, ref.Target()) {
		then = "the server goes on copying, and the fork is there once the outbox has asked for it again: mooring outbox drain waits for it"
		results, still, err = h.awaitCopy(ctx, c, ticket)
	}
	switch {
	case err == nil && results.Err() != nil:
		refused = fmt.Errorf("the %s was refused: %w", what, results.Err())
	case still != nil:
		refused = errors.Join(fmt.Errorf("the %s was not sent, and is given up: %w", what, stoppedError(still)), dropBatch(ctx, c, ticket))
	}
	if refused != nil {
		file.discard()
		return false, refused, nil
	}
	if err = errors.Join(err, file.commit()); err != nil {
		return false, nil, err
	}
	if results == nil {
		h.reportQueued(ctx, c, then)
	}
	return results == nil, nil, nil
}

// isCopied reports whether a session is a fork that the server is still copying.
func (h *homeFlags) isCopied(ctx context.Context, c *client.Client, id string) bool {
	st, err := c.Outbox().Queue(ctx)
	return err == nil && slices.ContainsFunc(st.Streams, func(s outbox.StreamStatus) bool {
		return s.Session == id && strings.HasPrefix(s.LastError, fault.NotYetKnown.String()+": "+session.ForkWaits)
	})
}

// awaitCopy waits for such a fork while its server can be reached, and shows how far it is.
func (h *homeFlags) awaitCopy(ctx context.Context, c *client.Client, t client.Ticket) (client.Results, *outbox.StreamStoppedError, error) {
	wait, stop := whileReachable(ctx, c, 0)
	defer stop()
	defer h.reportWaiting(wait, c)()
	return awaitResults(ctx, wait, c, t)
}

// printShared prints the new ref, or its id if the text is in a file.
func (h *homeFlags) printShared(ref capability.Ref, file string, queued bool) error {
	shown := map[string]any{"ref": ref.ID, "id": ref.ID, "queued": queued}
	text := ref.Text()
	if file == "" {
		shown["text"] = text
	} else {
		text = ref.ID
		fmt.Fprintf(h.env.err, "the ref is in %s\n", file)
	}
	return h.env.print(shown, "%s\n", text)
}

// sendGrace is how long a command whose work is durable waits for a server that can be reached.
const sendGrace = 3 * time.Second

// awaitResults waits for a batch's outcomes until wait ends. Nil results: not answered yet; still
// is set if the batch will not be answered until someone decides.
func awaitResults(ctx, wait context.Context, c *client.Client, t client.Ticket) (results client.Results, still *outbox.StreamStoppedError, err error) {
	results, err = t.Wait(wait)
	switch {
	case errors.As(err, &still):
		return nil, still, nil
	case err != nil && wait.Err() != nil:
		still, err = c.Outbox().Stopped(context.WithoutCancel(ctx), t.Session)
		return nil, still, err
	}
	return results, nil, err
}

// stoppedError returns the error of a command whose ops stay in the outbox because their stream
// has stopped, and the next steps.
func stoppedError(still *outbox.StreamStoppedError) error { return withNextSteps(still, still) }

// withNextSteps adds to an error what can be done about a stopped stream.
func withNextSteps(err error, still *outbox.StreamStoppedError) error {
	if !outbox.NeedsNewStream(still.Code) {
		return err
	}
	return fmt.Errorf("%w. mooring outbox reconcile %s shows what the session lacks and sends it, and what is pending; mooring outbox abandon %s gives all of it up", err, still.Session, still.Session)
}

// dropBatch drops a pending batch that no output has reported as done.
func dropBatch(ctx context.Context, c *client.Client, t client.Ticket) error {
	for _, op := range t.Ops {
		if err := c.Outbox().Drop(context.WithoutCancel(ctx), op); err != nil && fault.CodeOf(err) != fault.Usage {
			return err
		}
	}
	return nil
}

// reportQueued tells the user that ops are queued in the outbox, and why.
func (h *homeFlags) reportQueued(ctx context.Context, c *client.Client, then string) {
	if h.env.json {
		return
	}
	why := "not answered yet"
	if err := waitReason(ctx, c); err != nil {
		why = sanitizeLine(err.Error())
	}
	fmt.Fprintf(h.env.err, "durable in the outbox, to be sent by any later command or mooring outbox drain (%s); %s\n", why, then)
}
