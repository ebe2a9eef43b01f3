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
	Password string // that it wants, "" for none

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
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Down {
		panic(http.ErrAbortHandler)
	}
	if _, password, _ := req.BasicAuth(); password != f.Password {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	id, below, _ := strings.Cut(strings.TrimPrefix(req.URL.Path, "/session/"), "/")
	s := f.sessions[id]
	switch {
	case s == nil:
		w.WriteHeader(http.StatusNotFound)
	case below == "":
		fmt.Fprint(w, s.info)
	case f.Broken:
		fmt.Fprintf(w, `[{"info":%s,"parts":[]},`, s.messages[0])
	default:
		var list []string
		for _, m := range s.messages {
			list = append(list, fmt.Sprintf(`{"info":%s,"parts":[%s]}`, m, strings.Join(s.parts[idOf(f.t, m)], ",")))
		}
		fmt.Fprintf(w, "[%s]", strings.Join(list, ","))
	}
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
