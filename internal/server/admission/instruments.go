// Instruments: durations of calls, commits and deliveries, and counters of refusals, observed as
// they happen.

package admission

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/dbfault"
	"github.com/mooring-rpc/mooring/internal/session/decide"
	"github.com/mooring-rpc/mooring/rpc"
)

// durationBuckets are the bounds of histograms: from half a millisecond to 16 seconds.
var durationBuckets = prometheus.ExponentialBuckets(0.0005, 2, 16)

// Instruments holds the instruments. It is safe for concurrent use.
type Instruments struct {
	calls      *prometheus.HistogramVec
	Commits    prometheus.Histogram
	Deliveries prometheus.Histogram
	refusals   *prometheus.CounterVec
	Failures   *prometheus.CounterVec
	Stopped    *prometheus.GaugeVec
	requests   *prometheus.CounterVec

	WebhookTries, WebhooksEnded *prometheus.CounterVec

	// The series of calls, by object.
	Gateway, Space, Session, Stream, API prometheus.Observer
}

// NewInstruments returns instruments that have measured nothing yet.
func NewInstruments() *Instruments {
	histogram := func(name, help string) prometheus.HistogramOpts {
		return prometheus.HistogramOpts{Name: "mooring_" + name, Help: help, Buckets: durationBuckets}
	}
	o := &Instruments{
		calls: prometheus.NewHistogramVec(histogram("call_duration_seconds",
			"Calls over Cap'n Proto and Cap'n Web, from when the object got them to the answer, by the object; requests to the API but streams, as api."), []string{"object"}),
		Commits:    prometheus.NewHistogram(histogram("commit_duration_seconds", "Transactions that committed batches, from their begin to the commit.")),
		Deliveries: prometheus.NewHistogram(histogram("delivery_duration_seconds", "Deliveries to followers, from when they were sent until the follower took them.")),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mooring_refusals_total",
			Help: "Calls, batches, ops and requests over HTTP that were answered with a refusal, by its code."}, []string{"code"}),
		Failures: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mooring_commit_failures_total",
			Help: "Transactions that the database did not commit, by what kept it."}, []string{"cause"}),
		Stopped: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "mooring_commits_stopped",
			Help: "1 while nothing can be committed, by what keeps it."}, []string{"cause"}),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mooring_http_requests_total",
			Help: "Requests over HTTP that are answered, by the route that their path fits and the status."}, []string{"route", "status"}),
	}
	o.WebhookTries = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mooring_webhook_tries_total",
		Help: "Notices that were sent to webhooks, by whether they were taken."}, []string{"result"})
	o.WebhooksEnded = prometheus.NewCounterVec(prometheus.CounterOpts{Name: "mooring_webhooks_ended_total",
		Help: "Webhooks that have ended, by why: gone, gave_up, or the code of their ref."}, []string{"why"})
	for _, result := range []string{"taken", "failed"} {
		o.WebhookTries.WithLabelValues(result)
	}
	for _, cause := range dbfault.Causes() {
		o.Failures.WithLabelValues(string(cause)) // so that 0 is exported
		o.Stopped.WithLabelValues(string(cause))
	}
	o.Gateway, o.Space, o.Session, o.Stream, o.API = o.calls.WithLabelValues("gateway"), o.calls.WithLabelValues("space"),
		o.calls.WithLabelValues("session"), o.calls.WithLabelValues("stream"), o.calls.WithLabelValues("api")
	return o
}

// Collectors returns the collectors to register.
func (o *Instruments) Collectors() []prometheus.Collector {
	return []prometheus.Collector{o.calls, o.Commits, o.Deliveries, o.refusals, o.Failures, o.Stopped, o.requests, o.WebhookTries, o.WebhooksEnded}
}

// ObserveCall measures a call until its answer. It must precede everything that may answer.
func (o *Instruments) ObserveCall(c *rpc.Call, of prometheus.Observer) {
	began := time.Now()
	c.OnAnswer(func(err error) {
		of.Observe(time.Since(began).Seconds())
		o.CountRefusal(callFault(err))
	})
}

// CountRequest counts a request over HTTP. pattern is a route of this server, so there are few;
// "" is none.
func (o *Instruments) CountRequest(pattern string, status int) {
	if pattern == "" {
		pattern = "none"
	}
	if status == 0 {
		status = http.StatusOK // net/http's default
	}
	o.requests.WithLabelValues(pattern, strconv.Itoa(status)).Inc()
}

// CountRefusal counts a refusal; nil is none.
func (o *Instruments) CountRefusal(f *fault.Error) {
	if f != nil {
		o.refusals.WithLabelValues(f.Code.String()).Inc()
	}
}

// CountAnswer counts the refused ops of an answer, and returns the code of the first refusal. An
// answer refused as a whole is counted where it is sent. A duplicate was counted before.
func (o *Instruments) CountAnswer(a *decide.Answer) (first fault.Code) {
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
