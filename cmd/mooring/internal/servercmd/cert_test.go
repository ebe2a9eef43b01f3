//go:build unix

// Certificates that are renewed on disk while the server runs.

package servercmd

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/selfsigned"
)

// handshake is the certificate that a server of config shows.
func handshake(t *testing.T, config *tls.Config) []byte {
	t.Helper()
	near, far := net.Pipe()
	defer near.Close()
	done := make(chan error, 1)
	go func() { done <- tls.Server(far, config).Handshake() }()
	c := tls.Client(near, &tls.Config{InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	return c.ConnectionState().PeerCertificates[0].Raw
}

// A new certificate is served within a minute of being written; what is not whole, or
// not of one piece, changes nothing and is told once.
func TestCertificateIsRenewed(t *testing.T) {
	t.Parallel()
	dir, other := t.TempDir(), t.TempDir()
	chain, key, _ := selfsigned.Write(t, dir)
	otherChain, otherKey, _ := selfsigned.Write(t, other)
	write := func(to string, text []byte) {
		t.Helper()
		if err := os.WriteFile(to, text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	read := func(file string) []byte {
		t.Helper()
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first, second := read(chain), read(otherChain)
	firstCert, secondCert := selfsigned.Read(t, chain), selfsigned.Read(t, otherChain)
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log lockbuf.Buffer
		c := certificate{chainFile: chain, keyFile: key, log: slog.New(slog.NewTextHandler(&log, nil))}
		if err := c.load(ctx); err != nil {
			t.Fatal(err)
		}
		config := c.config()
		done := make(chan struct{})
		go func() {
			defer close(done)
			reloadLoop(ctx, nil, c.reload)
		}()
		lines := 0
		for _, step := range []struct {
			what   string
			change func()
			want   []byte
			lines  int // of the log, from this step
		}{
			{"as it was", func() {}, firstCert, 0},
			{"half a chain", func() { write(chain, second[:len(second)/2]) }, firstCert, 1},
			{"a chain without its key", func() { write(chain, second) }, firstCert, 1},
			{"its key", func() { write(key, read(otherKey)) }, secondCert, 1},
			{"an empty key", func() { write(key, nil) }, secondCert, 1},
			{"no key", func() { _ = os.Remove(key) }, secondCert, 1},
			{"the same again", func() { write(key, read(otherKey)) }, secondCert, 0},
			{"no key, a second time", func() { _ = os.Remove(key) }, secondCert, 1},
			{"a folder for a key", func() { _ = os.Mkdir(key, 0o700) }, secondCert, 1},
			{"the second's key for the first", func() {
				_ = os.Remove(key)
				write(key, read(otherKey))
				write(chain, first)
			}, secondCert, 1},
		} {
			step.change()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			if !bytes.Equal(handshake(t, config), step.want) {
				t.Errorf("%s: the other certificate is served", step.what)
			}
			lines += step.lines
			if have := strings.Count(log.String(), "\n"); have != lines {
				t.Errorf("%s: %d lines are logged by now, want %d:\n%s", step.what, have, lines, log.String())
				lines = have
			}
		}
		if strings.Contains(log.String(), "PRIVATE") {
			t.Error("the log has a key")
		}
		cancel()
		<-done
	})
}
