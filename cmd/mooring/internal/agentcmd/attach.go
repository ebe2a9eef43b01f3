// mooring attach: ties a running agent to a session, over the agent's own API.

package agentcmd

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/attach"
	"github.com/mooring-rpc/mooring/internal/loopback"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/relay"
	"github.com/mooring-rpc/mooring/outbox"
)

// attachFlags are what is tied to what.
type attachFlags struct {
	url, opencode, listen          string
	remote                         bool
	owner, session, shareTo, label string
}

// Attach returns the command mooring attach, with its subcommand.
func Attach(env *cli.Env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "attach",
		Short: "Tie a running agent to a session: record what it does, hand it what is asked of it",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	h := home.AddFlags(env, cmd)
	cmd.AddCommand(attachOpencodeCmd(h))
	h.CompleteRefs(cmd)
	return cmd
}

func attachOpencodeCmd(h *home.Folder) *cobra.Command {
	var f attachFlags
	cmd := &cobra.Command{
		Use:   "opencode",
		Short: "Tie a session of a running opencode to one here, both ways",
		Long: "Record what a running opencode does (its terminal, started with opencode --port 4096, or opencode serve)\n" +
			"in a session, and hand it what is asked there: prompts, each at most once and never of unknown fate,\n" +
			"stops, and the answers to the permissions and questions that it asks, which can be answered in\n" +
			"opencode as well. It is the session of opencode that was updated last, or that of --opencode-session.\n\n" +
			"The same command again goes on with the same session. Ctrl-C ends the tie, and nothing else.\n\n" +
			"With --listen it is opencode's share server as well, as mooring relay is: put the address into\n" +
			"opencode.json, and /share gives a link of the real server. The session that is tied is shared as\n" +
			"it is recorded here, once; others get sessions of their own, made under the owner's ref.\n\n" +
			"A password of opencode's is taken from " + passwordEnv + ", its user from " + usernameEnv + ".\n\n" + home.RefHelp,
		Example: "  mooring attach opencode --share-to phone.ref\n  mooring attach opencode --listen " + defaultRelay + "\n  mooring attach opencode --url http://127.0.0.1:4096 --opencode-session ses_66a1…",
		Args:    cli.ArgCount(0, 0),
	}
	flags := cmd.Flags()
	flags.StringVar(&f.url, "url", "http://127.0.0.1:4096", "where opencode listens")
	flags.BoolVar(&f.remote, "remote", false, "allow a --url of another machine, which is sent all prompts and opencode's password")
	flags.StringVar(&f.opencode, "opencode-session", "", "opencode's id of the session, ses_… (default: the one that was updated last)")
	flags.StringVar(&f.listen, "listen", "", "be opencode's share server, too, at this address of this machine, HOST:PORT ("+defaultRelay+"); port 0 takes a free one")
	cli.OwnerFlag(cmd, &f.owner)
	flags.StringVar(&f.session, "session", "", "a REF of the session to record in (default: the one of the tie, or a new one)")
	flags.StringVar(&f.shareTo, "share-to", "", "write a ref to this new file (mode 0600) that reads the session, asks and answers in it")
	flags.StringVar(&f.label, "label", "", "a name for people, of a new session's ref")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if f.session != "" && f.label != "" {
			return fault.Usage.With("--label is for a new session: leave it out with --session")
		}
		if f.session != "" && f.owner != "" && f.listen == "" {
			return fault.Usage.With("--owner is for a new session, or --listen: leave it out with --session")
		}
		if f.listen != "" {
			if err := checkRelayListen(f.listen); err != nil {
				return err
			}
		}
		at, err := f.address()
		if err != nil {
			return err
		}
		file, err := cli.NewRefFile(f.shareTo, false)
		if err != nil {
			return err
		}
		defer file.Close()
		body := func(ctx context.Context, c *client.Client) error { return attachOpencode(ctx, h, c, &f, file, at) }
		if f.session == "" {
			return h.WithClient(cmd.Context(), body)
		}
		return h.WithRef(cmd.Context(), f.session, body)
	}
	return cmd
}

// address returns where opencode listens, with the password that the environment has.
func (f *attachFlags) address() (*url.URL, error) {
	u, err := url.Parse(f.url)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fault.Usage.With("--url is not an address of opencode's: http://127.0.0.1:PORT") // it may have a password
	}
	if !loopback.Is(u.Host) && !f.remote {
		return nil, fault.Usage.With("--url names another machine (%s): say --remote if you mean that", u.Host)
	}
	addPassword(u)
	return u, nil
}

func attachOpencode(ctx context.Context, h *home.Folder, c *client.Client, f *attachFlags, file *cli.RefFile, at *url.URL) (err error) {
	ties, err := tiesDir(h)
	if err != nil {
		return err
	}
	var ln net.Listener
	if f.listen != "" {
		var leave func()
		if ln, leave, err = listenRelay(ctx, h, f.listen); err != nil {
			return err
		}
		defer leave()
	}
	api := opencodeapi.New(at)
	tie, err := tieOf(ctx, h, f, api, ties)
	if errors.Is(err, opencodeapi.ErrAway) {
		return fault.Unavailable.Because(err, "%v; is it running with --port, or as opencode serve?", err)
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tie.Close()) }()
	s, err := sessionToAttach(ctx, h, c, f, tie)
	if err != nil {
		return err
	}
	var r *relay.Relay
	if f.listen != "" {
		if r, err = relayOfAttach(ctx, h, c, f, at, &attach.Ties{Client: c, Dir: ties, Attached: tie.Opencode(), Here: s}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, r.Close()) }()
	}
	if err := shareRun(ctx, h, c, s, file); err != nil {
		return err
	}
	if err := h.RememberOwner(); err != nil {
		return err
	}
	said := map[string]any{"session": s.ID(), "ref": s.Ref().ID, "opencode": tie.Opencode()}
	if ln != nil {
		said["url"] = "http://" + ln.Addr().String()
		fmt.Fprintf(h.Env.Err, "put this into opencode.json: { \"enterprise\": { \"url\": \"%s\" } }\n", said["url"])
	}
	if err := h.Env.Print(said, "%s\n", s.ID()); err != nil {
		return err
	}
	return whileReporting(ctx, h, c, func(ctx context.Context) error {
		both, ctx := errgroup.WithContext(ctx)
		both.Go(func() error {
			return attach.Run(ctx, attach.Config{
				Client: c, Session: s, Tie: tie, Opencode: api,
				Report: func(line string) { fmt.Fprintln(h.Env.Err, cli.SanitizeLine(line)) },
			})
		})
		if ln != nil {
			both.Go(func() error { return serveRelay(ctx, ln, r) })
		}
		return both.Wait()
	})
}

// tiesDir returns the folder of ties, and makes it if it is missing.
func tiesDir(h *home.Folder) (string, error) {
	home, err := h.MakeDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(home, "attached")
	return dir, privatedir.Make(dir, "the folder of ties")
}

// relayOfAttach returns the relay of --listen, which makes the sessions of what is shared beside the tie under the owner's ref.
func relayOfAttach(ctx context.Context, h *home.Folder, c *client.Client, f *attachFlags, at *url.URL, ties *attach.Ties) (*relay.Relay, error) {
	space, err := h.Owner(ctx, c, f.owner, capability.Create)
	if err != nil {
		return nil, err
	}
	if err := checkRelaySpace(ctx, h, c, space, "--owner"); err != nil {
		return nil, err
	}
	return newRelay(ctx, h, relay.Config{Client: c, Space: space, Opencode: []*url.URL{at}, Ties: ties})
}

// tieOf opens the tie of opencode's session. One that was tied before need not be there now.
func tieOf(ctx context.Context, h *home.Folder, f *attachFlags, api *opencodeapi.API, dir string) (*attach.Tie, error) {
	info, err := api.Choose(ctx, f.opencode)
	away := errors.Is(err, opencodeapi.ErrAway) && f.opencode != ""
	if err != nil && !away {
		return nil, err
	}
	id := f.opencode
	if !away {
		id = info.ID
	}
	tie, e := openTie(ctx, dir, id)
	switch {
	case e != nil:
		return nil, e
	case !away:
		fmt.Fprintf(h.Env.Err, "tied to opencode's session %s (%s)\n", id, cli.SanitizeLine(info.Title))
		err = tie.SetDirectory(info.Directory)
	case tie.Session() != "":
		api.Use(tie.Directory())
		err = nil
	}
	if err != nil {
		return nil, errors.Join(err, tie.Close())
	}
	return tie, nil
}

// openTie opens a tie. A relay that writes to its session has it for a moment.
func openTie(ctx context.Context, dir, id string) (tie *attach.Tie, err error) {
	for end := time.Now().Add(tieWait); ; {
		tie, err = attach.OpenTie(dir, id)
		if fault.CodeOf(err) != fault.InUse || time.Now().After(end) || ctx.Err() != nil {
			return tie, err
		}
		time.Sleep(tieWait / 50)
	}
}

// tieWait is how long a tie that another process has is waited for.
const tieWait = time.Second

// sessionToAttach returns the session of --session or of the tie, or a new one.
func sessionToAttach(ctx context.Context, h *home.Folder, c *client.Client, f *attachFlags, tie *attach.Tie) (*client.Session, error) {
	if f.session != "" {
		s, err := h.Session(ctx, c, f.session)
		if err != nil {
			return nil, err
		}
		if was := tie.Session(); was != "" && was != s.ID() {
			return nil, fault.InUse.With("opencode's session %s is recorded in %s: leave --session out", tie.Opencode(), was)
		}
		return s, tie.SetSession(s.ID(), capability.Ref{}, "")
	}
	owner, batch, err := tie.Begun()
	switch {
	case err != nil:
		return nil, err
	case tie.Session() != "" && batch == "":
		return h.Session(ctx, c, tie.Session())
	}
	if batch == "" {
		s, err := adopt(ctx, h, c, f, tie)
		if s != nil || err != nil {
			return s, err
		}
	}
	space, err := h.Owner(ctx, c, f.owner, capability.Create)
	if err != nil {
		return nil, err
	}
	if batch == "" {
		if owner, batch = space.NewOwner(), outbox.NewBatchID(); err == nil {
			err = tie.SetSession(owner.Target(), owner, batch)
		}
	}
	if err != nil {
		return nil, err
	}
	s, b := space.Create(client.CreateOptions{External: tie.Opencode(), SharedExternal: true, ByTime: true, Label: f.label, Owner: owner, BatchID: batch})
	_, refused, err := h.CommitRef(ctx, c, b, s.Ref(), nil, "creation", "what opencode does arrives later")
	if refused != nil {
		return nil, errors.Join(refused, tie.SetSession("", capability.Ref{}, "")) // another is begun the next time
	}
	if err != nil && fault.CodeOf(err) != fault.AlreadyExists { // an earlier process has committed it
		return nil, err
	}
	return s, tie.SetSession(s.ID(), capability.Ref{}, "")
}

// adopt returns the session in which a relay of this home folder has shared opencode's session, which the tie then goes on with; nil if there is none,
// or that relay runs and goes on with it by itself.
func adopt(ctx context.Context, h *home.Folder, c *client.Client, f *attachFlags, tie *attach.Tie) (*client.Session, error) {
	if f.listen == "" {
		unlock, err := lockRelay(ctx, h)
		if fault.CodeOf(err) == fault.InUse {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		defer unlock()
	}
	dir, err := relayDir(h)
	if err != nil {
		return nil, err
	}
	s, err := relay.Adopt(ctx, c, dir, tie.Opencode(), tie.KeysName())
	if s == nil || err != nil {
		return nil, err
	}
	return s, tie.SetSession(s.ID(), capability.Ref{}, "")
}
