// Package relaytest has an opencode for tests of the relay: what a relay reads of its API, and sessions that change as opencode's do.
package relaytest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
)

// Opencode is what a relay reads of opencode's own API. It says what it has stored, whether that was sent or not. Its exported fields are changed
// within Set.
type Opencode struct {
	Down     bool   // it answers nothing
	Broken   bool   // a list of messages breaks off
	Paged    bool   // a list of messages has the first one, and says that there are more
	Info     string // that it gives of every session; "" for the session's own
	Password string // that it wants, "" for none

	OnMessages func() // is called once, between reading a list of messages and answering with it

	t        testing.TB
	http     *httptest.Server
	mu       sync.Mutex
	sessions map[string]*stored
}

// stored is what it has of a session.
type stored struct {
	info     string
	messages []string            // infos, in order
	parts    map[string][]string // by message
}

// NewOpencode returns one on the loopback that ends with the test.
func NewOpencode(t testing.TB) *Opencode {
	t.Helper()
	f := &Opencode{t: t, sessions: map[string]*stored{}}
	f.http = httptest.NewServer(f)
	t.Cleanup(f.http.Close)
	return f
}

// URL is where it is.
func (f *Opencode) URL() string { return f.http.URL }

// Set changes it.
func (f *Opencode) Set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

// Forget removes a session. It is called within Set.
func (f *Opencode) Forget(id string) { delete(f.sessions, id) }

// ServeHTTP implements http.Handler.
func (f *Opencode) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if f.isDown() {
		panic(http.ErrAbortHandler)
	}
	status, text, then := f.answer(w.Header(), req)
	if then != nil {
		then()
	}
	w.WriteHeader(status)
	fmt.Fprint(w, text)
}

func (f *Opencode) isDown() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.Down
}

func (f *Opencode) answer(h http.Header, req *http.Request) (status int, text string, then func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, password, _ := req.BasicAuth(); password != f.Password {
		return http.StatusUnauthorized, "", nil
	}
	id, below, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/session/"), "/")
	s := f.sessions[id]
	switch {
	case s == nil:
		return http.StatusNotFound, "", nil
	case below == "" && f.Info != "":
		return http.StatusOK, f.Info, nil
	case below == "":
		return http.StatusOK, s.info, nil
	case f.Broken:
		return http.StatusOK, fmt.Sprintf(`[{"info":%s,"parts":[]},`, s.messages[0]), nil
	}
	var list []string
	for _, m := range s.messages {
		list = append(list, fmt.Sprintf(`{"info":%s,"parts":[%s]}`, m, strings.Join(s.parts[idOf(f.t, m)], ",")))
	}
	if f.Paged {
		h.Set("X-Next-Cursor", "more")
		list = list[:1]
	}
	then, f.OnMessages = f.OnMessages, nil
	return http.StatusOK, fmt.Sprintf("[%s]", strings.Join(list, ",")), then
}

func idOf(t testing.TB, data string) string {
	var of struct{ ID string }
	if err := json.Unmarshal([]byte(data), &of); err != nil {
		t.Fatal(err)
	}
	return of.ID
}

// Store sets what it has of a session: items as they are synced, of which the info gets the address of the share, if that is not "".
func (f *Opencode) Store(shared string, items ...string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := &stored{parts: map[string][]string{}}
	for _, item := range items {
		var of struct {
			Type string
			Data json.RawMessage
		}
		var data struct{ ID, MessageID string }
		if json.Unmarshal([]byte(item), &of) != nil || json.Unmarshal(of.Data, &data) != nil {
			f.t.Fatal(item)
		}
		switch of.Type {
		case "session":
			f.sessions[data.ID], s.info = s, string(of.Data)
			if shared != "" {
				s.info = strings.TrimSuffix(s.info, "}") + fmt.Sprintf(`,"share":{"url":%q}}`, shared)
			}
		case "message":
			s.messages = append(s.messages, string(of.Data))
		case "part":
			s.parts[data.MessageID] = append(s.parts[data.MessageID], string(of.Data))
		}
	}
}
