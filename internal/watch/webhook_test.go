package watch

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/notice"
)

var asked = notice.New(notice.RequestOpen, "ses_1", time.Now(), notice.Data{Request: "req_1", Kind: "prompt"})

// receiver is a server that answers as the test says, and counts.
func receiver(t *testing.T, answer func(n int, w http.ResponseWriter, r *http.Request)) (url string, got *atomic.Int32) {
	got = new(atomic.Int32)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { answer(int(got.Add(1)), w, r) }))
	t.Cleanup(s.Close)
	return s.URL + "/hooks/secret-token", got
}

func newTestWebhook(t *testing.T, cfg WebhookConfig) (*Webhook, *lockbuf.Buffer) {
	t.Helper()
	said := &lockbuf.Buffer{}
	cfg.Report = func(line string) { _, _ = said.Write([]byte(line + "\n")) }
	if cfg.Secret == "" {
		cfg.Secret = client.NewWebhookSecret()
	}
	w, err := NewWebhook(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return w, said
}

// What is sent is signed as the specification's own library checks, with the same id when it is sent again.
func TestWebhookIsSigned(t *testing.T) {
	t.Parallel()
	secret := client.NewWebhookSecret()
	check, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		t.Fatal(err)
	}
	url, got := receiver(t, func(n int, w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		var sent notice.Notice
		switch err := check.Verify(text, r.Header); {
		case err != nil:
			t.Error(err)
		case json.Unmarshal(text, &sent) != nil || sent != *asked || r.Header.Get("Webhook-Id") != asked.ID || r.Header.Get("Content-Type") != "application/json" || r.Method != http.MethodPost:
			t.Errorf("it got %s with %v", text, r.Header)
		}
		if n < 3 {
			w.WriteHeader(http.StatusInternalServerError)
		}
	})
	w, said := newTestWebhook(t, WebhookConfig{URL: url, Secret: secret, AllowPrivate: true, FirstPause: time.Millisecond})
	if err := w.Deliver(t.Context(), asked); err != nil || got.Load() != 3 {
		t.Errorf("%v after %d", err, got.Load())
	}
	if text := said.String(); strings.Count(text, "\n") != 1 || !strings.Contains(text, "request.open of req_1 in ses_1 is not taken yet") || !strings.Contains(text, "status 500") || strings.Contains(text, "secret-token") {
		t.Errorf("it says %s", text)
	}
}

// Answers after which it is not tried again, or later, or not elsewhere.
func TestWebhookAnswers(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) })
	w, _ := newTestWebhook(t, WebhookConfig{URL: url, AllowPrivate: true})
	if err := w.Deliver(t.Context(), asked); fault.CodeOf(err) != fault.Revoked || got.Load() != 1 {
		t.Errorf("gone: %v after %d", err, got.Load())
	}
	other, reached := receiver(t, func(int, http.ResponseWriter, *http.Request) {})
	url, _ = receiver(t, func(_ int, w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, other, http.StatusTemporaryRedirect)
	})
	w, said := newTestWebhook(t, WebhookConfig{URL: url, AllowPrivate: true, FirstPause: time.Millisecond, GiveUp: 50 * time.Millisecond})
	if err := w.Deliver(t.Context(), asked); err != nil || reached.Load() != 0 || !strings.Contains(said.String(), "was not delivered: ") || !strings.Contains(said.String(), "redirects") {
		t.Errorf("redirected: %v, followed %d times, %s", err, reached.Load(), said.String())
	}
	var first time.Time
	url, got = receiver(t, func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 1 {
			first = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		} else if time.Since(first) < time.Second {
			t.Errorf("again after %v", time.Since(first))
		}
	})
	w, _ = newTestWebhook(t, WebhookConfig{URL: url, AllowPrivate: true, FirstPause: time.Millisecond})
	if err := w.Deliver(t.Context(), asked); err != nil || got.Load() != 2 {
		t.Errorf("later: %v after %d", err, got.Load())
	}
	url, _ = receiver(t, func(_ int, w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) })
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	w, _ = newTestWebhook(t, WebhookConfig{URL: url, AllowPrivate: true})
	if err := w.Deliver(ctx, asked); fault.CodeOf(err) != fault.Canceled {
		t.Errorf("stopped: %v", err)
	}
}

// A private address is refused as a number, and not dialled by a name.
func TestWebhookAddresses(t *testing.T) {
	t.Parallel()
	url, got := receiver(t, func(int, http.ResponseWriter, *http.Request) {})
	at := strings.NewReplacer("http:", "https:", "127.0.0.1", "localhost").Replace(url)
	w, said := newTestWebhook(t, WebhookConfig{URL: at, FirstPause: time.Millisecond, GiveUp: 20 * time.Millisecond})
	if err := w.Deliver(t.Context(), asked); err != nil || got.Load() != 0 || !strings.Contains(said.String(), "private") {
		t.Errorf("%v, reached %d times: %s", err, got.Load(), said.String())
	}
	for _, cfg := range []WebhookConfig{
		{URL: "http://example.org/"}, {URL: "https://127.0.0.1/"}, {URL: "https://[fe80::1]/", AllowPrivate: true}, {URL: "ftp://example.org/", AllowPrivate: true}, {URL: "https://me:pw@example.org/"}, {URL: "https:///x"}, {URL: "example.org"}, {URL: "https://a\x00b/"},
		{URL: "https://example.org/", Secret: "whsec_AAAA"}, {URL: "https://example.org/", Secret: "no base64, no base64, no base64"},
	} {
		if cfg.Secret == "" {
			cfg.Secret = client.NewWebhookSecret()
		}
		if _, err := NewWebhook(cfg); !errors.Is(err, fault.Usage) {
			t.Errorf("%+v: %v", cfg, err)
		}
	}
}
