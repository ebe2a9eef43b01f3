// mooring serve: runs the server, on embedded SQLite or on Postgres.

package servercmd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/gctune"
	"github.com/mooring-rpc/mooring/internal/logdedup"
	"github.com/mooring-rpc/mooring/internal/mcpserver"
	"github.com/mooring-rpc/mooring/server"
)

// envDatabaseURL is the environment variable used without --database-url. A URL with a password
// belongs there, not in a process list.
const envDatabaseURL = "MOORING_DATABASE_URL"

// databaseURLFlag is how messages name either.
const databaseURLFlag = "--database-url (or " + envDatabaseURL + ")"

// serveOptions are the flags of serve.
type serveOptions struct {
	server     server.Config
	listen     string
	streams    []string
	metrics    string
	tlsCert    string
	tlsKey     string
	verbose    bool
	logFormat  string
	logLevel   string
	limitsFile limitsFile
	share      shareOptions
}

// Serve returns the command mooring serve.
func Serve(env *cli.Env) *cobra.Command {
	o := serveOptions{server: server.DefaultConfig()}
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Run the server",
		Long: "Run the server on embedded SQLite in the data folder, or on Postgres with\n" +
			"--database-url (or " + envDatabaseURL + "), which any number of servers may share.\n" +
			"The first start writes the owner's sturdy ref to the data folder's owner.ref.\n" +
			"SIGTERM, Ctrl-C and the end of its terminal drain it: running calls are finished, new ones refused.\n" +
			"Without a terminal, SIGHUP reloads the certificate and --limits, as the server does by itself within a minute.",
		Args: cli.ArgCount(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !cmd.Flags().Changed("database-url") {
				o.server.DatabaseURL = os.Getenv(envDatabaseURL)
			}
			if err := o.readLimits(cmd); err != nil {
				return err
			}
			o.share.loopbackGiven = cmd.Flags().Changed("share-loopback")
			return serve(cmd.Context(), env, o)
		},
	}
	f := cmd.Flags()
	f.StringVar(&o.listen, "listen", "127.0.0.1:"+capability.DefaultPort, "address to listen on, HOST:PORT; port 0 takes a free one")
	f.StringArrayVar(&o.streams, "capnp-listen", nil, "also serve plain Cap'n Proto's two-party byte stream: tcp://HOST:PORT or unix:PATH; repeatable")
	f.StringVar(&o.metrics, "metrics-listen", "", "serve Prometheus metrics at http://HOST:PORT/metrics (default: not at all)")
	f.StringVar(&o.server.Dir, "data", "", "data folder (default: this user's, "+defaultDataHint()+")")
	f.StringVar(&o.server.DatabaseURL, "database-url", "", "Postgres to use instead of SQLite, postgres://… (default: "+envDatabaseURL+", if that is not empty).\n"+
		"Process lists show this flag: put a URL with a password in the environment")
	f.IntVar(&o.server.DatabaseConnections, "database-connections", 0, "exact number of connections to Postgres, one of which listens; at least 3\n"+
		"(default: as needed, up to four for each processor and one, but at least nine)")
	f.StringVar(&o.tlsCert, "tls-cert", "", "PEM file of the TLS certificate chain")
	f.StringVar(&o.tlsKey, "tls-key", "", "PEM file of its key")
	f.StringVar(&o.server.Address, "advertise", "", "where clients reach this server, if not at --listen: mooring[s]://HOST[:PORT][,HOST…][/PREFIX]")
	f.StringSliceVar(&o.server.Origins, "allow-origin", nil, "browser origin to accept besides the server's own host, as host, host:port, *.host or https://host; repeatable")
	cli.DurationVar(f, &o.server.PollInterval, "poll-interval", o.server.PollInterval, "how often Postgres is polled for other servers' commits; 0 relies on notifications only")
	cli.DurationVar(f, &o.server.DrainTimeout, "drain-timeout", o.server.DrainTimeout, "how long stopping may take; running calls have three quarters of it")
	cli.DurationVar(f, &o.server.DrainDelay, "drain-delay", o.server.DrainDelay, "how long a server that is to stop keeps serving before it drains, while /readyz answers 503, so that a balancer notices;\n"+
		"a second signal ends the delay")
	cli.DurationVar(f, &o.server.TurnLease, "turn-lease", o.server.TurnLease, "how long a streaming turn may be silent before it counts as interrupted")
	cli.DurationVar(f, &o.server.KeepLog, "keep-log", o.server.KeepLog, "how long events stay in the logs, such as 720h; older ones are lost to tail, to snapshots and forks at an earlier cursor,\n"+
		"and to subscribers away for longer (cursor_expired); the sessions' state stays complete. 0 keeps everything")
	cli.DurationVar(f, &o.server.KeepDeleted, "deleted-retention", o.server.KeepDeleted, "how long the events, streams and refs of deleted sessions stay (payloads are removed at once); a small row, the owner's ref\n"+
		"and the audit stay, so that later requests get session_deleted. 0 keeps everything")
	cli.DurationVar(f, &o.server.PageLife, "page-life", o.server.PageLife, "how long a browser keeps the ref that a link opened; afterwards it needs the whole link again")
	f.BoolVar(&o.server.Webhooks, "webhooks", false, "let the owners of sessions register webhooks, which this server then calls (session webhook add)")
	f.BoolVar(&o.server.WebhooksAllowPrivate, "webhooks-allow-private", false, "let these be at private addresses, and take http: whoever owns a session can then have the server POST to your network")
	f.BoolVar(&o.server.AISDK, "ai-sdk", false, "serve sessions as chats at /api/ai/chat, for useChat and DefaultChatTransport of the AI SDK (docs/ai-sdk.md)")
	f.BoolVar(&o.server.A2A, "a2a", false, "serve the agents of sessions by A2A (Agent2Agent) at /a2a, with their card at /.well-known/agent-card.json (docs/a2a.md)")
	f.BoolVar(&o.server.MCP, "mcp", false, "serve the Model Context Protocol at /mcp, with which models list, read and search sessions; the ref is in each request's Authorization header")
	f.StringSliceVar(&o.server.MCPAllow, "mcp-allow", nil, "with --mcp, what models may do besides, where their ref allows it: append, ask; with commas")
	f.BoolVar(&o.server.AllowUnsafeDatabase, "allow-unsafe-database", false, "accept a Postgres whose settings can lose commits (fsync or synchronous_commit off)")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "log every connection's end: the same as --log-level debug")
	f.StringVar(&o.logFormat, "log-format", "", "how the log is written to standard error: json, an object a line, or text (default: text, and json with --json)")
	f.StringVar(&o.logLevel, "log-level", "", "the least that is logged: debug, info, warn or error (default: info)")
	f.StringVar(&o.limitsFile.path, "limits", "", "file of limits, one a line: NAME = VALUE, with the names of the flags below; # begins a comment. Flags override it.\n"+
		"It is reloaded while the server runs; a faulty file then changes nothing, and the log says why")
	cli.CompleteList(cmd, "mcp-allow", mcpserver.AllowAppend, mcpserver.AllowAsk)
	o.share.addFlags(f)
	addLimits(cmd, &o.server.Limits)
	return cmd
}

// readLimits reads the limits of their file, if there is one, and of the flags.
func (o *serveOptions) readLimits(cmd *cobra.Command) error {
	if o.limitsFile.path == "" {
		return checkLimits(cmd.Flags(), o.server.Limits)
	}
	o.limitsFile.flags = cmd.Flags()
	if _, _, err := o.limitsFile.load(cmd.Context()); err != nil {
		return err
	}
	o.server.Limits = o.limitsFile.current.limits
	return nil
}

// serve runs the server until ctx ends.
func serve(ctx context.Context, env *cli.Env, o serveOptions) (err error) {
	address, err := o.check(ctx)
	if err != nil {
		return err
	}
	hangups := env.Signals.Hangups()
	thinned := o.logger(env)
	defer thinned.Close()
	log := slog.New(thinned)
	cert := certificate{chainFile: o.tlsCert, keyFile: o.tlsKey, log: log}
	if o.tlsCert != "" {
		if err := cert.load(ctx); err != nil {
			return err
		}
	}
	ln, err := cli.ListenTCP(ctx, "--listen", o.listen)
	if err != nil {
		return err
	}
	defer ln.Close()
	listening := ln.Addr()
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
		if metrics, err = cli.ListenTCP(ctx, "--metrics-listen", o.metrics); err != nil {
			return err
		}
		defer metrics.Close()
	}
	cfg, proxied := o.config(log, address, listening, streams)
	srv, err := server.New(ctx, cfg)
	if errors.Is(err, fault.Canceled) && ctx.Err() != nil { // nothing has started yet
		log.Info("stopped while waiting for the database")
		return nil
	}
	if err != nil {
		return o.nameFlags(err)
	}
	defer func() { err = errors.Join(err, srv.Close()) }()
	if err := o.announce(env, log, listening.String(), streams, metrics, srv); err != nil {
		return err
	}
	if proxied {
		log.Info("this server seems to be behind a proxy, so opencode on this machine needs a key or a create-only ref; --share-loopback overrides this")
	}
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
			if err := srv.SetLimits(set.limits); err != nil { // they were checked
				log.Error("the limits were not applied", "error", err)
			}
		}
		again = append(again, limits.reload)
	}
	if len(again) > 0 {
		beside.Go(func() { reloadLoop(running, hangups, again...) })
	}
	if metrics != nil {
		beside.Go(func() {
			if err := serveMetrics(running, metrics, srv.Metrics()); err != nil {
				log.Error("metrics are no longer served", "error", err)
			}
		})
	}
	return srv.Serve(ctx, ln, streams...)
}

// check checks the flags and parses --advertise.
func (o *serveOptions) check(ctx context.Context) (address capability.Ref, err error) {
	switch c := &o.server; {
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return address, fault.Usage.With("--tls-cert and --tls-key go together")
	case c.PollInterval < 0 || c.DrainTimeout <= 0 || c.TurnLease <= 0 || c.PageLife <= 0:
		return address, fault.Usage.With("--poll-interval, --drain-timeout, --turn-lease and --page-life are durations such as 1s")
	case c.DrainDelay < 0:
		return address, fault.Usage.With("--drain-delay is a duration such as 10s, or 0 to drain at once")
	case c.KeepLog < 0:
		return address, fault.Usage.With("--keep-log is a duration such as 720h, or 0 to keep everything")
	case c.KeepDeleted < 0:
		return address, fault.Usage.With("--deleted-retention is a duration such as 90d, or 0 to keep everything")
	}
	if err := o.checkLog(); err != nil {
		return address, err
	}
	if o.server.ShareKey, err = o.share.readKey(ctx); err != nil {
		return address, err
	}
	if o.server.Dir == "" {
		if o.server.Dir, err = dataFolder(); err != nil {
			return address, err
		}
	}
	if err := o.server.Validate(); err != nil {
		return address, o.nameFlags(err)
	}
	if err := cli.CheckListen("--listen", o.listen); err != nil {
		return address, err
	}
	for _, s := range o.streams {
		if _, _, err := streamAddress(s); err != nil {
			return address, err
		}
	}
	if o.metrics != "" {
		if err := cli.CheckListen("--metrics-listen", o.metrics); err != nil {
			return address, err
		}
	}
	if o.server.Address == "" {
		return address, nil
	}
	return parseAdvertise(o.server.Address)
}

// nameFlags returns an error of package server with the flags' names instead of its fields'.
func (o *serveOptions) nameFlags(err error) error {
	return replaceMessage(err, strings.NewReplacer("Config.DatabaseConnections", "--database-connections", "Config.DatabaseURL", databaseURLFlag,
		"Config.Origins", "--allow-origin", "Config.WebhooksAllowPrivate", "--webhooks-allow-private", "Config.Webhooks", "--webhooks", "Config.MCPAllow", "--mcp-allow", "Config.MCP", "--mcp", "Config.Address", "--advertise", "Config.ShareKey", o.share.keySource()))
}

// replaceMessage returns a fault with other words in its message; other errors, and what wraps a
// fault, stay as they are.
func replaceMessage(err error, words *strings.Replacer) error {
	f, is := err.(*fault.Error)
	if !is {
		return err
	}
	said := *f
	said.Message = words.Replace(f.Message)
	return &said
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

// config returns the configuration of a server at these listeners, for which 0 means the default.
// If proxied is true, opencode on this machine may not share without a key because of a proxy.
func (o *serveOptions) config(log *slog.Logger, address capability.Ref, listening net.Addr, streams []net.Listener) (cfg server.Config, proxied bool) {
	cfg = o.server
	cfg.Log, cfg.Name = log, "mooring/"+cli.Version()
	cfg.TLS, cfg.Hosts, cfg.Addrs = o.tlsCert != "", listenNames(o.listen, listening), []net.Addr{listening}
	for _, ln := range streams {
		cfg.Addrs = append(cfg.Addrs, ln.Addr())
	}
	if cfg.PollInterval == 0 {
		cfg.PollInterval = -1
	}
	if cfg.KeepDeleted == 0 {
		cfg.KeepDeleted = -1
	}
	proxied = o.share.loopback && !o.share.loopbackGiven && behindProxy(address, listening)
	cfg.ShareLoopback = o.share.loopback && !proxied
	return cfg, proxied
}

// logRepeats bounds repetitions of one message in the log.
var logRepeats = logdedup.Config{Window: time.Minute, Burst: 10}

// logLevels are the values of --log-level.
var logLevels = map[string]slog.Level{"debug": slog.LevelDebug, "": slog.LevelInfo, "info": slog.LevelInfo, "warn": slog.LevelWarn, "error": slog.LevelError}

// checkLog checks the log's flags.
func (o *serveOptions) checkLog() error {
	switch _, known := logLevels[o.logLevel]; {
	case !known:
		return fault.Usage.With("--log-level %q is not debug, info, warn or error", o.logLevel)
	case o.verbose && o.logLevel != "" && o.logLevel != "debug":
		return fault.Usage.With("--verbose is --log-level debug: give one of them")
	case o.logFormat != "" && o.logFormat != "json" && o.logFormat != "text":
		return fault.Usage.With("--log-format %q is neither json nor text", o.logFormat)
	}
	return nil
}

// logger returns the handler of the server's log.
func (o *serveOptions) logger(env *cli.Env) *logdedup.Handler {
	opts := &slog.HandlerOptions{Level: logLevels[o.logLevel]}
	if o.verbose {
		opts.Level = slog.LevelDebug
	}
	if o.logFormat == "json" || o.logFormat == "" && env.JSON {
		return logdedup.New(slog.NewJSONHandler(env.Err, opts), logRepeats)
	}
	return logdedup.New(slog.NewTextHandler(env.Err, opts), logRepeats)
}

// announce prints the server's address, on one line, and where the owner's ref is stored; never
// the ref.
func (o *serveOptions) announce(env *cli.Env, log *slog.Logger, listening string, streams []net.Listener, metrics net.Listener, srv *server.Server) error {
	owner, address, kind := srv.Owner(), srv.Address(), "sqlite"
	if o.server.DatabaseURL != "" {
		kind = "postgres"
	}
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
		log.Warn("the ref in the data folder's owner.ref is dead: it was rotated or revoked. The new one is in the home folder that rotated it, "+
			"and mooring rotate "+owner.Space+" --to FILE writes another from there; mooring admin rotate-owner makes one on this machine", "file", owner.Path)
	}
	if env.JSON {
		return env.PrintJSON(map[string]any{"listening": listening, "address": address.Address(), "database": kind,
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
	_, err := fmt.Fprintln(env.Out, line)
	return err
}

// listensBeyondLoopback reports whether other machines can reach a listener.
func listensBeyondLoopback(listening string) bool {
	at, err := netip.ParseAddrPort(listening)
	return err == nil && !at.Addr().Unmap().IsLoopback()
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
