// Package opencodeapi calls the HTTP API of a running opencode, as far as it is used. Its methods may be called concurrently, but for Use and Choose.
package opencodeapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/mooring-rpc/mooring/fault"
)

const (
	apiTimeout  = time.Minute      // of an answer as a whole
	apiPatience = 15 * time.Second // for an answer to begin: an opencode that is being started may never answer what came too early
	maxAnswer   = 64 << 20         // of an answer that is read whole, in bytes
	maxRefusal  = 300              // of an error's text that is shown
)

// ErrAway is the error of an opencode that does not answer.
var ErrAway = errors.New("opencode does not answer")

// ErrBrokeOff is the error of an answer that has begun, and is an ErrAway.
var ErrBrokeOff = fmt.Errorf("%w to the end", ErrAway)

// API is opencode's, at one address.
type API struct {
	base           url.URL // without user and password
	user, password string
	http           *http.Client

	dir string // the folder of the session: opencode serves one at a time
}

// New returns the API at an address, which may have the user and the password.
func New(at *url.URL) *API {
	a := &API{base: *at, http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute, ResponseHeaderTimeout: apiPatience},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	if a.base.User = nil; at.User != nil {
		a.user = at.User.Username()
		a.password, _ = at.User.Password()
	}
	return a
}

// Close closes connections that nothing is asked on.
func (a *API) Close() { a.http.CloseIdleConnections() }

// String returns the address, without a password.
func (a *API) String() string { return a.base.String() }

// StatusError is a refusal of opencode's.
type StatusError struct {
	Status int
	Text   string
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("opencode answered with status %d: %s", e.Status, e.Text)
}

// IsStatus reports whether an error is a refusal with a status.
func IsStatus(err error, status int) bool {
	e := (*StatusError)(nil)
	return errors.As(err, &e) && e.Status == status
}

// Open makes a request and returns the answer, whose status is good.
func (a *API) Open(ctx context.Context, method, path string, query url.Values, body any) (*http.Response, error) {
	at := a.base.JoinPath(path)
	if a.dir != "" {
		if query == nil {
			query = url.Values{}
		}
		query.Set("directory", a.dir)
	}
	at.RawQuery = query.Encode()
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, err
		}
		in = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, at.String(), in)
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if a.user != "" || a.password != "" {
		req.SetBasicAuth(a.user, a.password)
	}
	res, err := a.http.Do(req)
	if err != nil {
		if e := (*url.Error)(nil); errors.As(err, &e) {
			err = e.Err
		}
		return nil, fmt.Errorf("%w at %s: %w", ErrAway, &a.base, err)
	}
	if res.StatusCode < 200 || res.StatusCode > 299 {
		defer res.Body.Close()
		return nil, a.refusal(res)
	}
	return res, nil
}

// refusal returns the error of an answer.
func (a *API) refusal(res *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(res.Body, 64<<10)) // what there is
	said := strings.Join(strings.Fields(string(text)), " ")
	if strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") { // no API's
		said = "a page of HTML"
	}
	var of struct {
		Message string `json:"message"`
		Data    struct {
			Message string `json:"message"`
		} `json:"data"`
	}
	if json.Unmarshal(text, &of) == nil && of.Message+of.Data.Message != "" {
		if said = of.Message; said == "" {
			said = of.Data.Message
		}
	}
	if len(said) > maxRefusal {
		said = said[:maxRefusal] + "…"
	}
	err := &StatusError{res.StatusCode, strings.ToValidUTF8(said, "")}
	if res.StatusCode != http.StatusUnauthorized {
		return err
	}
	if a.password == "" {
		return fault.MissingRight.Because(err, "opencode at %s wants a password: set OPENCODE_SERVER_PASSWORD (and OPENCODE_SERVER_USERNAME, if it is not opencode)", &a.base)
	}
	return fault.MissingRight.Because(err, "opencode at %s refuses the password: look at OPENCODE_SERVER_PASSWORD and OPENCODE_SERVER_USERNAME", &a.base)
}

// call makes a request and reads the answer into to, if that is not nil.
func (a *API) call(ctx context.Context, method, path string, query url.Values, body, to any) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	res, err := a.Open(ctx, method, path, query, body)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", ErrAway, err)
	case to == nil:
		return nil
	case len(text) > maxAnswer:
		return fault.Incompatible.With("opencode's answer to %s %s has more than %d bytes", method, path, maxAnswer)
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fault.Incompatible.Because(err, "what answers at %s is not opencode, or of another version: its answer to %s %s cannot be read", &a.base, method, path)
	}
	return nil
}

// Get reads the answer at a path into to, if that is not nil.
func (a *API) Get(ctx context.Context, path string, query url.Values, to any) error {
	return a.call(ctx, http.MethodGet, path, query, nil, to)
}

// Post posts a body, nil for none, to a path.
func (a *API) Post(ctx context.Context, path string, body any) error {
	return a.call(ctx, http.MethodPost, path, nil, body, nil)
}

// SessionPath returns a path of a session.
func SessionPath(id string, rest ...string) string {
	path := "/session/" + url.PathEscape(id)
	for _, r := range rest {
		path += "/" + url.PathEscape(r)
	}
	return path
}

// Info returns the info of a session as it is; nil if opencode has no such session.
func (a *API) Info(ctx context.Context, id string) (info json.RawMessage, err error) {
	err = a.Get(ctx, SessionPath(id), nil, &info)
	if IsStatus(err, http.StatusNotFound) {
		return nil, nil
	}
	return info, err
}

// EachMessage calls f with every message of a session {info, parts}, the oldest first.
func (a *API) EachMessage(ctx context.Context, id string, f func(json.RawMessage) error) error {
	res, err := a.Open(ctx, http.MethodGet, SessionPath(id, "message"), nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.Header.Get("X-Next-Cursor") != "" {
		return fault.Incompatible.With("opencode answered, but not with all messages")
	}
	in := json.NewDecoder(res.Body)
	if begin, err := in.Token(); err != nil || begin != json.Delim('[') {
		return fault.Incompatible.With("opencode's messages are not a list")
	}
	for in.More() {
		var m json.RawMessage
		if err := in.Decode(&m); err != nil {
			return fmt.Errorf("%w: read the messages: %w", ErrBrokeOff, err)
		}
		if err := f(m); err != nil {
			return err
		}
	}
	if _, err := in.Token(); err != nil { // of a list that broke off, nothing may be taken for removed
		return fmt.Errorf("%w: read the messages: %w", ErrBrokeOff, err)
	}
	return nil
}

// Busy returns the sessions that work on something.
func (a *API) Busy(ctx context.Context) (map[string]bool, error) {
	var status map[string]struct {
		Type string `json:"type"`
	}
	err := a.Get(ctx, "/session/status", nil, &status)
	list := map[string]bool{}
	for id, s := range status {
		list[id] = s.Type != "idle"
	}
	return list, err
}
