// mooring serve: opencode's share API.

package servercmd

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
)

// envShareKey is the environment variable of the share key, used without --share-key-file.
const envShareKey = "MOORING_SHARE_KEY"

// shareOptions are the flags of opencode's share API.
type shareOptions struct {
	keyFile       string
	loopback      bool
	loopbackGiven bool // given by the user, not the default
}

func (o *shareOptions) addFlags(f *pflag.FlagSet) {
	f.StringVar(&o.keyFile, "share-key-file", "", "file with the key with which opencode on other machines may share here (x-opencode-share-key), and which lists all shares;\n"+
		"its first line, at least 16 characters (default: "+envShareKey+"; without either there is none)")
	f.BoolVar(&o.loopback, "share-loopback", true, "let opencode on this machine share without a key. Through a proxy on this machine all callers seem to be on it,\n"+
		"so the default is off if --listen is this machine only and --advertise is not; requests with\n"+
		"a Forwarded, X-Forwarded-For or Via header never count as this machine's")
}

// maxKeyFile bounds a file with a key, in bytes.
const maxKeyFile = 64 << 10

// readKey returns the share key, "" for none.
func (o *shareOptions) readKey(ctx context.Context) (string, error) {
	if o.keyFile == "" {
		return strings.TrimSpace(os.Getenv(envShareKey)), nil
	}
	data, err := cli.ReadFileLimited(ctx, o.keyFile, maxKeyFile)
	if err != nil {
		return "", fmt.Errorf("--share-key-file: %w", err)
	}
	key, _, _ := strings.Cut(string(data), "\n")
	if key = strings.TrimSpace(key); key == "" {
		return "", fault.Usage.With("--share-key-file has no key in its first line")
	}
	return key, nil
}

// keySource is how messages name the place of the share key.
func (o *shareOptions) keySource() string {
	if o.keyFile == "" {
		return envShareKey
	}
	return "--share-key-file"
}

// behindProxy reports whether clients on other machines reach a server that listens only to this
// machine: a proxy then forwards their requests.
func behindProxy(address capability.Ref, listens net.Addr) bool {
	address.TLS = false
	return !listensBeyondLoopback(listens.String()) && address.ClearTextHost() != ""
}
