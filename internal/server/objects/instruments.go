// Instruments: durations of calls, commits and deliveries, and counters of refusals, observed as
// they happen.

package objects

import (
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/session"
	"github.com/mooring-rpc/mooring/rpc"
)

// durationBuckets are the bounds of histograms: from half a millisecond to 16 seconds.
var durationBuckets = prometheus.ExponentialBuckets(0.0005, 2, 16)

// instruments holds the instruments. It is safe for concurrent use.
type instruments struct {
	calls      *prometheus.HistogramVec
	commits    prometheus.Histogram
	deliveries prometheus.Histogram
	refusals   *prometheus.CounterVec
	failures   *prometheus.CounterVec
	stopped    *prometheus.GaugeVec
	requests   *prometheus.CounterVec

	// The series of calls, by object.
	gateway, space, session, stream, api prometheus.Observer
}

func newInstruments() *instruments {
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "mooring_" + name, Help: help, Buckets: durationBuckets}
	}
	o := &instruments{
		calls: prometheus.NewHistogramVec(histogram("call_duration_seconds",
			"Calls over Cap'n Proto and Cap'n Web, from when the object got them to the answer, by the object; requests to the API but streams, as api."), []string{"object"}),
		commits:    prometheus.NewHistogram(histogram("commit_duration_seconds", "Transactions that committed batches, from their begin to the commit.")),
		deliveries: prometheus.NewHistogram(histogram("delivery_duration_seconds", "Deliveries to followers, from when they were sent until the follower took them.")),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mooring_refusals_total",
			Help: "Calls, batches, ops and requests over HTTP that were answered with a refusal, by its code."}, []string{"code"}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mooring_commit_failures_total",
			Help: "Transactions that the database did not commit, by what kept it."}, []string{"cause"}),
		stopped: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mooring_commits_stopped",
			Help: "1 while nothing can be committed, by what keeps it."}, []string{"cause"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mooring_http_requests_total",
			Help: "Requests over HTTP that are answered, by the route that their path fits and the status."}, []string{"route", "status"}),
	}
	for _, cause := range dbfault.Causes() {
		o.failures.WithLabelValues(string(cause)) // so that 0 is exported
		o.stopped.WithLabelValues(string(cause))
	}
	o.gateway, o.space, o.session, o.stream, o.api = o.calls.WithLabelValues("gateway"), o.calls.WithLabelValues("space"),
		o.calls.WithLabelValues("session"), o.calls.WithLabelValues("stream"), o.calls.WithLabelValues("api")
	return o
}

// collectors returns the collectors to register.
func (o *instruments) collectors() []prometheus.Collector {
	return []prometheus.Collector{o.calls, o.commits, o.deliveries, o.refusals, o.failures, o.stopped, o.requests}
}

// observeCall measures a call until its answer. It must precede everything that may answer.
func (o *instruments) observeCall(c *rpc.Call, of prometheus.Observer) {
	began := time.Now()
	c.OnAnswer(func(err error) {
		of.Observe(time.Since(began).Seconds())
		o.countRefusal(callFault(err))
	})
}

// callFault converts a call's error to the fault that its caller gets; nil for nil.
func callFault(err error) *fault.Error {
	switch e := err.(type) {
	case nil:
		return nil
	case exception:
		return e.fault
	case *rpc.Exception:
		return exceptionFault(e)
	}
	return fault.Internal.With("")
}

// ObserveRequest measures a request to a face that began at began and is answered now.
func (s *Server) ObserveRequest(began time.Time) {
	s.instruments.api.Observe(time.Since(began).Seconds())
}

// countRequest counts a request over HTTP. pattern is a route of this server, so there are few;
// "" is none.
func (o *instruments) countRequest(pattern string, status int) {
	if pattern == "" {
		pattern = "none"
	}
	if status == 0 {
		status = http.StatusOK // net/http's default
	}
	o.requests.WithLabelValues(pattern, strconv.Itoa(status)).Inc()
}

// countRefusal counts a refusal; nil is none.
func (o *instruments) countRefusal(f *fault.Error) {
	if f != nil {
		o.refusals.WithLabelValues(f.Code.String()).Inc()
	}
}

// countAnswer counts the refused ops of an answer, and returns the code of the first refusal. An
// answer refused as a whole is counted where it is sent. A duplicate was counted before.
func (o *instruments) countAnswer(a *session.Answer) (first fault.Code) {
	if a.Err != nil {
		first = a.Err.Code
	}
	if a.Duplicate {
		return first
	}
	for i := range a.Outcomes {
		if code := a.Outcomes[i].Status.Code(); code != fault.None {
			if why := a.Outcomes[i].Reason; why != fault.None {
				code = why
			}
			o.refusals.WithLabelValues(code.String()).Inc()
			if first == fault.None {
				first = code
			}
		}
	}
	return first
}

// buildInfo is a series of value 1 labeled with the build.
func buildInfo(name string) prometheus.Collector {
	_, version, _ := strings.Cut(name, "/")
	labels := prometheus.Labels{"version": version, "goversion": "", "revision": ""}
	if info, ok := debug.ReadBuildInfo(); ok {
		labels["goversion"] = info.GoVersion
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				labels["revision"] = s.Value
			}
		}
	}
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "mooring_build_info", Help: "1, for the build that is running.", ConstLabels: labels},
		func() float64 { return 1 })
}
