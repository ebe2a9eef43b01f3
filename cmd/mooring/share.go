// mooring share: a new sturdy ref.

package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
)

// shareFlags are what the new ref is to allow.
type shareFlags struct {
	rights      string
	expires     time.Duration
	label       string
	actor       string
	methods     []string
	from        uint64
	redemptions uint32
	file        string
}

func shareCmd(sh *shared) *cobra.Command {
	var f shareFlags
	cmd := &cobra.Command{
		Use:   "share REF --rights read[,append,share,revoke]",
		Short: "Make a new ref to a session and print it",
		Long: "Make a new ref to a session, allowing at most what REF allows, and print it. Whoever\n" +
			"has the text has the capability. It is made here and goes through the outbox, so it can\n" +
			"be handed on without a server, and works as soon as it has arrived there.\n\n" + refHelp,
		Example: "  mooring share ses_01J… --rights read --expires 24h --label reviewer\n" +
			"  mooring share ses_01J… --rights read,append --actor helper --to helper.ref",
		Args: cobra.ExactArgs(1),
	}
	h := withHome(sh, cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.rights, "rights", "", "read, append, share, revoke, with commas (required)")
	flags.DurationVar(&f.expires, "expires", 0, "how long it lasts, such as 24h (default: for ever)")
	flags.StringVar(&f.label, "label", "", "a name for people")
	flags.StringVar(&f.actor, "actor", "", "who acts under it: a path below REF's actor")
	flags.StringSliceVar(&f.methods, "methods", nil, "append only these methods")
	flags.Uint64Var(&f.from, "from", 0, "first cursor it can see")
	flags.Uint32Var(&f.redemptions, "redemptions", 0, "how often it may be redeemed (default: any number)")
	flags.StringVar(&f.file, "to", "", "write the ref to this file (mode 0600) and not to the output")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		o, err := f.options(time.Now())
		if err != nil {
			return err
		}
		return h.work(cmd.Context(), func(ctx context.Context, c *client.Client) error {
			return h.share(ctx, c, args[0], o, f.file)
		})
	}
	return cmd
}

// options checks the flags. now is this machine's clock; the server's decides.
func (f *shareFlags) options(now time.Time) (client.ShareOptions, error) {
	if f.rights == "" {
		return client.ShareOptions{}, fault.Usage.With("say what the new ref allows: --rights read[,append,share,revoke]")
	}
	rights, err := capability.ParseRights(f.rights)
	if err != nil {
		return client.ShareOptions{}, fault.Usage.Because(err, "--rights: %v", err)
	}
	o := client.ShareOptions{
		Rights: rights, Methods: f.methods, From: f.from, Redemptions: f.redemptions, Label: f.label, Actor: f.actor,
	}
	if f.expires < 0 {
		return o, fault.Usage.With("--expires must be positive, such as 24h")
	}
	if f.expires > 0 {
		o.Expires = now.Add(f.expires)
	}
	return o, nil
}

func (h *homeFlags) share(ctx context.Context, c *client.Client, arg string, o client.ShareOptions, file string) error {
	s, err := h.session(ctx, c, arg)
	if err != nil {
		return err
	}
	ref, ticket, err := s.Share(ctx, o)
	if err != nil {
		return err
	}
	results, err := h.await(ctx, c, s.ID(), ticket, sendMoment)
	if err != nil {
		return err
	}
	if err := results.Err(); err != nil {
		return fmt.Errorf("the share was refused: %w", err)
	}
	if results == nil {
		h.sayQueued(ctx, c, s.ID(), "the ref works as soon as it has arrived")
	}
	if file != "" {
		if err := os.WriteFile(file, []byte(ref.Text()+"\n"), 0o600); err != nil {
			return fmt.Errorf("write the ref: %w", err)
		}
		fmt.Fprintf(h.sh.err, "the ref is in %s\n", file)
	}
	if h.sh.json {
		shown := map[string]any{"id": ref.ID, "queued": results == nil}
		if file == "" {
			shown["ref"] = ref.Text()
		}
		return h.sh.printJSON(shown)
	}
	if file != "" {
		_, err = fmt.Fprintln(h.sh.out, ref.ID)
		return err
	}
	_, err = fmt.Fprintln(h.sh.out, ref.Text())
	return err
}

// sendMoment is how long a command that only has to make something durable
// waits for a server that can be reached.
const sendMoment = 3 * time.Second

// await waits for a batch's outcomes for as long as there is use in it; limit 0
// has no end. Nil results: not answered yet.
func (h *homeFlags) await(ctx context.Context, c *client.Client, session string, t client.Ticket, limit time.Duration) (client.Results, error) {
	w := newWaiter(ctx, c, session, limit, true)
	defer w.stop()
	results, err := t.Wait(w.ctx)
	if err != nil && w.ctx.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return results, err
}

// sayQueued tells people that something waits in the outbox, and why.
func (h *homeFlags) sayQueued(ctx context.Context, c *client.Client, session, then string) {
	if h.sh.json {
		return
	}
	if why := still(ctx, c, session); why != nil {
		fmt.Fprintf(h.sh.err, "durable in the outbox, and it stays there (%s); %s\n", why, then)
		return
	}
	why := "not answered yet"
	if err := heldUp(ctx, c); err != nil {
		why = err.Error()
	}
	fmt.Fprintf(h.sh.err, "durable in the outbox, to be sent by any later command or mooring outbox drain (%s); %s\n", why, then)
}
