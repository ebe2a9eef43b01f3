package attach

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

// apiOf returns the API that a handler serves.
func apiOf(t *testing.T, h http.HandlerFunc) *opencodeapi.API {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	at, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword("someone", "secret-word")
	a := opencodeapi.New(at)
	t.Cleanup(a.Close)
	return a
}

// next returns the next events that are there.
func next(t *testing.T, s *stream) []event {
	t.Helper()
	select {
	case <-s.ready:
	case <-time.After(time.Minute):
		t.Fatal("there is no event")
	}
	return s.take()
}

// The stream begins anew when it breaks off, and says so.
func TestTheStreamIsConnectedAgain(t *testing.T) {
	t.Parallel()
	n := 0
	s := newStream(apiOf(t, func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "someone" || password != "secret-word" || r.URL.Query().Get("directory") != "/p" {
			t.Errorf("asked as %s, %s", user, r.URL)
		}
		n++
		fmt.Fprintf(w, ": a comment\n\ndata: {\"type\":\"one\",\"properties\":{\"n\":%d}}\n\n", n)
	}))
	s.api.Use("/p")
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		s.run(ctx)
		close(ended)
	}()
	var seen []string
	for len(seen) < 6 {
		for _, e := range next(t, s) {
			seen = append(seen, e.Type+string(e.Properties))
			if e.Type == streamEnded && !errors.Is(e.err, opencodeapi.ErrAway) {
				t.Errorf("it ended with %v", e.err)
			}
		}
	}
	cancel()
	<-ended
	if got := strings.Join(seen[:6], " "); got != `stream.open one{"n":1} stream.ended stream.open one{"n":2} stream.ended` {
		t.Errorf("seen was %s", got)
	}
}

// Events that nobody takes are bounded, and what is left of a connection goes with it.
func TestEventsThatNobodyTakes(t *testing.T) {
	t.Parallel()
	s := newStream(nil)
	large := event{Type: "large", Properties: []byte(`"` + strings.Repeat("x", maxAhead/4) + `"`)}
	pushed := 0
	for ; s.push(large) == nil; pushed++ {
		if pushed > 4 {
			t.Fatal("it takes all")
		}
	}
	if err := s.push(event{Type: streamEnded, err: errBehind}); err != nil || len(s.queue) != pushed+1 {
		t.Errorf("the end is not told: %v", err)
	}
	if err := s.push(event{Type: streamOpen}); err != nil {
		t.Error(err)
	}
	if list := s.take(); len(list) != 1 || list[0].Type != streamOpen {
		t.Errorf("of the connection before %d events are left", len(list))
	}
}
