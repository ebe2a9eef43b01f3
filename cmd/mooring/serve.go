// mooring serve: runs the server, on embedded SQLite or on Postgres.

package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/gctune"
	"github.com/mooring-rpc/mooring/internal/hostguard"
	"github.com/mooring-rpc/mooring/internal/logdedup"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/store"
	"github.com/mooring-rpc/mooring/internal/store/postgres"
	"github.com/mooring-rpc/mooring/internal/store/sqlite"
)

// envDatabaseURL is the environment variable used without --database-url. A URL with a password
// belongs there, not in a process list.
const envDatabaseURL = "MOORING_DATABASE_URL"

// databaseURLFlag is how messages name either.
const databaseURLFlag = "--database-url (or " + envDatabaseURL + ")"

// serveOptions are the flags of serve.
type serveOptions struct {
	listen      string
	streams     []string
	metrics     string
	data        string
	databaseURL string
	connections int
	tlsCert     string
	tlsKey      string
	advertise   string
	origins     []string
	poll        time.Duration
	drain       time.Duration
	drainDelay  time.Duration
	lease       time.Duration
	keepLog     time.Duration
	keepDeleted time.Duration
	pageLife    time.Duration
	unsafe      bool
	verbose     bool
	logFormat   string
	logLevel    string

	limitsFile limitsFile
	limits     objects.Config // only the limits of addLimits
	share      shareOptions
}

func serveCmd(sh *cliEnv) *cobra.Command {
	o := serveOptions{limits: objects.DefaultConfig(), share: newShareOptions()}
	defaults := objects.DefaultConfig()
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Runs the server on embedded SQLite in the data folder, or on Postgres with\n" +
			"--database-url (or " + envDatabaseURL + "), which any number of servers may share.\n" +
			"The first start writes the owner's sturdy ref to the data folder's " + objects.OwnerFile + ".\n" +
			"SIGTERM, Ctrl-C and the end of its terminal drain: what runs is finished, new calls are refused.\n" +
			"Where there is no terminal, SIGHUP has it read its certificate and its --limits again, which it also does by itself within a minute.",
		Args: argCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("database-url") {
				o.databaseURL = os.Getenv(envDatabaseURL)
			}
			if err := o.readLimits(cmd); err != nil {
				return err
			}
			o.share.loopbackGiven = cmd.Flags().Changed("share-loopback")
			return serve(cmd.Context(), sh, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:"+capability.DefaultPort, "address to listen on, HOST:PORT; port 0 takes a free one")
	f.StringArrayVar(&o.streams, "capnp-listen", nil, "also take the two-party byte stream of plain Cap'n Proto: tcp://HOST:PORT or unix:PATH; repeatable")
	f.StringVar(&o.metrics, "metrics-listen", "", "serve Prometheus metrics at http://HOST:PORT/metrics (default: not at all)")
	f.StringVar(&o.data, "data", "", "data folder (default: this user's, "+defaultDataHint()+")")
	f.StringVar(&o.databaseURL, "database-url", "", "Postgres to use instead of SQLite, postgres://… (default: "+envDatabaseURL+", if that is not empty).\n"+
		"What stands here can be seen in process lists: a URL with a password belongs in the environment")
	f.IntVar(&o.connections, "database-connections", 0, "connections to keep with Postgres, never more and never fewer, one of which listens: 3 at least\n"+
		"(default: as they are needed, four for each processor and one, but nine at least)")
	f.StringVar(&o.tlsCert, "tls-cert", "", "PEM file of the TLS certificate chain")
	f.StringVar(&o.tlsKey, "tls-key", "", "PEM file of its key")
	f.StringVar(&o.advertise, "advertise", "", "where clients reach this server, if not at --listen: mooring[s]://HOST[:PORT][,HOST…][/PREFIX]")
	f.StringSliceVar(&o.origins, "allow-origin", nil, "browser origin let in besides the server's own host, as host, host:port, *.host or https://host; repeatable")
	durationVar(f, &o.poll, "poll-interval", defaults.PollInterval, "how often Postgres is looked at for other servers' commits; 0 relies on notifications alone")
	durationVar(f, &o.drain, "drain-timeout", defaults.DrainTimeout, "how long stopping may take; what runs then has three quarters of it")
	durationVar(f, &o.drainDelay, "drain-delay", 0, "how long a server that is to stop goes on serving before it drains, with /readyz saying 503: time for a balancer to see that;\n"+
		"a second signal ends it at once")
	durationVar(f, &o.lease, "turn-lease", defaults.Session.Lease, "how long a streaming turn may be silent before it counts as interrupted")
	durationVar(f, &o.keepLog, "keep-log", 0, "for how long events stay in the logs, such as 720h; what is older is lost to tail, to snapshots and forks at an earlier cursor,\n"+
		"and to subscribers away for longer (cursor_expired); the sessions' state stays whole. 0 keeps everything")
	durationVar(f, &o.keepDeleted, "deleted-retention", 90*24*time.Hour, "for how long the events, streams and refs of deleted sessions stay, whose payloads are gone at once; a small row, the\n"+
		"owner's ref and the audit stay, so whatever comes again is answered session_deleted. 0 keeps everything")
	durationVar(f, &o.pageLife, "page-life", 12*time.Hour, "how long a page that was opened by a ref's link stays open in a browser, which then needs the whole link again")
	f.BoolVar(&o.unsafe, "allow-unsafe-database", false, "accept a Postgres that is set to lose commits (fsync or synchronous_commit off)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log every connection's end: the same as --log-level debug")
	f.StringVar(&o.logFormat, "log-format", "", "how the log is written to standard error: json, an object a line, or text (default: text, and json with --json)")
	f.StringVar(&o.logLevel, "log-level", "", "the least that is logged: debug, info, warn or error (default: info)")
	f.StringVar(&o.limitsFile.path, "limits", "", "file of limits, a line each: NAME = VALUE, named as the flags below, # begins a comment. Flags that are given beat it.\n"+
		"It is read again while the server runs, and what is wrong with it then changes nothing: the log says why")
	o.share.addFlags(f)
	addLimits(cmd, &o.limits, &o.share.limits)
	return cmd
}

// readLimits reads the limits of their file, if there is one, and of the flags.
func (o *serveOptions) readLimits(cmd *cobra.Command) error {
	if o.limitsFile.path == "" {
		return checkLimits(cmd.Flags(), &o.limits)
	}
	o.limitsFile.flags = cmd.Flags()
	if _, _, err := o.limitsFile.load(cmd.Context()); err != nil {
		return err
	}
	o.limits, o.share.limits = o.limitsFile.current.server, o.limitsFile.current.share
	return nil
}

// serve runs the server until ctx ends.
func serve(ctx context.Context, sh *cliEnv, o serveOptions) (err error) {
	address, err := o.check(ctx)
	if err != nil {
		return err
	}
	if o.data == "" {
		if o.data, err = dataFolder(); err != nil {
			return err
		}
	}
	hangups := sh.signals.hangups()
	thinned := o.logger(sh)
	defer thinned.Close()
	log := slog.New(thinned)
	cert := certificate{chainFile: o.tlsCert, keyFile: o.tlsKey, log: log}
	if o.tlsCert != "" {
		if err := cert.load(ctx); err != nil {
			return err
		}
	}
	ln, err := listenTCP(ctx, "--listen", o.listen)
	if err != nil {
		return err
	}
	defer ln.Close()
	listening := ln.Addr().String()
	if address.Hosts == nil {
		address.Hosts = []string{reachableAt(ln.Addr())}
		address.TLS = o.tlsCert != ""
	}
	if o.tlsCert != "" {
		ln = tls.NewListener(ln, cert.config())
	}
	streams, err := listenStreams(ctx, log, o.streams)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range streams {
			s.Close()
		}
	}()
	var metrics net.Listener
	if o.metrics != "" {
		if metrics, err = listenTCP(ctx, "--metrics-listen", o.metrics); err != nil {
			return err
		}
		defer metrics.Close()
	}
	st, kind, err := o.open(ctx, log)
	if errors.Is(err, fault.Canceled) && ctx.Err() != nil { // nothing has started yet
		log.Info("stopped while the database was waited for")
		return nil
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	// With SQLite this is the only server, so its owner's ref should lead to its address.
	owner, err := objects.Bootstrap(ctx, st, o.data, address, kind == "sqlite")
	if err != nil {
		return err
	}
	if err := o.announce(sh, log, listening, streams, metrics, kind, address, owner); err != nil {
		return err
	}
	cfg := o.config(st, log, kind, address)
	cfg.Audiences = audiences(address.Hosts, o.listen, ln, streams)
	cfg.Hosts = ownHosts(cfg.Audiences)
	srv := objects.New(cfg)
	sharing := o.mountShare(srv, st, log, address, ln)
	o.mountWeb(srv, log, address, st, sharing)
	mountAPI(srv, cfg, log, address)
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	var beside sync.WaitGroup
	defer beside.Wait()
	defer stop()
	beside.Go(func() { gctune.Run(running) })
	var again []func(context.Context, bool)
	if o.tlsCert != "" {
		again = append(again, cert.reload)
	}
	if limits := &o.limitsFile; limits.path != "" {
		limits.log, limits.apply = log, func(set limitSet) {
			srv.SetLimits(set.server)
			sharing.SetLimits(set.share)
		}
		again = append(again, limits.reload)
	}
	if len(again) > 0 {
		beside.Go(func() { reloadLoop(running, hangups, again...) })
	}
	if metrics != nil {
		beside.Go(func() {
			if err := serveMetrics(running, metrics, hostguard.Hosts{Names: cfg.Hosts}.Guard(srv.Metrics())); err != nil {
				log.Error("metrics are not served any more", "error", err)
			}
		})
	}
	return srv.Run(ctx, ln, streams...)
}

// check checks the flags and parses --advertise.
func (o *serveOptions) check(ctx context.Context) (address capability.Ref, err error) {
	switch {
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return address, fault.Usage.With("--tls-cert and --tls-key go together")
	case o.poll < 0 || o.drain <= 0 || o.lease <= 0 || o.pageLife <= 0:
		return address, fault.Usage.With("--poll-interval, --drain-timeout, --turn-lease and --page-life are durations such as 1s")
	case o.connections != 0 && (o.connections < 3 || o.connections > maxConnections):
		return address, fault.Usage.With("--database-connections is a number from 3 to %d", maxConnections)
	case o.connections != 0 && o.databaseURL == "":
		return address, fault.Usage.With("--database-connections is for a Postgres: name it with %s", databaseURLFlag)
	case o.drainDelay < 0:
		return address, fault.Usage.With("--drain-delay is a duration such as 10s, or 0 to drain at once")
	case o.keepLog < 0:
		return address, fault.Usage.With("--keep-log is a duration such as 720h, or 0 to keep everything")
	case o.keepDeleted < 0:
		return address, fault.Usage.With("--deleted-retention is a duration such as 90d, or 0 to keep everything")
	}
	if err := o.checkLog(); err != nil {
		return address, err
	}
	for _, origin := range o.origins {
		if !isOrigin(origin) {
			return address, fault.Usage.With("--allow-origin %q is neither HOST[:PORT] nor SCHEME://HOST[:PORT], with * for any part of the host", sanitizeLine(origin))
		}
	}
	if err := checkDatabaseURL(databaseURLFlag, o.databaseURL); err != nil {
		return address, err
	}
	if err := o.share.readKey(ctx); err != nil {
		return address, err
	}
	if err := checkListen("--listen", o.listen); err != nil {
		return address, err
	}
	for _, s := range o.streams {
		if _, _, err := streamAddress(s); err != nil {
			return address, err
		}
	}
	if o.metrics != "" {
		if err := checkListen("--metrics-listen", o.metrics); err != nil {
			return address, err
		}
	}
	if o.advertise == "" {
		return address, nil
	}
	return parseAdvertise(o.advertise)
}

// parseAdvertise parses --advertise. An https:// address has the port of a TLS proxy; an http://
// one would mean port 80, at which hardly any server listens.
func parseAdvertise(text string) (capability.Ref, error) {
	for _, scheme := range []string{"http", "ws"} {
		if rest, is := strings.CutPrefix(text, scheme+"://"); is {
			return capability.Ref{}, fault.Usage.With("--advertise begins with %s://, which leaves open whether port 80 or %s is meant: give mooring://%s with the port",
				scheme, capability.DefaultPort, fault.Clip(rest))
		}
	}
	address, err := capability.ParseAddress(text)
	if err != nil {
		return address, fault.Usage.Because(err, "--advertise: %v", err)
	}
	return address, nil
}

// isOrigin reports whether a pattern can match a page's origin.
func isOrigin(pattern string) bool {
	host := pattern
	if scheme, rest, ok := strings.Cut(pattern, "://"); ok {
		if host = rest; scheme == "" || strings.Trim(strings.ToLower(scheme), "abcdefghijklmnopqrstuvwxyz0123456789+-.*") != "" {
			return false
		}
	}
	_, err := path.Match(host, "")
	return err == nil && host != "" && !strings.ContainsFunc(host, func(r rune) bool {
		return r <= ' ' || r == '/' || r == '#' || r == '@' || r == 0x7f
	})
}

// maxConnections is the largest value of --database-connections.
const maxConnections = 10_000

// open opens the database, and creates and migrates it if needed.
func (o *serveOptions) open(ctx context.Context, log *slog.Logger) (st *store.Store, kind string, err error) {
	if o.databaseURL == "" {
		st, err = sqlite.Open(ctx, sqlite.Config{Dir: o.data})
		return st, "sqlite", err
	}
	if err := os.MkdirAll(o.data, 0o700); err != nil {
		return nil, "", fmt.Errorf("data folder: %w", err)
	}
	cfg := postgres.Config{URL: o.databaseURL, AllowUnsafe: o.unsafe, Log: log, Wait: true}
	if o.connections > 0 {
		cfg.MaxConns, cfg.Reserve = o.connections-1, true // the store uses one more, which listens
	}
	st, err = postgres.Open(ctx, cfg)
	return st, "postgres", databaseError(databaseURLFlag, o.databaseURL, err)
}

func (o *serveOptions) config(st *store.Store, log *slog.Logger, kind string, address capability.Ref) objects.Config {
	cfg := o.limits
	cfg.Store, cfg.Log, cfg.Name = st, log, "mooring/"+version()
	cfg.Prefix, cfg.OriginPatterns = address.Prefix, o.origins
	cfg.PollInterval, cfg.DrainTimeout, cfg.DrainDelay, cfg.Session.Lease = o.poll, o.drain, o.drainDelay, o.lease
	cfg.KeepLog, cfg.KeepDeleted = o.keepLog, o.keepDeleted
	if kind == "sqlite" {
		cfg.SoleServer, cfg.PollInterval, cfg.Transactions = true, 0, 1
	}
	return cfg
}

// logRepeats bounds repetitions of one message in the log.
var logRepeats = logdedup.Config{Window: time.Minute, Burst: 10}

// logLevels are the values of --log-level.
var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "": slog.LevelInfo, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// checkLog checks the log's flags.
func (o *serveOptions) checkLog() error {
	switch _, known := logLevels[o.logLevel]; {
	case !known:
		return fault.Usage.With("--log-level %q is none of debug, info, warn and error", o.logLevel)
	case o.verbose && o.logLevel != "" && o.logLevel != "debug":
		return fault.Usage.With("--verbose is --log-level debug: give one of them")
	case o.logFormat != "" && o.logFormat != "json" && o.logFormat != "text":
		return fault.Usage.With("--log-format %q is neither json nor text", o.logFormat)
	}
	return nil
}

// logger returns the handler of the server's log.
func (o *serveOptions) logger(sh *cliEnv) *logdedup.Handler {
	opts := &slog.HandlerOptions{Level: logLevels[o.logLevel]}
	if o.verbose {
		opts.Level = slog.LevelDebug
	}
	if o.logFormat == "json" || o.logFormat == "" && sh.json {
		return logdedup.New(slog.NewJSONHandler(sh.err, opts), logRepeats)
	}
	return logdedup.New(slog.NewTextHandler(sh.err, opts), logRepeats)
}

// announce prints the server's address, on one line, and where the owner's ref is stored; never
// the ref.
func (o *serveOptions) announce(sh *cliEnv, log *slog.Logger, listening string, streams []net.Listener, metrics net.Listener,
	kind string, address capability.Ref, owner *objects.Owner) error {
	if owner.Foreign {
		log.Warn("the owner's ref in the data folder is for another database", "file", owner.Path)
		owner.Path = ""
	}
	if o.tlsCert == "" && !address.TLS && listensBeyondLoopback(listening) {
		log.Warn("without TLS, other machines reach this server in clear text, and so do the secrets they send: "+
			"give --tls-cert and --tls-key, or listen on 127.0.0.1", "listening", listening)
	}
	if host := address.ClearTextHost(); host != "" {
		log.Warn("refs name a host without TLS: clients will refuse to send secrets there", "host", host)
	}
	names := []string{}
	for _, ln := range streams {
		names = append(names, streamName(ln))
	}
	at := ""
	if metrics != nil {
		at = "http://" + metrics.Addr().String() + "/metrics"
	}
	if owner.Dead {
		log.Warn("the ref in the data folder's owner.ref is dead: it was rotated or revoked. Who rotated it has the new one in a home folder, "+
			"and mooring rotate "+owner.Space+" --to FILE writes another from there; mooring admin rotate-owner makes one on this machine", "file", owner.Path)
	}
	if sh.json {
		return sh.printJSON(map[string]any{"listening": listening, "address": address.Address(), "database": kind,
			"space": owner.Space, "owner_ref": owner.Path, "dead": owner.Dead, "created": owner.Created, "capnp": names, "metrics": at})
	}
	line := fmt.Sprintf("listening on %s as %s, database %s", listening, address.Address(), kind)
	switch {
	case owner.Path == "":
		line += ", owner's ref is with the server that started first"
	case owner.Created:
		line += ", owner's ref written to " + owner.Path
	case owner.Dead:
		line += ", owner's ref in " + owner.Path + " is dead"
	default:
		line += ", owner's ref in " + owner.Path
	}
	for _, name := range names {
		line += "\nlistening on " + name + ", byte stream"
	}
	if at != "" {
		line += "\nmetrics at " + at
	}
	_, err := fmt.Fprintln(sh.out, line)
	return err
}

// listensBeyondLoopback reports whether other machines can reach a listener.
func listensBeyondLoopback(listening string) bool {
	at, err := netip.ParseAddrPort(listening)
	return err == nil && !at.Addr().Unmap().IsLoopback()
}

// reachableAt returns a HOST:PORT at which this machine reaches a listener.
func reachableAt(addr net.Addr) string {
	ap, err := netip.ParseAddrPort(addr.String())
	if err != nil {
		return addr.String()
	}
	ip := ap.Addr().Unmap()
	if ip.IsUnspecified() {
		ip = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	return netip.AddrPortFrom(ip, ap.Port()).String()
}

// dataFolder returns the folder for this user's data.
func dataFolder() (string, error) {
	if dir := os.Getenv("XDG_DATA_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "mooring"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fault.Usage.With("this user has no home folder: name one with --data")
	}
	switch runtime.GOOS {
	case "darwin":
		return filepath.Join(home, "Library", "Application Support", "mooring"), nil
	case "windows":
		if dir := os.Getenv("LocalAppData"); dir != "" {
			return filepath.Join(dir, "mooring"), nil
		}
	}
	return filepath.Join(home, ".local", "share", "mooring"), nil
}

func defaultDataHint() string {
	switch runtime.GOOS {
	case "darwin":
		return "~/Library/Application Support/mooring"
	case "windows":
		return `%LocalAppData%\mooring`
	}
	return "~/.local/share/mooring"
}
