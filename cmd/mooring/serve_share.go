// mooring serve: opencode's share API.

package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/internal/share"
)

// envShareKey is the environment variable of the share key, used without --share-key-file.
const envShareKey = "MOORING_SHARE_KEY"

// minShareKey is the minimum length of a key, in bytes.
const minShareKey = 16

// shareOptions are the flags of opencode's share API.
type shareOptions struct {
	keyFile  string
	key      string // set by readKey, "" for none
	loopback bool

	loopbackGiven bool         // given by the user, not the default
	limits        share.Config // only the limits of addLimits
}

func newShareOptions() shareOptions { return shareOptions{limits: share.DefaultConfig()} }

func (o *shareOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.keyFile, "share-key-file", "", "file with the key that lets opencode elsewhere share here (x-opencode-share-key), and lists all shares;\n"+
		"its first line, at least 16 characters (default: "+envShareKey+"; without either there is none)")
	f.BoolVar(&o.loopback, "share-loopback", true, "let opencode on this machine share without a key. A proxy on this machine makes everybody a caller from it,\n"+
		"so this is off where --listen is this machine alone and --advertise is not, unless said; requests that have\n"+
		"a Forwarded, X-Forwarded-For or Via header never count as this machine's")
}

// maxKeyFile bounds a file with a key, in bytes.
const maxKeyFile = 64 << 10

// readKey reads the share key.
func (o *shareOptions) readKey(ctx context.Context) error {
	key, from := os.Getenv(envShareKey), envShareKey
	if o.keyFile != "" {
		data, err := readFileLimited(ctx, o.keyFile, maxKeyFile)
		if err != nil {
			return fmt.Errorf("--share-key-file: %w", err)
		}
		key, _, _ = strings.Cut(string(data), "\n")
		from = "--share-key-file"
		if strings.TrimSpace(key) == "" {
			return fault.Usage.With("--share-key-file has no key in its first line")
		}
	}
	if o.key = strings.TrimSpace(key); o.key != "" && len(o.key) < minShareKey {
		return fault.Usage.With("the key of %s is shorter than %d characters: make one with openssl rand -base64 24", from, minShareKey)
	}
	return nil
}

// mountShare mounts opencode's share API on the server. address is that of --advertise, or where
// the server listens.
func (o *serveOptions) mountShare(srv *objects.Server, st share.Store, log *slog.Logger, address capability.Ref, ln net.Listener) *share.Service {
	if o.share.loopback && !o.share.loopbackGiven && behindProxy(address, ln.Addr()) {
		o.share.loopback = false
		log.Info("a proxy is taken to stand before this server, so opencode on this machine needs a key or a create-only ref; --share-loopback says otherwise")
	}
	cfg := o.share.limits
	cfg.Store, cfg.Server, cfg.Log, cfg.Key, cfg.NoLoopback, cfg.OriginPatterns = st, srv, log, o.share.key, !o.share.loopback, o.origins
	if o.advertise != "" {
		cfg.Base = webAddress(address)
	}
	lim := session.DefaultLimits()
	cfg.CommitLimits = opencode.Limits{Ops: lim.BatchOps, Bytes: lim.BatchBytes, Payload: lim.PayloadBytes}
	service := share.New(cfg)
	service.Mount()
	return service
}

// behindProxy reports whether clients on other machines reach a server that listens only to this
// machine: a proxy then forwards their requests.
func behindProxy(address capability.Ref, listens net.Addr) bool {
	address.TLS = false
	return localOnly(listens) && address.ClearTextHost() != ""
}

// webAddress returns the address for browsers: the first host.
func webAddress(at capability.Ref) string {
	scheme, standard := "http://", "80"
	if at.TLS {
		scheme, standard = "https://", "443"
	}
	host := at.Hosts[0]
	if name, port, err := net.SplitHostPort(host); err == nil && port == standard {
		if host = name; strings.Contains(name, ":") {
			host = "[" + name + "]"
		}
	}
	if at.Prefix != "" {
		host += "/" + at.Prefix
	}
	return scheme + host
}
