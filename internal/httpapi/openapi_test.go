//go:build unix

// The description is held to the server: every exchange of every test is checked
// against it.

package httpapi

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/teststore"
)

// described is the description and the way to find an operation in it.
type described struct {
	doc    *openapi3.T
	router routers.Router
}

var theDescription = sync.OnceValues(func() (*described, error) {
	doc, err := openapi3.NewLoader().LoadFromData(description)
	if err != nil {
		return nil, err
	}
	router, err := legacy.NewRouter(doc)
	return &described{doc, router}, err
})

func openAPI(t testing.TB) *described {
	t.Helper()
	d, err := theDescription()
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// checkable bounds what is checked of a body, in bytes.
const checkable = 1 << 20

// checked is a transport that has every reply fit the description, and every
// request that was accepted. ops counts replies by operation and status.
type checked struct {
	t    testing.TB
	next http.RoundTripper

	mu  sync.Mutex
	ops map[string]int
}

// count is how many replies there were of an operation and status.
func (c *checked) count(op string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ops[op]
}

// RoundTrip implements http.RoundTripper.
func (c *checked) RoundTrip(req *http.Request) (*http.Response, error) {
	var body []byte
	if req.Body != nil && req.ContentLength >= 0 && req.ContentLength <= checkable {
		var err error
		if body, err = io.ReadAll(req.Body); err != nil {
			return nil, err
		}
		req.Body = io.NopCloser(bytes.NewReader(body))
	}
	resp, err := c.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	asServed := req.Clone(req.Context()) // with the path alone: the description names no host
	asServed.URL = &url.URL{Path: req.URL.Path, RawQuery: req.URL.RawQuery}
	route, params, err := openAPI(c.t).router.FindRoute(asServed)
	if err != nil { // what is not there, and preflights
		if resp.StatusCode != 404 && resp.StatusCode != 405 && resp.StatusCode != 403 && resp.StatusCode != 204 {
			c.t.Errorf("%s %s is not described and gives %d", req.Method, req.URL.Path, resp.StatusCode)
		}
		return resp, nil
	}
	c.mu.Lock()
	c.ops[fmt.Sprintf("%s %d", route.Operation.OperationID, resp.StatusCode)]++
	c.mu.Unlock()
	input := &openapi3filter.RequestValidationInput{Request: asServed, PathParams: params, Route: route,
		Options: &openapi3filter.Options{IncludeResponseStatus: true, AuthenticationFunc: openapi3filter.NoopAuthenticationFunc}}
	if resp.StatusCode < 300 && req.ContentLength <= checkable {
		input.Request.Body = io.NopCloser(bytes.NewReader(body))
		if err := openapi3filter.ValidateRequest(req.Context(), input); err != nil {
			c.t.Errorf("%s %s was accepted and does not fit the description: %v\n%s", req.Method, req.URL.Path, err, body)
		}
	}
	if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/event-stream") {
		return resp, nil // stream.next looks at what it says
	}
	text, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	resp.Body = io.NopCloser(bytes.NewReader(text))
	if err != nil {
		return nil, err
	}
	if len(text) <= checkable {
		if err := openapi3filter.ValidateResponse(req.Context(), (&openapi3filter.ResponseValidationInput{RequestValidationInput: input, Status: resp.StatusCode,
			Header: resp.Header, Options: input.Options}).SetBodyBytes(text)); err != nil {
			c.t.Errorf("%s %s gives %d, which does not fit the description: %v\n%s", req.Method, req.URL.Path, resp.StatusCode, err, text)
		}
	}
	return resp, nil
}

// fits fails the test if JSON text does not fit a schema of the description.
func fits(t testing.TB, schema, text string) {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	if err := openAPI(t).doc.Components.Schemas[schema].Value.VisitJSON(v, openapi3.EnableJSONSchema2020()); err != nil {
		t.Errorf("it does not fit %s: %v: %s", schema, err, text)
	}
}

func TestTheDescriptionIsSound(t *testing.T) {
	t.Parallel()
	doc := openAPI(t).doc
	if err := doc.Validate(t.Context()); err != nil {
		t.Error(err)
	}
	// Every code of the list, and no others.
	var codes []any
	for c := fault.Code(1); c < 1000; c++ {
		if !strings.HasPrefix(c.String(), "code_") {
			codes = append(codes, c.String())
		}
	}
	if got := doc.Components.Schemas["Error"].Value.Properties["code"].Value.Enum; !slices.Equal(got, codes) {
		t.Errorf("the codes are %v, described are %v", codes, got)
	}
	// Every route, and no others.
	var routes, paths []string
	for pattern, methods := range New(Config{}).routes() {
		for method := range methods {
			routes = append(routes, method+" "+pattern)
		}
	}
	for path, item := range doc.Paths.Map() {
		for method := range item.Operations() {
			paths = append(paths, method+" "+strings.TrimSuffix(Path, "/")+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(paths)
	if !slices.Equal(routes, paths) {
		t.Errorf("the server has\n%s\ndescribed are\n%s", strings.Join(routes, "\n"), strings.Join(paths, "\n"))
	}
	for path, item := range doc.Paths.Map() {
		for method, op := range item.Operations() {
			if _, ok := op.Responses.Map()["200"]; !ok && op.Responses.Value("201") == nil {
				t.Errorf("%s %s says nothing of success: %v", method, path, slices.Collect(maps.Keys(op.Responses.Map())))
			}
		}
	}
}

func TestTheDescriptionIsServed(t *testing.T) {
	t.Parallel()
	r := start(t, teststore.SQLite(t), nil)
	got := r.ask("GET", "/openapi.json", "", nil) // without a ref
	if got.status != 200 || !bytes.Equal(got.text, description) || got.json["openapi"] != "3.1.0" {
		t.Errorf("%d %.100s", got.status, got.text)
	}
}
