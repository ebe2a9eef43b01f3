//go:build unix

package node

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/notice"
	"github.com/mooring-rpc/mooring/internal/server/webhooks"
	"github.com/mooring-rpc/mooring/internal/session"
)

const webhookSecret = "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8="

// fastHooks delivers without the pauses that the internet needs.
func fastHooks(c *Config) {
	c.Webhooks = &WebhookConfig{AllowPrivate: true, Times: webhooks.Times{Poll: 30 * time.Millisecond, Pace: time.Millisecond, Gather: time.Millisecond,
		FirstPause: 10 * time.Millisecond, LastPause: 30 * time.Millisecond}}
}

// hookReceiver gives what it is sent, before answer says what it answers.
func hookReceiver(t *testing.T, answer func(n *notice.Notice) int) (url string, got chan string) {
	got = make(chan string, 1000)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var n notice.Notice
		if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
			t.Error(err)
		}
		got <- n.Type + " " + n.Data.Request + n.Data.Message
		w.WriteHeader(answer(&n))
	}))
	t.Cleanup(s.Close)
	return s.URL, got
}

// comes waits for a notice.
func comes(t *testing.T, got chan string, want string) {
	t.Helper()
	select {
	case is := <-got:
		same(t, "a notice", is, want)
	case <-time.After(15 * time.Second): // less than one try may take
		t.Fatalf("%s never comes", want)
	}
}

// hookUntil waits for what becomes of a webhook.
func hookUntil(t *testing.T, st Store, id, hook string, cond func(*session.Webhook) bool) *session.Webhook {
	t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		_, list, err := st.ReadWebhooks(t.Context(), id, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range list {
			if w.ID == hook && cond(w) {
				return w
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("the webhooks are %+v", list)
		}
	}
}

func (w *webClient) addHook(sess *capnweb.Stub, id, url string) {
	w.t.Helper()
	w.give(sess, "addWebhook", object{"id": id, "url": url, "secret": webhookSecret})
}

// After a cut nothing is sent of what comes later, also where a notice is on its way meanwhile.
func TestWebhooksEndAtTheCut(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, fastHooks)
		r.untilInUse(session.AllFeatures)
		w := r.dialWebIn(t)
		m := r.createWeb(w)
		sess := w.give(w.main, "restore", m.owner.Text()).(*capnweb.Stub)
		writer := m.owner.New(m.id)
		hash := writer.Secret.Hash()
		w.give(sess, "share", object{"id": writer.ID, "hash": hash[:], "limits": object{"rights": []any{"read", "append", "ask"}}})
		box := newBox()
		stream := w.open(w.give(w.main, "restore", writer.Text()).(*capnweb.Stub), box)
		ask := func(id string) {
			t.Helper()
			w.must(stream, box.batch(m.id, op("ask", "request", id, "kind", "own")))
		}
		release := make(chan struct{})
		url, got := hookReceiver(t, func(n *notice.Notice) int {
			if n.Data.Request == "a" {
				<-release
			}
			return http.StatusOK
		})
		w.addHook(sess, "h", url)
		ask("a")
		comes(t, got, "request.open a")
		fresh := m.owner.New(m.id)
		w.give(sess, "rotate", newHash(fresh)...)
		ask("b")
		close(release)
		ended := hookUntil(t, st, m.id, "h", func(w *session.Webhook) bool { return w.Ended != "" })
		same(t, "why it has ended", []string{ended.Ended, ended.Secret}, []string{"revoked", ""})

		// Under the space's ref, which acts in the session as its owner does.
		space := w.give(w.main, "restore", r.owner.Text()).(*capnweb.Stub)
		managed := w.give(space, "open", m.id).(*capnweb.Stub)
		w.addHook(managed, "m", url)
		comes(t, got, "request.open a")
		comes(t, got, "request.open b")
		ask("c")
		comes(t, got, "request.open c")
		w.give(space, "rotate", newHash(r.owner.New(r.owner.Target()))...)
		ask("d")
		same(t, "why it has ended", hookUntil(t, st, m.id, "m", func(w *session.Webhook) bool { return w.Ended != "" }).Ended, "revoked")
		same(t, "what comes after that", len(got), 0)
	})
}

// A log that does not go back to where a webhook is: it begins anew, and says so. One that is never taken is given up.
func TestWebhooksBeginAnew(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, fastHooks)
		r.untilInUse(session.AllFeatures)
		w := r.dialWebIn(t)
		m := r.createWeb(w)
		sess := w.give(w.main, "restore", m.owner.Text()).(*capnweb.Stub)
		taken := make(chan struct{})
		url, got := hookReceiver(t, func(*notice.Notice) int {
			select {
			case <-taken:
				return http.StatusNoContent
			default:
				return http.StatusServiceUnavailable
			}
		})
		w.addHook(sess, "h", url)
		hookUntil(t, st, m.id, "h", func(w *session.Webhook) bool { return w.Opened < 0 })
		w.must(m.stream, m.batch(op("begin", "message", "m", "payload", struct{}{}), op("finalize", "message", "m", "status", "completed"), op("ask", "request", "a", "kind", "own")))
		comes(t, got, "turn.finished m")
		failing := hookUntil(t, st, m.id, "h", func(w *session.Webhook) bool { return w.Failures > 1 })
		same(t, "failing", []any{failing.Error, failing.Since > 0, failing.Ended, failing.Restarted}, []any{"status_503", true, "", int64(0)})
		untilBase(t, st, m.id, 4, func() {
			for more, err := true, error(nil); more; {
				if more, err = st.Trim(t.Context(), m.id, time.Nanosecond, 500, 4<<20); err != nil {
					t.Fatal(err)
				}
			}
		})
		hookUntil(t, st, m.id, "h", func(w *session.Webhook) bool { return w.Restarted > 0 })
		close(taken)
		anew := hookUntil(t, st, m.id, "h", func(w *session.Webhook) bool { return w.Delivered > 0 && w.Opened < 0 })
		same(t, "anew", []any{anew.Failures, anew.Error, anew.Since, anew.Cursor}, []any{0, "", int64(0), uint64(4)})
		last := ""
		for len(got) > 0 {
			last = <-got
		}
		same(t, "what comes last", last, "request.open a")
		if r.number(`mooring_webhook_tries_total{result="taken"}`) < 1 || r.number(`mooring_webhook_tries_total{result="failed"}`) < 2 {
			t.Error("tries are not counted")
		}
	})
}

// Webhooks that hang hold up no others, and one that is not taken for too long has ended.
func TestDeadWebhooksDelayNobody(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, st Store) {
		r := start(t, st, func(c *Config) {
			fastHooks(c)
			c.Webhooks.Times.SlowAfter, c.Webhooks.Times.GiveUp = 50*time.Millisecond, 300*time.Millisecond
		})
		r.untilInUse(session.AllFeatures)
		w := r.dialWebIn(t)
		over := make(chan struct{})
		hangs, hanging := hookReceiver(t, func(*notice.Notice) int {
			<-over
			return http.StatusOK
		})
		t.Cleanup(func() { close(over) })
		fails, _ := hookReceiver(t, func(*notice.Notice) int { return http.StatusInternalServerError })
		good, got := hookReceiver(t, func(*notice.Notice) int { return http.StatusOK })
		for n := range 3 {
			m := r.createWeb(w)
			w.must(m.stream, m.batch(op("ask", "request", fmt.Sprint("r", n), "kind", "own")))
			sess := w.give(w.main, "restore", m.owner.Text()).(*capnweb.Stub)
			if n == 2 {
				w.addHook(sess, "fails", fails)
				w.addHook(sess, "good", good)
				comes(t, got, "request.open r2")
				w.must(m.stream, m.batch(op("ask", "request", "more", "kind", "own")))
				comes(t, got, "request.open more")
				same(t, "what is never taken", hookUntil(t, st, m.id, "fails", func(w *session.Webhook) bool { return w.Ended != "" }).Ended, session.WebhookGaveUp)
				break
			}
			for i := range session.MaxWebhooks {
				w.addHook(sess, fmt.Sprint("h", i), hangs)
			}
		}
		if len(hanging) < 9 {
			t.Errorf("%d hang: it shows nothing", len(hanging))
		}
		began := time.Now()
		r.stop()
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("it stops after %v", took)
		}
	})
}
