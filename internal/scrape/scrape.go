// Package scrape reads metrics as a monitor does, for tests.
package scrape

import (
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
)

// Of gives the values that a handler of metrics tells, by the series' text.
func Of(metrics http.Handler) map[string]string {
	w := httptest.NewRecorder()
	metrics.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	values := make(map[string]string)
	for line := range strings.Lines(w.Body.String()) {
		if at := strings.LastIndexByte(line, ' '); line[0] != '#' {
			values[line[:at]] = strings.TrimSpace(line[at:])
		}
	}
	return values
}

// Refusals gives those that a server's metrics have counted, by code.
func Refusals(metrics http.Handler) map[string]int {
	counted := make(map[string]int)
	for series, value := range Of(metrics) {
		if code, is := strings.CutPrefix(series, `mooring_refusals_total{code="`); is {
			counted[strings.TrimSuffix(code, `"}`)], _ = strconv.Atoi(value) // a counter's
		}
	}
	return counted
}
