// mooring share: a new sturdy ref, of a session or a space.

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// shareFlags are what the new ref is to allow.
type shareFlags struct {
	rights      string
	expires     time.Duration
	label       string
	actor       string
	methods     []string
	from        uint64
	message     string
	redemptions uint32
	seal        string
	file        string
}

func shareCmd(sh *shared) *cobra.Command {
	var f shareFlags
	cmd := &cobra.Command{
		Use:   "share REF --rights read[,append,share,revoke]",
		Short: "Make a new ref to a session or space and print it",
		Long: "Make a new ref to a session, allowing at most what REF allows, and print it. Whoever\n" +
			"has the text has the capability. It is made here and goes through the outbox, so it can\n" +
			"be handed on without a server, and works as soon as it has arrived there. REF may be a\n" +
			"space's too: the new one is then made by the server at once.\n\n" + refHelp,
		Example: "  mooring share ses_01J… --rights read --expires 24h --label reviewer\n" +
			"  mooring share ses_01J… --rights read --message msg_01 --redemptions 1\n" +
			"  mooring share ses_01J… --rights read,append --actor helper --to helper.ref\n" +
			"  mooring share @srv/owner.ref --rights create,list --actor team --to team.ref",
		Args: cobra.ExactArgs(1),
	}
	h := withHome(sh, cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.rights, "rights", "", "read, append, share, revoke; of a space create, list, share, revoke; with commas (required)")
	flags.DurationVar(&f.expires, "expires", 0, "how long it lasts, such as 24h (default: for ever)")
	flags.StringVar(&f.label, "label", "", "a name for people")
	flags.StringVar(&f.actor, "actor", "", "who acts under it: a path below REF's actor")
	flags.StringSliceVar(&f.methods, "methods", nil, "append only these methods")
	flags.Uint64Var(&f.from, "from", 0, "first cursor it can see")
	flags.StringVar(&f.message, "message", "", "this message alone, with its parts and turn")
	flags.Uint32Var(&f.redemptions, "redemptions", 0, "how often it may be redeemed (default: any number)")
	flags.StringVar(&f.seal, "seal", "", "bind the new ref to a key, which its receiver's mooring key prints")
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
		Rights: rights, Methods: f.methods, From: f.from, Message: f.message, Redemptions: f.redemptions, Label: f.label, Actor: f.actor,
	}
	if f.seal != "" {
		if o.Seal, err = capability.ParseSealKey(f.seal); err != nil {
			return o, fault.Usage.Because(err, "--seal: %v", err)
		}
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
	s, sp, err := h.either(ctx, c, arg, capability.Share)
	if err != nil {
		return err
	}
	write := func(capability.Ref) error { return nil }
	if file != "" { // before there is a ref that would be lost
		if write, err = refFile(file); err != nil {
			return err
		}
	}
	if sp != nil {
		ref, err := sp.Share(ctx, o)
		if err = errors.Join(err, write(ref)); err != nil {
			return err
		}
		return h.printShared(ref, file, false)
	}
	ref, ticket, err := s.Share(ctx, o)
	if err != nil {
		return errors.Join(err, write(capability.Ref{}))
	}
	if err := write(ref); err != nil {
		return err
	}
	wait, stop := whileReachable(ctx, c, sendMoment)
	defer stop()
	results, still, err := await(wait, ticket)
	if err != nil {
		return err
	}
	if err := results.Err(); err != nil {
		return h.through(ctx, c, arg, s, capability.Share, fmt.Errorf("the share was refused: %w", err))
	}
	if results == nil {
		h.sayQueued(ctx, c, still, "the ref works as soon as it has arrived")
	}
	return h.printShared(ref, file, results == nil)
}

// printShared prints the new ref, or its id where the text is in a file.
func (h *homeFlags) printShared(ref capability.Ref, file string, queued bool) error {
	shown := map[string]any{"id": ref.ID, "queued": queued}
	text := ref.Text()
	if file == "" {
		shown["ref"] = text
	} else {
		text = ref.ID
		fmt.Fprintf(h.sh.err, "the ref is in %s\n", file)
	}
	if h.sh.json {
		return h.sh.printJSON(shown)
	}
	_, err := fmt.Fprintln(h.sh.out, text)
	return err
}

// refFile opens a file for a ref, readable by nobody else, and gives what writes
// it there; the zero ref leaves the file as it was.
func refFile(name string) (write func(capability.Ref) error, err error) {
	before, err := os.Stat(name)
	missing := errors.Is(err, os.ErrNotExist)
	plain := missing || err == nil && before.Mode().IsRegular()
	f, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY, 0o600)
	if err == nil && plain {
		err = f.Chmod(0o600) // it may have been there before
	}
	if err != nil {
		return nil, fmt.Errorf("write the ref: %w", err)
	}
	return func(ref capability.Ref) error {
		defer f.Close()
		if ref.ID == "" {
			if missing {
				return os.Remove(name)
			}
			return nil
		}
		if plain {
			if err := capability.WriteRefFile(name, ref); err == nil {
				return nil
			}
			err = f.Truncate(0) // its folder takes no other file; the ref must not be lost
		}
		if err == nil {
			_, err = f.WriteString(ref.Text() + "\n")
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("write the ref: %w", err)
		}
		return nil
	}, nil
}

// sendMoment is how long a command that only has to make something durable
// waits for a server that can be reached.
const sendMoment = 3 * time.Second

// await waits for a batch's outcomes for as long as there is use in it, which
// wait says. Nil results: not answered yet; still tells why, if it will not be.
func await(wait context.Context, t client.Ticket) (results client.Results, still *outbox.Standstill, err error) {
	results, err = t.Wait(wait)
	if errors.As(err, &still) || err != nil && wait.Err() != nil {
		return nil, still, nil
	}
	return results, nil, err
}

// sayQueued tells people that something waits in the outbox, and why: still, if
// it is known to stand still.
func (h *homeFlags) sayQueued(ctx context.Context, c *client.Client, still *outbox.Standstill, then string) {
	if h.sh.json {
		return
	}
	if still != nil {
		fmt.Fprintf(h.sh.err, "durable in the outbox, and it stays there (%s); %s\n", still, then)
		return
	}
	why := "not answered yet"
	if err := heldUp(ctx, c); err != nil {
		why = err.Error()
	}
	fmt.Fprintf(h.sh.err, "durable in the outbox, to be sent by any later command or mooring outbox drain (%s); %s\n", why, then)
}
