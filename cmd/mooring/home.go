// The home folder: the outbox, the refs kept in it, and how a REF on a command
// line becomes one of them.

package main

import (
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
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/outbox"
)

// refHelp is said by every command that takes a REF.
const refHelp = "REF is a ref's text, @FILE that holds one, or the id of a session (ours, or an\n" +
	"unambiguous external one) or of a ref that the home folder knows."

// homeFlags are the flags of every command that works through an outbox.
type homeFlags struct {
	sh        *shared
	home      string
	outboxURL string
	plaintext bool
	tlsCA     string
	used      string // id of the owner's ref in use, to be remembered when the command has succeeded
}

// withHome adds the flags to a command and its subcommands.
func withHome(sh *shared, cmd *cobra.Command) *homeFlags {
	h := &homeFlags{sh: sh}
	f := cmd.PersistentFlags()
	f.StringVar(&h.home, "home", "", "folder of the outbox and the refs (MOORING_HOME; default: mooring in the user's config folder)")
	f.StringVar(&h.outboxURL, "outbox-url", "", "keep the outbox in this Postgres database instead (MOORING_OUTBOX_URL)")
	f.BoolVar(&h.plaintext, "allow-plaintext", false, "let secrets go in clear to hosts that are not this machine")
	f.StringVar(&h.tlsCA, "tls-ca", "", "PEM file of certificates to trust for moorings:// refs besides the system's (MOORING_TLS_CA)")
	return h
}

// trust is the TLS configuration that trusts --tls-ca too; nil without it.
func (h *homeFlags) trust() (*tls.Config, error) {
	name := h.tlsCA
	if name == "" {
		name = os.Getenv("MOORING_TLS_CA")
	}
	if name == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(name)
	if err != nil {
		return nil, fault.Usage.Because(err, "--tls-ca: %v", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool() // a system without any
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fault.Usage.With("--tls-ca: the file has no PEM certificate")
	}
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}, nil
}

// folder is the home folder, made if it is not there.
func (h *homeFlags) folder() (string, error) {
	dir := h.home
	if dir == "" {
		dir = os.Getenv("MOORING_HOME")
	}
	if dir == "" {
		base, err := os.UserConfigDir()
		if err != nil {
			return "", fault.Usage.Because(err, "there is no config folder: say --home DIR or set MOORING_HOME")
		}
		dir = filepath.Join(base, "mooring")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", fmt.Errorf("make the home folder: %w", err)
	}
	return dir, nil
}

// open opens the client on the home's outbox.
func (h *homeFlags) open(ctx context.Context, offline bool) (*client.Client, error) {
	dir, err := h.folder()
	if err != nil {
		return nil, err
	}
	trust, err := h.trust()
	if err != nil {
		return nil, err
	}
	key, err := readSealKey(dir)
	if err != nil {
		return nil, err
	}
	cfg := client.Config{
		Home: dir, SealKey: key, TLS: trust, OutboxURL: h.outboxURL, Offline: offline, AllowPlaintext: h.plaintext,
		Patience: 2 * time.Second, Agent: "mooring/" + version(),
		// Commands come and go, and one that was killed holds up the next for so long.
		OutboxConfig: outbox.Config{Lease: 3 * time.Second},
	}
	if cfg.OutboxURL == "" {
		cfg.OutboxURL = os.Getenv("MOORING_OUTBOX_URL")
	}
	if cfg.OutboxURL != "" {
		cfg.Home = ""
	}
	return client.Open(ctx, cfg)
}

// work runs a command's body on an open client. What waits in the outbox is
// being sent meanwhile, and has a last short moment afterwards.
func (h *homeFlags) work(ctx context.Context, body func(ctx context.Context, c *client.Client) error) error {
	c, err := h.open(ctx, false)
	if err != nil {
		return err
	}
	h.finishRotations(ctx, c)
	err = body(ctx, c)
	if err == nil {
		h.lastMoment(ctx, c)
		err = h.rememberOwner(h.used)
	}
	return errors.Join(err, c.Close())
}

// finishRotations waits a moment for rotations that were begun and not answered:
// until they are done the home knows a ref that may be dead.
func (h *homeFlags) finishRotations(ctx context.Context, c *client.Client) {
	wait, stop := whileReachable(ctx, c, sendMoment)
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

// lastMoment lets the sender finish what it can at once.
func (h *homeFlags) lastMoment(ctx context.Context, c *client.Client) {
	st, err := c.Status(ctx)
	if err != nil || st.Unfinished() == 0 || heldUp(ctx, c) != nil {
		return
	}
	for _, s := range st.Streams {
		if s.Stopped != fault.None {
			return // someone has to decide; status says what
		}
	}
	wait, stop := whileReachable(ctx, c, 2*time.Second)
	defer stop()
	_ = c.Drain(wait, nil) // what is left is sent by a later command
}

// graceUnreachable is how long a server may be unreachable before a command
// goes on without it.
const graceUnreachable = 400 * time.Millisecond

// whileReachable ends after limit (0: never), and when no server could be
// reached for a moment.
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
				case heldUp(wait, c) == nil:
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

// heldUp says why nothing can be sent at present, by this process or by the one
// that is the outbox's sender; nil if nothing is known to be in the way.
func heldUp(ctx context.Context, c *client.Client) error {
	if err := c.Trouble(); err != nil {
		return err
	}
	if err := c.Err(); err != nil {
		return err
	}
	st, err := c.Status(ctx)
	if err != nil || st.Sending || st.LeasedUntil.IsZero() || len(st.Streams) == 0 {
		return nil
	}
	for _, s := range st.Streams {
		if s.LastError == "" {
			return nil
		}
	}
	return errors.New(st.Streams[0].LastError)
}

// parseRefArg reads REF where it is a ref's text or @FILE; ok is false if it is
// neither. No error repeats the text.
func parseRefArg(arg string) (ref capability.Ref, ok bool, err error) {
	if name, isFile := strings.CutPrefix(arg, "@"); isFile {
		ref, err = capability.ReadRefFile(name)
		return ref, true, err
	}
	if !strings.Contains(arg, "://") {
		return ref, false, nil
	}
	ref, err = capability.ParseRef(arg)
	return ref, true, err
}

// session finds the session of a REF.
func (h *homeFlags) session(ctx context.Context, c *client.Client, arg string) (*client.Session, error) {
	ref, isText, err := parseRefArg(arg)
	if err != nil {
		return nil, err
	}
	if isText {
		return c.Session(ctx, ref)
	}
	if capability.Target(arg) != "" {
		saved, err := c.Outbox().Ref(ctx, arg)
		if err != nil {
			return nil, unknownHere(err, "the ref")
		}
		return c.Session(ctx, saved.Ref)
	}
	s, err := c.SessionByID(ctx, arg)
	if err != nil {
		return nil, unknownHere(err, "the session")
	}
	return s, nil
}

func unknownHere(err error, what string) error {
	if fault.CodeOf(err) == fault.NotFound {
		return fault.NotFound.With("the home folder knows no ref for %s: give the ref's text or @FILE, or another --home", what)
	}
	return err
}

// through says in a refusal for want of a right which of the home's refs was used,
// if the home chose it: where REF was a session's id.
func (h *homeFlags) through(ctx context.Context, c *client.Client, arg string, s *client.Session, want capability.Rights, err error) error {
	_, isText, _ := parseRefArg(arg)
	if !errors.Is(err, fault.MissingRight) || isText || capability.Target(arg) != "" {
		return err
	}
	saved, e := c.Outbox().RefFor(ctx, s.ID(), want)
	if e != nil {
		return err
	}
	return fmt.Errorf("%w (it went through ref %s, of those the home folder has for the session the one that fits best)", err, saved.ID)
}

// owner finds the space ref that a command uses, with the right that it takes. The
// one that is named is remembered when the command has succeeded.
func (h *homeFlags) owner(ctx context.Context, c *client.Client, flag string, want capability.Rights) (*client.Space, error) {
	arg, from := flag, "--owner"
	if arg == "" {
		arg, from = os.Getenv("MOORING_OWNER"), "MOORING_OWNER"
	}
	if arg == "" {
		return h.rememberedOwner(ctx, c, want)
	}
	ref, isText, err := parseRefArg(arg)
	switch {
	case err != nil:
		return nil, err
	case !isText && capability.IsSpace(capability.Target(arg)):
		saved, err := c.Outbox().Ref(ctx, arg)
		if err != nil {
			return nil, unknownHere(err, "the owner")
		}
		ref = saved.Ref
	case !isText:
		return nil, fault.BadRefText.With("%s must be a ref's text or @FILE, such as @DATA/owner.ref", from)
	}
	h.used = ref.ID
	return c.Space(ctx, ref)
}

// rememberedOwner is the space ref last used, or another one for the same space if
// that lacks the right; without one the one that fits best, if all are for one space.
func (h *homeFlags) rememberedOwner(ctx context.Context, c *client.Client, want capability.Rights) (*client.Space, error) {
	name, err := h.ownerFile()
	if err != nil {
		return nil, err
	}
	space := ""
	last, _ := os.ReadFile(name) // not there: none was remembered
	if saved, err := c.Outbox().Ref(ctx, strings.TrimSpace(string(last))); err == nil && saved.Role == outbox.SpaceOwner {
		if saved.Rights == 0 || saved.Rights.Has(want) {
			return c.Space(ctx, saved.Ref) // or what has taken its place since
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
		return nil, fault.Usage.With("whose sessions? Give the owner's ref once with --owner @FILE or MOORING_OWNER; mooring serve says where it wrote it")
	}
	return nil, fmt.Errorf("look up the owner's ref: %w", err)
}

// rememberOwner notes which owner's ref was used last: its id, never its secret.
// "" is none.
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
	dir, err := h.folder()
	return filepath.Join(dir, "owner"), err
}
