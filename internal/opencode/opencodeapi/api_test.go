package opencodeapi

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

// apiOf returns the API that a handler serves.
func apiOf(t *testing.T, h http.HandlerFunc) *API {
	t.Helper()
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	at, err := url.Parse(srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	at.User = url.UserPassword("someone", "secret-word")
	a := New(at)
	t.Cleanup(a.Close)
	return a
}

// Errors say what to do, and have no password.
func TestErrorsOfTheAPI(t *testing.T) {
	t.Parallel()
	for status, want := range map[int]struct {
		body, text string
		code       fault.Code
	}{
		http.StatusUnauthorized:        {"", "refuses the password: look at OPENCODE_SERVER_PASSWORD", fault.MissingRight},
		http.StatusNotFound:            {`{"name":"NotFoundError","data":{"message":"no such"}}`, "status 404: no such", fault.Internal},
		http.StatusInternalServerError: {strings.Repeat("long\n", 1000), "status 500: long long", fault.Internal},
		http.StatusOK:                  {"<html>", "is not opencode", fault.Incompatible},
		http.StatusFound:               {"", "status 302", fault.Internal},
	} {
		a := apiOf(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(status)
			fmt.Fprint(w, want.body)
		})
		err := a.Get(t.Context(), "/session", nil, new([]Info))
		if err == nil || !strings.Contains(err.Error(), want.text) || len(err.Error()) > 700 || strings.Contains(err.Error(), "secret-word") || fault.CodeOf(err) != want.code {
			t.Errorf("%d: %s: %v", status, fault.CodeOf(err), err)
		}
	}
	a := New(&url.URL{Scheme: "http", Host: "127.0.0.1:1", User: url.UserPassword("someone", "secret-word")})
	if err := a.Get(t.Context(), "/session", nil, new([]Info)); !errors.Is(err, ErrAway) || strings.Contains(err.Error(), "secret-word") || strings.Contains(a.String(), "secret-word") {
		t.Errorf("%v at %s", err, a)
	}
}

// The session that was updated last is chosen, and where that is not one the error lists them.
func TestWhichSessionIsChosen(t *testing.T) {
	t.Parallel()
	const old, child, archived, young = `{"id":"ses_old","directory":"/p","title":"Old","time":{"updated":1}}`, `{"id":"ses_child","parentID":"ses_old","time":{"updated":9}}`,
		`{"id":"ses_archived","time":{"updated":8,"archived":8}}`, `{"id":"ses_young","directory":"/p","title":"Young","time":{"updated":2}}`
	for list, want := range map[string]string{
		"[" + old + "," + child + "," + young + "," + archived + "]": "ses_young",
		"[" + old + "]": "ses_old",
		"[]":            "not_found: ", "[" + child + "]": "not_found: ",
		"[" + old + "," + strings.Replace(young, `"updated":2`, `"updated":1`, 1) + "]": "ambiguous: ",
	} {
		a := apiOf(t, func(w http.ResponseWriter, r *http.Request) {
			switch r.URL.Path {
			case "/session":
				fmt.Fprint(w, list)
			case "/session/ses_old":
				fmt.Fprint(w, old)
			default:
				w.WriteHeader(http.StatusNotFound)
			}
		})
		info, err := a.Choose(t.Context(), "")
		switch {
		case strings.HasSuffix(want, ": "):
			if err == nil || fault.CodeOf(err).String()+": " != want || want == "ambiguous: " && !strings.Contains(err.Error(), `ses_old (1970-01-01T00:00:00Z, "Old"), ses_young`) {
				t.Errorf("%s: %v", list, err)
			}
		case err != nil || info.ID != want || a.dir != "/p":
			t.Errorf("%s: %v, %v", list, info, err)
		}
		if info, err := a.Choose(t.Context(), "ses_old"); err != nil || info.ID != "ses_old" || a.dir != "/p" {
			t.Errorf("by its id: %v, %v", info, err)
		}
		if _, err := a.Choose(t.Context(), "ses_none"); fault.CodeOf(err) != fault.NotFound || strings.Contains(list, "Young") && !strings.Contains(err.Error(), "Young") {
			t.Errorf("of an id that is not there: %v", err)
		}
	}
}
