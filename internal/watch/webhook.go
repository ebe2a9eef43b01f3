package watch

// Delivery by a webhook, as https://www.standardwebhooks.com specifies.

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cenkalti/backoff/v4"
	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/defaults"
)

// WebhookConfig is where notices are sent.
type WebhookConfig struct {
	URL          string
	Secret       string // whsec_ and base64 of 24 to 64 bytes, by which what is sent is signed
	Agent        string // of HTTP
	AllowPrivate bool   // addresses that are not the internet's, and http
	Report       func(line string)

	FirstPause, LastPause time.Duration // between tries; default 1 s to 1 h
	GiveUp                time.Duration // for which a notice is tried; default 72 h
}

// Bounds of one try.
const (
	tryTimeout   = 20 * time.Second
	maxHeaders   = 64 << 10 // bytes of an answer
	maxBody      = 16 << 10 // that are read, and thrown away
	secretPrefix = "whsec_"
)

// Webhook sends notices to a URL.
type Webhook struct {
	cfg  WebhookConfig
	host string // for people: the rest of the URL may be a secret
	sign *standardwebhooks.Webhook
	http *http.Client
}

// NewWebhook returns a webhook. The error is a Usage.
func NewWebhook(cfg WebhookConfig) (*Webhook, error) {
	defaults.Set(&cfg.FirstPause, time.Second)
	defaults.Set(&cfg.LastPause, time.Hour)
	defaults.Set(&cfg.GiveUp, 72*time.Hour)
	at, err := url.Parse(cfg.URL)
	switch {
	case err != nil || at.Host == "" || at.User != nil || at.Fragment != "":
		return nil, fault.Usage.With("a webhook's URL is https://HOST/PATH, without a user and a fragment")
	case at.Scheme != "https" && !(at.Scheme == "http" && cfg.AllowPrivate):
		return nil, fault.Usage.With("a webhook's URL is https://HOST/PATH: what is sent tells who works on what")
	}
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(cfg.Secret, secretPrefix))
	if err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fault.Usage.With("a webhook's secret is %s and base64 of 24 to 64 bytes", secretPrefix)
	}
	w := &Webhook{cfg: cfg, host: at.Host}
	if w.sign, err = standardwebhooks.NewWebhookRaw(key); err != nil {
		return nil, err
	}
	dialer := &net.Dialer{Timeout: tryTimeout}
	if !cfg.AllowPrivate {
		dialer.Control = refusePrivate
	}
	w.http = &http.Client{
		Timeout:       tryTimeout,
		Transport:     &http.Transport{DialContext: dialer.DialContext, MaxResponseHeaderBytes: maxHeaders, TLSHandshakeTimeout: tryTimeout, MaxIdleConns: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	return w, nil
}

// NewSecret returns a new secret of a webhook.
func NewSecret() string {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // it never fails
	return secretPrefix + base64.StdEncoding.EncodeToString(key)
}

// errPrivate is the error of dialling an address that is not the internet's.
var errPrivate = errors.New("the address is a private one")

// refusePrivate is called with each address before it is dialled, so no name leads elsewhere after it was looked at.
func refusePrivate(_, address string, _ syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !public(at.Addr()) {
		return errPrivate
	}
	return nil
}

// notPublic are the ranges of IANA's registries of special addresses that netip does not tell: shared, reserved and benchmark ones,
// documentation, and those that have an IPv4 address in them, which would be dialled by a gateway.
var notPublic = prefixes("0.0.0.0/8 100.64.0.0/10 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 240.0.0.0/4 " +
	"::/96 64:ff9b::/96 64:ff9b:1::/48 100::/64 2001::/23 2001:db8::/32 2002::/16 3fff::/20 5f00::/16 fec0::/10")

func prefixes(text string) (list []netip.Prefix) {
	for p := range strings.FieldsSeq(text) {
		list = append(list, netip.MustParsePrefix(p))
	}
	return list
}

// public reports whether an address is one of the internet.
func public(ip netip.Addr) bool {
	ip = ip.Unmap().WithZone("")
	if !ip.IsGlobalUnicast() || ip.IsPrivate() {
		return false
	}
	for _, p := range notPublic {
		if p.Contains(ip) {
			return false
		}
	}
	return true
}

// Deliver sends a notice until it is taken, with pauses that grow. The error is Revoked if the receiver wants no more (410), and that of ctx; a
// notice that is not taken for too long is reported, and is no error.
func (w *Webhook) Deliver(ctx context.Context, n *Notice) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	pause := &afterAnswer{BackOff: backoff.NewExponentialBackOff(backoff.WithInitialInterval(w.cfg.FirstPause), backoff.WithMultiplier(2),
		backoff.WithMaxInterval(w.cfg.LastPause), backoff.WithMaxElapsedTime(w.cfg.GiveUp))}
	reported := false
	err = backoff.RetryNotify(func() (err error) {
		pause.least, err = w.send(ctx, n.ID, text)
		return err
	}, backoff.WithContext(pause, ctx), func(err error, _ time.Duration) {
		if !reported {
			w.cfg.Report(fmt.Sprintf("%v is not taken yet: %v; it is tried again", n, err))
		}
		reported = true
	})
	switch {
	case ctx.Err() != nil:
		return fault.Canceled.With("stopped while %v was being delivered", n)
	case errors.Is(err, fault.Revoked):
		return err
	case err != nil:
		w.cfg.Report(fmt.Sprintf("%v was not delivered: %v", n, err))
	}
	return nil
}

// afterAnswer is pauses of which one is at least as long as an answer wants.
type afterAnswer struct {
	backoff.BackOff
	least time.Duration
}

func (b *afterAnswer) NextBackOff() time.Duration {
	next := b.BackOff.NextBackOff()
	if next == backoff.Stop {
		return next
	}
	return max(next, b.least)
}

// send sends a notice once. After an error the next try is to wait for at least a while, if the receiver has said so.
func (w *Webhook) send(ctx context.Context, id string, text []byte) (pause time.Duration, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.cfg.URL, bytes.NewReader(text))
	if err != nil {
		return 0, backoff.Permanent(errors.New("the URL cannot be used"))
	}
	now := time.Now()
	signature, err := w.sign.Sign(id, now, text)
	if err != nil {
		return 0, backoff.Permanent(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", w.cfg.Agent)
	req.Header.Set(standardwebhooks.HeaderWebhookID, id)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	res, err := w.http.Do(req)
	if err != nil {
		var wrapped *url.Error
		if errors.As(err, &wrapped) {
			err = wrapped.Err // without the URL
		}
		if errors.Is(err, errPrivate) {
			err = fmt.Errorf("%s: %w, and private ones have to be allowed", w.host, errPrivate)
		}
		return 0, err
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxBody)
	switch {
	case res.StatusCode/100 == 2:
		return 0, nil
	case res.StatusCode == http.StatusGone:
		return 0, backoff.Permanent(fault.Revoked.With("%s wants no more (status 410)", w.host))
	case res.StatusCode/100 == 3:
		return 0, fmt.Errorf("%s redirects (status %d), which is not followed", w.host, res.StatusCode)
	}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		pause = min(time.Duration(min(s, 1e6))*time.Second, w.cfg.LastPause)
	}
	return pause, fmt.Errorf("%s answers with status %d", w.host, res.StatusCode)
}
