// The certificate of mooring serve, reloaded from its files while the server runs.

package servercmd

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
)

// certificate is the server's, as of the last load whose files were valid and matched. Handshakes
// read it while reload replaces it; the other fields are reload's.
type certificate struct {
	chainFile, keyFile string // both empty: no TLS
	log                *slog.Logger

	current    atomic.Pointer[tls.Certificate]
	chain, key []byte // the files' content that now was parsed from
	lastErr    string // why the last load failed
}

// config returns the TLS configuration of a listener.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1"},
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) {
			return c.current.Load(), nil
		},
	}
}

// load reads the files. If they are not a certificate and its key, the previous one stays.
func (c *certificate) load(ctx context.Context) error {
	chain, err := cli.ReadFileLimited(ctx, c.chainFile, cli.MaxCertificateFile)
	if err != nil {
		return fmt.Errorf("--tls-cert: %w", err)
	}
	key, err := cli.ReadFileLimited(ctx, c.keyFile, cli.MaxCertificateFile)
	if err != nil {
		return fmt.Errorf("--tls-key: %w", err)
	}
	if bytes.Equal(chain, c.chain) && bytes.Equal(key, c.key) {
		return nil
	}
	pair, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	c.chain, c.key = chain, key
	c.current.Store(&pair)
	return nil
}

// reload is load, with the result logged: a repeated failure once, unless it was asked for.
func (c *certificate) reload(ctx context.Context, asked bool) {
	was := c.current.Load()
	err := checkRegularFiles(c.chainFile, c.keyFile)
	if err == nil {
		err = c.load(ctx)
	}
	switch now := c.current.Load(); {
	case ctx.Err() != nil:
	case err != nil && (asked || err.Error() != c.lastErr):
		c.log.Warn("the certificate was not read again: the previous one stays", "error", err)
	case now != was:
		c.log.Info("the certificate was renewed", "file", c.chainFile, "not_after", now.Leaf.NotAfter)
	case err == nil && asked:
		c.log.Info("the certificate is unchanged", "file", c.chainFile)
	}
	if c.lastErr = ""; err != nil {
		c.lastErr = err.Error()
	}
}
