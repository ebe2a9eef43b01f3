// mooring relay: the share server that opencode's config names, on this machine, in front of the real one.

package agentcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/attach"
	"github.com/mooring-rpc/mooring/internal/loopback"
	"github.com/mooring-rpc/mooring/internal/relay"
)

// relayOptions are the command's flags.
type relayOptions struct {
	to, listen string
	opencode   []string
}

// defaultRelay is where a relay listens: beside the server's own port.
const defaultRelay = "127.0.0.1:7601"

// passwordEnv and usernameEnv are opencode's own variables of the password and the user of its API.
const (
	passwordEnv = "OPENCODE_SERVER_PASSWORD"
	usernameEnv = "OPENCODE_SERVER_USERNAME"
)

// addPassword adds the password that the environment has to an address of opencode's that has none.
func addPassword(u *url.URL) {
	if password := os.Getenv(passwordEnv); password != "" && u.User == nil {
		u.User = url.UserPassword(cmp.Or(os.Getenv(usernameEnv), "opencode"), password)
	}
}

// Relay returns the command mooring relay.
func Relay(env *cli.Env) *cobra.Command {
	var o relayOptions
	cmd := &cobra.Command{
		Use:   "relay",
		Short: "Take what opencode shares, also while the server is away, and send it on",
		Long: "Stand between opencode and a server: opencode's config names this relay as its share server.\n" +
			"What opencode sends is durable in the outbox when it is answered, with or without a server, and\n" +
			"sent on when there is one. opencode itself sends everything once and drops what it cannot\n" +
			"deliver. Links are those of the real server; they work once it has been reached.\n\n" +
			"--to is a REF that may create sessions in a space: an owner's ref, or one that mooring share\n" +
			"--rights create makes. What opencode sends while no relay runs is lost to it, unless --opencode\n" +
			"says where opencode's own API is (opencode --port 4096): then it is read there at the next start.\n" +
			"A password of that API is taken from " + passwordEnv + ", its user from " + usernameEnv + ".",
		Example: "  mooring relay --to @data/owner.ref\n  mooring relay --to @create.ref --opencode http://127.0.0.1:4096",
		Args:    cli.ArgCount(0, 0),
	}
	h := home.AddFlags(env, cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error { return runRelay(cmd.Context(), h, o) }
	f := cmd.Flags()
	f.StringVar(&o.to, "to", "", "a REF that may create sessions in the space where opencode's are kept")
	f.StringVar(&o.listen, "listen", defaultRelay, "address of this machine to listen on, HOST:PORT; port 0 takes a free one")
	f.StringArrayVar(&o.opencode, "opencode", nil, "address of opencode's own API, http://127.0.0.1:PORT, from which is read what was missed; repeatable")
	_ = cmd.RegisterFlagCompletionFunc("to", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) { // the flag exists
		return h.RefsWithPrefix(cmd.Context(), begun)
	})
	return cmd
}

// check refuses what the command line alone shows to be wrong, and returns opencode's addresses.
func (o *relayOptions) check() (list []*url.URL, err error) {
	if o.to == "" {
		return nil, fault.Usage.With("say where to: --to REF, which may create sessions in a space")
	}
	if err := checkRelayListen(o.listen); err != nil {
		return nil, err
	}
	for _, text := range o.opencode {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "http" || !loopback.Is(u.Host) || u.RawQuery != "" {
			shown := "" // nor the error, if it cannot be told where a password is
			if err == nil && (u.User != nil || !strings.Contains(text, "@")) {
				shown = " " + strconv.Quote(u.Redacted())
			}
			return nil, fault.Usage.With("--opencode%s is not an address of this machine: http://127.0.0.1:PORT", shown)
		}
		addPassword(u)
		list = append(list, u)
	}
	return list, nil
}

// checkRelayListen refuses a --listen of a relay that others reach.
func checkRelayListen(address string) error {
	if err := cli.CheckListen("--listen", address); err != nil {
		return err
	}
	if !loopback.Is(address) {
		return fault.Usage.With("--listen %s: a relay serves this machine alone, since whoever reaches it may share: use 127.0.0.1, [::1] or localhost", address)
	}
	return nil
}

// runRelay runs a relay until ctx ends.
func runRelay(ctx context.Context, h *home.Folder, o relayOptions) (err error) {
	apis, err := o.check()
	if err != nil {
		return err
	}
	if err := h.Arg(ctx, o.to).Err; err != nil {
		return err
	}
	ln, leave, err := listenRelay(ctx, h, o.listen)
	if err != nil {
		return err
	}
	defer leave()
	c, err := h.Open(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	space, err := h.Space(ctx, c, o.to, "--to", capability.Create)
	if err == nil {
		err = checkRelaySpace(ctx, h, c, space, "--to")
	}
	if err != nil {
		return err
	}
	ties, err := tiesDir(h)
	if err != nil {
		return err
	}
	r, err := newRelay(ctx, h, relay.Config{Client: c, Space: space, Opencode: apis, Ties: &attach.Ties{Client: c, Dir: ties}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	if err := announceRelay(h, ln, space.Ref()); err != nil {
		return err
	}
	return whileReporting(ctx, h, c, func(ctx context.Context) error { return serveRelay(ctx, ln, r) })
}

// listenRelay listens for the one relay of the home folder. leave ends both.
func listenRelay(ctx context.Context, h *home.Folder, address string) (ln net.Listener, leave func(), err error) {
	if ln, err = cli.ListenTCP(ctx, "--listen", address); err != nil {
		return nil, nil, err
	}
	unlock, err := lockRelay(ctx, h)
	if err != nil {
		_ = ln.Close()
		return nil, nil, err
	}
	return ln, func() {
		unlock()
		_ = ln.Close() // the server that used it has closed it already
	}, nil
}

// newRelay returns a relay on the home folder.
func newRelay(ctx context.Context, h *home.Folder, cfg relay.Config) (r *relay.Relay, err error) {
	if cfg.Dir, err = relayDir(h); err != nil {
		return nil, err
	}
	cfg.Log = slog.New(slog.NewTextHandler(cli.EscapeInvisible(h.Env.Err), nil))
	return relay.New(ctx, cfg)
}

func relayDir(h *home.Folder) (string, error) {
	dir, err := h.MakeDir()
	return filepath.Join(dir, "relay"), err
}

// lockRelay lets one relay at a time use the home folder.
func lockRelay(ctx context.Context, h *home.Folder) (unlock func(), err error) {
	dir, err := h.MakeDir()
	if err != nil {
		return nil, err
	}
	wait, cancel := context.WithTimeout(ctx, home.GraceUnreachable)
	defer cancel()
	unlock, err = home.Lock(wait, filepath.Join(dir, "relay.lock"))
	if err != nil && wait.Err() != nil && ctx.Err() == nil {
		err = fault.InUse.Because(err, "another mooring relay runs with the home folder %s, by itself or in mooring attach --listen: one is enough for any number of opencodes", dir)
	}
	return unlock, err
}

// checkRelaySpace asks the server, if it can be reached, whether a relay's ref, which the user named in from, may create sessions.
func checkRelaySpace(ctx context.Context, h *home.Folder, c *client.Client, space *client.Space, from string) error {
	wait, stop := home.WhileReachable(ctx, c, home.SendGrace)
	defer stop()
	d, err := space.Describe(wait)
	switch code := fault.CodeOf(err); {
	case ctx.Err() != nil:
		return fault.Canceled.With("stopped before it was done")
	case err == nil && d.Grant.Dead != fault.None:
		return d.Grant.Dead.With("%s: the ref allows nothing any more: make another", from)
	case err == nil && !d.Grant.Rights.Has(capability.Create):
		return fault.MissingRight.With("%s: the ref allows %s, and a relay makes sessions: use one that carries create (mooring share @owner.ref --rights create)", from, d.Grant.Rights)
	case err == nil:
		return nil
	case code.Authority():
		return fmt.Errorf("%s: %w", from, err)
	}
	fmt.Fprintf(h.Env.Err, "the server is away (%s): what opencode shares is kept here until it is back\n", cli.SanitizeLine(cli.MessageOf(err)))
	return nil
}

// announceRelay prints where the relay listens, and what opencode's config is to say.
func announceRelay(h *home.Folder, ln net.Listener, to capability.Ref) error {
	at := "http://" + ln.Addr().String()
	return h.Env.Print(map[string]string{"url": at, "to": to.WebAddress()},
		"relaying opencode's shares to %s\nput this into opencode.json: { \"enterprise\": { \"url\": \"%s\" } }\n", to.WebAddress(), at)
}

// relayStop is how long requests in progress have when the relay ends.
const relayStop = 10 * time.Second

// serveRelay serves until ctx ends or something fails.
func serveRelay(ctx context.Context, ln net.Listener, r *relay.Relay) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	web := &http.Server{Handler: r, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, 0)}
	failed := make(chan error, 1)
	go func() { failed <- web.Serve(ln) }()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.Run(ctx) // nil
	}()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
		stop, done := context.WithTimeout(context.WithoutCancel(ctx), relayStop)
		defer done()
		if web.Shutdown(stop) != nil {
			_ = web.Close() // whose requests are not answered
		}
		<-failed
	}
	cancel()
	<-ended
	return err
}

// whileReporting calls work and says meanwhile when the server is away, and at its end what waits.
func whileReporting(ctx context.Context, h *home.Folder, c *client.Client, work func(context.Context) error) error {
	watching, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reportRelay(watching, h, c)
	}()
	err := work(ctx)
	stop()
	<-ended
	sayPending(context.WithoutCancel(ctx), h, c)
	return err
}

// sayPending says what waits when the relay ends.
func sayPending(ctx context.Context, h *home.Folder, c *client.Client) {
	h.DrainBriefly(ctx, c)
	if st, err := c.Outbox().Queue(ctx); err == nil && st.Unfinished() > 0 {
		fmt.Fprintf(h.Env.Err, "stopped: %s in the outbox, which the next command in this home folder sends\n", cli.Plural(st.Unfinished(), "op"))
	}
}

// reportEvery is how often it is looked whether the server is away.
const reportEvery = 500 * time.Millisecond

// reportRelay says when the server is away, how much waits meanwhile, and when it is back.
func reportRelay(ctx context.Context, h *home.Folder, c *client.Client) {
	tick := time.NewTicker(reportEvery)
	defer tick.Stop()
	away, shown := "", time.Time{}
	var since time.Time
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			st, err := c.Outbox().Queue(ctx)
			if err != nil {
				continue
			}
			why := home.BlockedBy(ctx, c)
			switch n := st.Unfinished(); {
			case why == nil && away != "" && n == 0:
				fmt.Fprintln(h.Env.Err, "the server is back: all is sent")
				away, since = "", time.Time{}
			case why == nil || n == 0:
				since = time.Time{}
			case since.IsZero():
				since = now
			case now.Sub(since) < home.QuietWait:
			case reason(why) != away || now.Sub(shown) > time.Minute:
				away, shown = reason(why), now
				fmt.Fprintf(h.Env.Err, "waiting (%s in the outbox): %s\n", cli.Plural(n, "op"), away)
			}
		}
	}
}

// reason returns an error on one line, without what changes from one try to the next.
func reason(err error) string { return strings.TrimSpace(cli.SanitizeLine(err.Error())) }
