// Package webhook sends notices to a URL, once at a time, as https://www.standardwebhooks.com specifies. When one is sent again is its
// callers' to decide: package watch and the server's deliveries.
//
// The address that a name leads to is looked at when it is dialled, no redirect is followed and no proxy is used.
//
// # Bounds
//
//	one try    20 seconds (tryTimeout); of the answer 64 KiB of headers and 16 KiB of body are read
//
// A Sender is safe for concurrent use.
package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
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
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/notice"
)

// Bounds of one try.
const (
	tryTimeout   = 20 * time.Second
	maxHeaders   = 64 << 10 // bytes of an answer
	maxBody      = 16 << 10 // that are read, and thrown away
	secretPrefix = "whsec_"
)

// TryTimeout is how long one Send takes at most.
const TryTimeout = tryTimeout

// LastPause is the longest pause between two tries that callers make; an answer cannot ask for more.
const LastPause = time.Hour

// Config is what all targets of a sender share.
type Config struct {
	Agent        string // of HTTP
	AllowPrivate bool   // addresses that are not the internet's, and http
	HowAllowed   string // what allows those, for errors: AllowedByServer or AllowedByWatch
	IdleConns    int    // that are kept open for the next notice
}

// Sender sends notices.
type Sender struct {
	cfg  Config
	http *http.Client
}

// NewSender returns a sender.
func NewSender(cfg Config) *Sender {
	dialer := &net.Dialer{Timeout: tryTimeout, Control: dialControl(cfg.AllowPrivate)}
	return &Sender{cfg: cfg, http: &http.Client{
		Timeout: tryTimeout,
		Transport: &http.Transport{DialContext: dialer.DialContext, MaxResponseHeaderBytes: maxHeaders, TLSHandshakeTimeout: tryTimeout,
			MaxIdleConns: max(cfg.IdleConns, 1), MaxIdleConnsPerHost: 1, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close closes the connections that are idle.
func (s *Sender) Close() { s.http.CloseIdleConnections() }

// Target is where notices are sent, and the secret by which they are signed.
type Target struct {
	url, host  string // the host is for people: the rest of the URL may be a secret
	howAllowed string // Config.HowAllowed
	sign       *standardwebhooks.Webhook
}

// Target returns the target of a URL and a secret: whsec_ and base64 of 24 to 64 bytes. The error is a Usage.
func (s *Sender) Target(address, secret string) (*Target, error) {
	if err := CheckURL(address, s.cfg.AllowPrivate, s.cfg.HowAllowed); err != nil {
		return nil, err
	}
	at, _ := url.Parse(address) // it was checked
	key, bad := decodeSecret(secret)
	if bad != nil {
		return nil, bad
	}
	sign, err := standardwebhooks.NewWebhookRaw(key)
	if err != nil {
		return nil, err
	}
	return &Target{url: address, host: at.Host, howAllowed: s.cfg.HowAllowed, sign: sign}, nil
}

// CheckURL refuses, as Usage, what is no webhook's URL. http, and a private address in the URL, are allowed only with allowPrivate;
// what a name leads to is looked at when it is dialled. The error says howAllowed (Config).
func CheckURL(address string, allowPrivate bool, howAllowed string) *fault.Error {
	at, err := url.Parse(address)
	switch {
	case err != nil || at.Host == "" || at.User != nil || at.Fragment != "":
		return fault.Usage.With("a webhook's URL is https://HOST/PATH, without a user and a fragment")
	case at.Scheme == "http" && !allowPrivate:
		return fault.Usage.With("a webhook's URL is https://HOST/PATH; http, and private addresses, have to be allowed: %s", howAllowed)
	case at.Scheme != "https" && at.Scheme != "http":
		return fault.Usage.With("a webhook's URL is https://HOST/PATH")
	}
	if ip, err := netip.ParseAddr(at.Hostname()); err == nil && !dialable(ip, allowPrivate) {
		if !dialable(ip, true) {
			return fault.Usage.With("%s is no address for a webhook", ip)
		}
		return fault.Usage.With("%s is a private address, which has to be allowed: %s", ip, howAllowed)
	}
	return nil
}

// What allows private addresses and http.
const (
	AllowedByServer = "mooring serve --webhooks-allow-private"
	AllowedByWatch  = "mooring watch --allow-private"
)

// CheckSecret refuses, as Usage, what is no webhook's secret.
func CheckSecret(secret string) *fault.Error {
	_, err := decodeSecret(secret)
	return err
}

func decodeSecret(secret string) ([]byte, *fault.Error) {
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, secretPrefix))
	if err != nil || len(key) < 24 || len(key) > 64 {
		return nil, fault.Usage.With("a webhook's secret is %s and base64 of 24 to 64 bytes", secretPrefix)
	}
	return key, nil
}

// Error is why a notice was not taken.
type Error struct {
	Class      string        // one word, without anything of the answer but its status: status_500, timeout, dns, connect, tls, private_address, redirect
	Gone       bool          // the receiver wants no more
	RetryAfter time.Duration // for which the next try is to wait at least, if the receiver has said so
	err        error
}

// Error implements error. It names the host, and nothing else of the URL.
func (e *Error) Error() string { return e.err.Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.err }

// Send sends a notice once. The error is an *Error, or that of ctx.
func (s *Sender) Send(ctx context.Context, to *Target, n *notice.Notice) error {
	text, err := json.Marshal(n)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.url, bytes.NewReader(text))
	if err != nil {
		return &Error{Class: "url", err: errors.New("the URL cannot be used")}
	}
	now := time.Now()
	signature, err := to.sign.Sign(n.ID, now, text)
	if err != nil {
		return &Error{Class: "signature", err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", s.cfg.Agent)
	req.Header.Set(standardwebhooks.HeaderWebhookID, n.ID)
	req.Header.Set(standardwebhooks.HeaderWebhookTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(standardwebhooks.HeaderWebhookSignature, signature)
	res, err := s.http.Do(req)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return to.unreached(err)
	}
	defer res.Body.Close()
	_, _ = io.CopyN(io.Discard, res.Body, maxBody)
	return to.answered(res)
}

// unreached returns the error of a request that got no answer.
func (to *Target) unreached(err error) *Error {
	if wrapped, ok := errors.AsType[*url.Error](err); ok {
		err = wrapped.Err // without the URL
	}
	_, dns := errors.AsType[*net.DNSError](err)
	_, alert := errors.AsType[tls.AlertError](err)
	_, record := errors.AsType[tls.RecordHeaderError](err)
	_, untrusted := errors.AsType[*tls.CertificateVerificationError](err)
	timeout, timed := errors.AsType[net.Error](err)
	switch {
	case errors.Is(err, errPrivate):
		return &Error{Class: "private_address", err: fmt.Errorf("%s: %w, and private ones have to be allowed: %s", to.host, errPrivate, to.howAllowed)}
	case timed && timeout.Timeout():
		return &Error{Class: "timeout", err: err}
	case dns:
		return &Error{Class: "dns", err: err}
	case alert || record || untrusted:
		return &Error{Class: "tls", err: err}
	}
	return &Error{Class: "connect", err: err}
}

// answered returns the error of an answer; nil if it takes the notice.
func (to *Target) answered(res *http.Response) error {
	switch {
	case res.StatusCode/100 == 2:
		return nil
	case res.StatusCode == http.StatusGone:
		return &Error{Class: "status_410", Gone: true, err: fault.Revoked.With("%s wants no more (status 410)", to.host)}
	case res.StatusCode/100 == 3:
		return &Error{Class: "redirect", err: fmt.Errorf("%s redirects (status %d), which is not followed", to.host, res.StatusCode)}
	}
	e := &Error{Class: "status_" + strconv.Itoa(res.StatusCode), err: fmt.Errorf("%s answers with status %d", to.host, res.StatusCode)}
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil && s > 0 {
		e.RetryAfter = min(time.Duration(min(s, 1e6))*time.Second, LastPause)
	}
	return e
}
