// The home folder: the outbox and the refs saved in it.

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/pgclient"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/outbox"
)

// homeFlags are the flags of every command that uses an outbox.
type homeFlags struct {
	env       *cliEnv
	home      string
	outboxURL string
	plaintext bool
	tlsCA     string
	ownerUsed string // id of the owner's ref in use, remembered when the command has succeeded

	refArgs map[string]refArg // by argument, as parsed
	target  string            // the session or space last found for one
}

// withHome adds the flags to a command and its subcommands.
func withHome(sh *cliEnv, cmd *cobra.Command) *homeFlags {
	h := &homeFlags{env: sh}
	f := cmd.PersistentFlags()
	f.StringVar(&h.home, "home", "", "folder of the outbox and the refs (MOORING_HOME; default: mooring in the user's config folder)")
	f.StringVar(&h.outboxURL, "outbox-url", "", "keep the outbox in this Postgres database instead (put a URL with a password in MOORING_OUTBOX_URL)")
	f.BoolVar(&h.plaintext, "allow-plaintext", false, "allow sending secrets in clear to other machines")
	f.StringVar(&h.tlsCA, "tls-ca", "", "PEM file of certificates to trust for moorings:// refs, in addition to the system's (MOORING_TLS_CA)")
	return h
}

// maxTLSCA bounds a file of certificates, in bytes: several times a whole system's.
const maxTLSCA = 1 << 20

// tlsConfig returns the TLS configuration that also trusts --tls-ca; nil without the flag.
func (h *homeFlags) tlsConfig(ctx context.Context) (*tls.Config, error) {
	name := h.tlsCA
	if name == "" {
		name = os.Getenv("MOORING_TLS_CA")
	}
	if name == "" {
		return nil, nil
	}
	pem, err := readFileLimited(ctx, name, maxTLSCA)
	if errors.Is(err, errStopped) {
		return nil, err
	}
	if err != nil {
		return nil, fault.Usage.Because(err, "--tls-ca: %v", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // the system has no pool
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fault.Usage.With("--tls-ca: the file has no PEM certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}

// homeDir returns the home folder, which may not exist.
func (h *homeFlags) homeDir() (string, error) {
	if h.home != "" {
		return h.home, nil
	}
	if dir := os.Getenv("MOORING_HOME"); dir != "" {
		return dir, nil
	}
	base, err := os.UserConfigDir()
	if err != nil {
		return "", fault.Usage.Because(err, "there is no config folder: say --home DIR or set MOORING_HOME")
	}
	return filepath.Join(base, "mooring"), nil
}

// makeHomeDir returns the home folder, and creates it if missing.
func (h *homeFlags) makeHomeDir() (string, error) {
	dir, err := h.homeDir()
	if err != nil {
		return "", err
	}
	return dir, privatedir.Make(dir, "the home folder")
}

// open opens a client on the home's outbox.
func (h *homeFlags) open(ctx context.Context, offline bool) (*client.Client, error) {
	dir, err := h.makeHomeDir()
	if err != nil {
		return nil, err
	}
	trust, err := h.tlsConfig(ctx)
	if err != nil {
		return nil, err
	}
	key, err := readSealKey(dir)
	if err != nil {
		return nil, err
	}
	cfg := client.Config{
		OpenOutbox: sqliteclient.Outbox(dir), SealKey: key, TLS: trust, Offline: offline, AllowPlaintext: h.plaintext,
		RetryTimeout: 2 * time.Second, Agent: "mooring/" + version(),
		// Commands are short, and a killed one blocks the next for this long.
		OutboxConfig: outbox.Config{Lease: 3 * time.Second},
	}
	url := cmp.Or(h.outboxURL, os.Getenv("MOORING_OUTBOX_URL"))
	if url != "" {
		cfg.OpenOutbox = pgclient.Outbox(url, "")
	}
	if err := postgres.CheckURL(outboxURLFlag, url); err != nil {
		return nil, err
	}
	c, err := client.Open(ctx, cfg)
	if err != nil && ctx.Err() != nil {
		return nil, fault.Canceled.Because(err, "stopped before it was done")
	}
	if err != nil && url != "" {
		return nil, postgres.Explain(outboxURLFlag, url, err)
	}
	return c, err
}

// outboxURLFlag is how messages name the flag or its environment variable.
const outboxURLFlag = "--outbox-url (or MOORING_OUTBOX_URL)"

// withClient runs a command's body with an open client. Queued ops are sent meanwhile, and for a short time afterwards.
func (h *homeFlags) withClient(ctx context.Context, body func(ctx context.Context, c *client.Client) error) error {
	c, err := h.open(ctx, false)
	if err != nil {
		return err
	}
	h.finishRotations(ctx, c)
	err = body(ctx, c)
	if err == nil {
		h.drainBriefly(ctx, c)
		err = h.rememberOwner(h.ownerUsed)
	} else {
		err = h.explainNeverCreated(ctx, c, err)
	}
	return errors.Join(err, c.Close())
}

// withRef is withClient for work on a REF: an invalid REF is reported before anything is opened.
func (h *homeFlags) withRef(ctx context.Context, arg string, body func(ctx context.Context, c *client.Client) error) error {
	if err := h.refArg(ctx, arg).err; err != nil {
		return err
	}
	return h.withClient(ctx, body)
}

// withSession is withRef for work on the session of a REF.
func (h *homeFlags) withSession(ctx context.Context, arg string, body func(ctx context.Context, s *client.Session) error) error {
	return h.withRef(ctx, arg, func(ctx context.Context, c *client.Client) error {
		s, err := h.session(ctx, c, arg)
		if err != nil {
			return err
		}
		return body(ctx, s)
	})
}

// finishRotations waits a moment for rotations that are begun and not answered: until they finish the home has a ref
// that may be dead.
func (h *homeFlags) finishRotations(ctx context.Context, c *client.Client) {
	wait, stop := whileReachable(ctx, c, sendGrace)
	defer stop()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		if pending, err := c.Outbox().Rotations(wait); err != nil || len(pending) == 0 {
			return
		}
		select {
		case <-tick.C:
		case <-wait.Done():
			return
		}
	}
}

// drainBriefly lets the sender finish batches that can be sent at once.
func (h *homeFlags) drainBriefly(ctx context.Context, c *client.Client) {
	st, err := c.Outbox().Queue(ctx)
	if err != nil || st.Unfinished() == 0 || blockedBy(ctx, c) != nil {
		return
	}
	for _, s := range st.Streams {
		if s.Stopped != fault.None {
			return // someone has to decide; status tells why
		}
	}
	wait, stop := whileReachable(ctx, c, 2*time.Second)
	defer stop()
	_ = c.Drain(wait, nil) // a later command sends the rest
}

// graceUnreachable is how long a server may be unreachable before a command goes on without it.
const graceUnreachable = 400 * time.Millisecond

// whileReachable returns a context that ends after limit (0: never), or when no server could be reached for
// graceUnreachable.
func whileReachable(ctx context.Context, c *client.Client, limit time.Duration) (context.Context, context.CancelFunc) {
	wait, stop := context.WithCancel(ctx)
	if limit > 0 {
		wait, stop = context.WithTimeout(ctx, limit)
	}
	go func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		var since time.Time
		for {
			select {
			case <-wait.Done():
				return
			case now := <-tick.C:
				switch {
				case blockedBy(wait, c) == nil:
					since = time.Time{}
				case since.IsZero():
					since = now
				case now.Sub(since) > graceUnreachable:
					stop()
				}
			}
		}
	}()
	return wait, stop
}

// blockedBy returns why nothing can be sent at present, by this process or by the outbox's sender; nil if no reason is
// known. A quota blocks until someone acts on it.
func blockedBy(ctx context.Context, c *client.Client) error {
	if err := cmp.Or(c.ConnErr(), c.Err()); err != nil {
		return err
	}
	st, err := c.Outbox().Queue(ctx)
	if err != nil || st.LeasedUntil.IsZero() || len(st.Streams) == 0 {
		return nil
	}
	for _, s := range st.Streams {
		if s.LastError == "" || st.Sending && !blockedByQuota(s.LastError) {
			return nil
		}
	}
	return errors.New(st.Streams[0].LastError)
}

// quietWait is how long a command waits before it prints the reason.
const quietWait = 2 * time.Second

// reportWaiting prints, until stop is called, why a command is waiting for answers: each reason once, when the command
// has had one for quietWait. Nothing is printed after stop returns.
func (h *homeFlags) reportWaiting(ctx context.Context, c *client.Client) (stop func()) {
	if h.env.json {
		return func() {}
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		tick := time.NewTicker(quietWait / 10)
		defer tick.Stop()
		var since time.Time
		for message := ""; ; {
			select {
			case <-ctx.Done():
				return
			case now := <-tick.C:
				err := waitReason(ctx, c)
				switch {
				case err == nil || ctx.Err() != nil:
					since = time.Time{}
				case since.IsZero():
					since = now
				case now.Sub(since) >= quietWait && err.Error() != message:
					message = err.Error()
					fmt.Fprintf(h.env.err, "waiting: %s\n", sanitizeLine(message))
				}
			}
		}
	}()
	return func() {
		cancel()
		<-ended
	}
}

// waitReason returns why pending ops have not been answered yet, as far as known: the reason for all of them, or the
// server's last error.
func waitReason(ctx context.Context, c *client.Client) error {
	if err := cmp.Or(c.ConnErr(), c.Err()); err != nil {
		return err
	}
	st, err := c.Outbox().Queue(ctx)
	if err != nil {
		return nil
	}
	for _, s := range st.Streams {
		if s.Stopped == fault.None && s.LastError != "" {
			return errors.New(s.LastError)
		}
	}
	return nil
}

// ownerArg returns the REF named as owner, and where it was named; "" if none was.
func (h *homeFlags) ownerArg(flag string) (arg, from string) {
	if flag != "" {
		return flag, "--owner"
	}
	return os.Getenv("MOORING_OWNER"), "MOORING_OWNER"
}

// owner returns the space ref for a command that needs the right want. One named by the user is remembered when the
// command has succeeded.
func (h *homeFlags) owner(ctx context.Context, c *client.Client, flag string, want capability.Rights) (*client.Space, error) {
	arg, from := h.ownerArg(flag)
	if arg == "" {
		return h.rememberedOwner(ctx, c, want)
	}
	sp, err := h.space(ctx, c, arg, from, want)
	if err == nil {
		h.ownerUsed = sp.Ref().ID
	}
	return sp, err
}

// space returns the space ref that the user named in a flag or variable, from, for a command that needs the right want.
func (h *homeFlags) space(ctx context.Context, c *client.Client, arg, from string, want capability.Rights) (*client.Space, error) {
	ref, id, err := h.ref(ctx, arg)
	switch {
	case err != nil:
		return nil, err
	case capability.IsSpace(id) || capability.IsSpace(capability.Target(id)):
		saved, err := h.savedRef(ctx, c.Outbox(), id, want)
		if err != nil {
			return nil, err
		}
		ref = saved.Ref
	case id != "":
		return nil, fault.Usage.With("%s must be a space's ref: its text, @FILE such as @DATA/owner.ref, or the id of one that the home folder knows", from)
	}
	return c.Space(ctx, ref)
}

// rememberedOwner returns the space ref last used, or another one of the same space if that lacks the right; without a
// remembered one the best match, if all are of one space.
func (h *homeFlags) rememberedOwner(ctx context.Context, c *client.Client, want capability.Rights) (*client.Space, error) {
	name, err := h.ownerFile()
	if err != nil {
		return nil, err
	}
	space := ""
	last, _ := os.ReadFile(name) // missing: none was remembered
	if saved, err := c.Outbox().Ref(ctx, strings.TrimSpace(string(last))); err == nil && saved.Role == outbox.SpaceOwner {
		if saved.Rights == 0 || saved.Rights.Has(want) {
			return c.Space(ctx, saved.Ref) // or the ref that replaced it
		}
		space = saved.Target()
	}
	saved, err := c.Outbox().RefFor(ctx, space, want)
	switch fault.CodeOf(err) {
	case fault.None:
		return c.Space(ctx, saved.Ref)
	case fault.Ambiguous:
		return nil, fault.Ambiguous.With("the home folder knows owner's refs of more than one space: say which with --owner @FILE")
	case fault.NotFound:
		return nil, fault.Usage.With("no owner's ref is known: give it once with --owner @FILE or MOORING_OWNER; mooring serve prints where it wrote it")
	}
	return nil, fmt.Errorf("look up the owner's ref: %w", err)
}

// rememberOwner records which owner's ref was used last: its id, never its secret. "" is none.
func (h *homeFlags) rememberOwner(id string) error {
	if id == "" {
		return nil
	}
	name, err := h.ownerFile()
	if err != nil {
		return err
	}
	if last, err := os.ReadFile(name); err == nil && strings.TrimSpace(string(last)) == id {
		return nil
	}
	if err := os.WriteFile(name, []byte(id+"\n"), 0o600); err != nil {
		return fmt.Errorf("remember the owner: %w", err)
	}
	return nil
}

func (h *homeFlags) ownerFile() (string, error) {
	dir, err := h.makeHomeDir()
	return filepath.Join(dir, "owner"), err
}
