// The home folder of a command: its flags, where it is, and the client that is opened on it.

package home

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

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/pgclient"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/privatedir"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/outbox"
)

// Folder is the home folder that a command works with: its flags, and what the command line has led to so far.
type Folder struct {
	Env       *cli.Env
	home      string
	outboxURL string
	plaintext bool
	tlsCA     string
	ownerUsed string // id of the owner's ref in use, remembered when the command has succeeded

	refArgs map[string]Arg // by argument, as parsed
	target  string         // the session or space last found for one
}

// AddFlags adds the flags of the home folder to a command and its subcommands.
func AddFlags(env *cli.Env, cmd *cobra.Command) *Folder {
	h := &Folder{Env: env}
	f := cmd.PersistentFlags()
	f.StringVar(&h.home, "home", "", "folder of the outbox and the refs (MOORING_HOME; default: mooring in the user's config folder)")
	f.StringVar(&h.outboxURL, "outbox-url", "", "keep the outbox in this Postgres database instead (put a URL with a password in MOORING_OUTBOX_URL)")
	f.BoolVar(&h.plaintext, "allow-plaintext", false, "allow sending secrets in clear to other machines")
	f.StringVar(&h.tlsCA, "tls-ca", "", "PEM file of certificates to trust for moorings:// refs, in addition to the system's (MOORING_TLS_CA)")
	return h
}

// TLSConfig returns the TLS configuration that also trusts --tls-ca; nil without the flag.
func (h *Folder) TLSConfig(ctx context.Context) (*tls.Config, error) {
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

// CheckPlaintext refuses to send a ref's secret in clear to another machine, unless --allow-plaintext is given.
func (h *Folder) CheckPlaintext(ref capability.Ref) error { return ref.CheckPlaintext(h.plaintext) }

// Dir returns the home folder, which may not exist.
func (h *Folder) Dir() (string, error) {
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

// MakeDir returns the home folder, and creates it if missing.
func (h *Folder) MakeDir() (string, error) {
	dir, err := h.Dir()
	if err != nil {
		return "", err
	}
	return dir, privatedir.Make(dir, "the home folder")
}

// Open opens a client on the home's outbox, or that of --outbox-url. One that is offline sends nothing. The caller closes it.
func (h *Folder) Open(ctx context.Context, offline bool) (*client.Client, error) {
	dir, err := h.MakeDir()
	if err != nil {
		return nil, err
	}
	trust, err := h.TLSConfig(ctx)
	if err != nil {
		return nil, err
	}
	key, err := ReadSealKey(dir)
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

// WithClient runs a command's body with an open client. Queued ops are sent meanwhile, and for a short time afterwards; then the
// owner's ref in use is remembered. After an error of body it does neither.
func (h *Folder) WithClient(ctx context.Context, body func(ctx context.Context, c *client.Client) error) error {
	c, err := h.Open(ctx, false)
	if err != nil {
		return err
	}
	h.finishRotations(ctx, c)
	err = body(ctx, c)
	if err == nil {
		h.DrainBriefly(ctx, c)
		err = h.RememberOwner()
	} else {
		err = h.explainNeverCreated(ctx, c, err)
	}
	return errors.Join(err, c.Close())
}

// WithRef is WithClient for work on a REF: an invalid REF is reported before anything is opened.
func (h *Folder) WithRef(ctx context.Context, arg string, body func(ctx context.Context, c *client.Client) error) error {
	if err := h.Arg(ctx, arg).Err; err != nil {
		return err
	}
	return h.WithClient(ctx, body)
}

// WithSession is WithRef for work on the session of a REF.
func (h *Folder) WithSession(ctx context.Context, arg string, body func(ctx context.Context, s *client.Session) error) error {
	return h.WithRef(ctx, arg, func(ctx context.Context, c *client.Client) error {
		s, err := h.Session(ctx, c, arg)
		if err != nil {
			return err
		}
		return body(ctx, s)
	})
}

// finishRotations waits a moment for rotations that are begun and not answered: until they finish the home has a ref
// that may be dead.
func (h *Folder) finishRotations(ctx context.Context, c *client.Client) {
	wait, stop := WhileReachable(ctx, c, SendGrace)
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

// WithOfflineClient runs a body that only reads the outbox: nothing is sent meanwhile.
func (h *Folder) WithOfflineClient(ctx context.Context, body func(ctx context.Context, c *client.Client) error) error {
	c, err := h.Open(ctx, true)
	if err != nil {
		return err
	}
	return errors.Join(body(ctx, c), c.Close())
}
