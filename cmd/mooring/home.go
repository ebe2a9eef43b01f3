// The home folder: the outbox and the refs saved in it.

package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/pgclient"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/outbox"
)

// homeFlags are the flags of every command that uses an outbox.
type homeFlags struct {
	env       *cli.Env
	home      string
	outboxURL string
	plaintext bool
	tlsCA     string
	ownerUsed string // id of the owner's ref in use, remembered when the command has succeeded

	refArgs map[string]refArg // by argument, as parsed
	target  string            // the session or space last found for one
}

// withHome adds the flags to a command and its subcommands.
func withHome(env *cli.Env, cmd *cobra.Command) *homeFlags {
	h := &homeFlags{env: env}
	f := cmd.PersistentFlags()
	f.StringVar(&h.home, "home", "", "folder of the outbox and the refs (MOORING_HOME; default: mooring in the user's config folder)")
	f.StringVar(&h.outboxURL, "outbox-url", "", "keep the outbox in this Postgres database instead (put a URL with a password in MOORING_OUTBOX_URL)")
	f.BoolVar(&h.plaintext, "allow-plaintext", false, "allow sending secrets in clear to other machines")
	f.StringVar(&h.tlsCA, "tls-ca", "", "PEM file of certificates to trust for moorings:// refs, in addition to the system's (MOORING_TLS_CA)")
	return h
}

// tlsConfig returns the TLS configuration that also trusts --tls-ca; nil without the flag.
func (h *homeFlags) tlsConfig(ctx context.Context) (*tls.Config, error) {
	name := h.tlsCA
	if name == "" {
		name = os.Getenv("MOORING_TLS_CA")
	}
	if name == "" {
		return nil, nil
	}
	pem, err := cli.ReadFileLimited(ctx, name, cli.MaxCertificateFile)
	if errors.Is(err, cli.ErrStopped) {
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
		RetryTimeout: 2 * time.Second, Agent: "mooring/" + cli.Version(),
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

// withOfflineClient runs a body that only reads the outbox: nothing is sent meanwhile.
func (h *homeFlags) withOfflineClient(ctx context.Context, body func(ctx context.Context, c *client.Client) error) error {
	c, err := h.open(ctx, true)
	if err != nil {
		return err
	}
	return errors.Join(body(ctx, c), c.Close())
}
