// Metrics in the Prometheus formats. They are gathered when they are scraped; between scrapes they
// cost only the counters.

package node

import (
	"net/http"
	"runtime/debug"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/mooring-rpc/mooring/capnweb"
	"github.com/mooring-rpc/mooring/internal/membudget"
	"github.com/mooring-rpc/mooring/internal/server/admission"
	"github.com/mooring-rpc/mooring/rpc"
)

// Metrics returns a handler that serves the metrics of the server and its process, in the
// Prometheus formats. They contain no session, ref or peer. Its answers have a request id, as all do.
func (s *Server) Metrics() http.Handler {
	reg := prometheus.NewRegistry()
	reg.MustRegister(s.instruments.Collectors()...)
	reg.MustRegister(metrics{s}, buildInfo(s.cfg.Name), collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return s.withRequestID(promhttp.HandlerFor(reg, promhttp.HandlerOpts{Registry: reg}))
}

// traffic is the sum of counters of connections.
type traffic struct{ messagesIn, messagesOut, bytesIn, bytesOut uint64 }

func (t *traffic) add(s rpc.Stats) {
	t.messagesIn += s.MessagesIn
	t.messagesOut += s.MessagesOut
	t.bytesIn += s.BytesIn
	t.bytesOut += s.BytesOut
}

// metrics implements prometheus.Collector.
type metrics struct{ s *Server }

func desc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("mooring_"+name, help, labels, nil)
}

var (
	descConnections     = desc("connections", "Connections that are open, of both wires.")
	descHandshakes      = desc("handshakes", "HTTP connections that are no WebSocket, or not yet.")
	descHits            = desc("limit_hits_total", "How often a limit was met, by its name.", "limit")
	descPeerBytes       = desc("peer_bytes", "Bytes held for what peers sent that is not answered, by who they are: known have shown a ref.", "peers")
	descPeerRefused     = desc("peer_bytes_refused_total", "How often there was no room for what peers sent.", "peers")
	descTables          = desc("vat_objects", "Entries of the connections' tables, and calls queued on promises.", "table")
	descQueued          = desc("vat_queued_bytes", "Bytes that peers have not read yet.")
	descMessages        = desc("vat_messages_total", "Cap'n Proto messages.", "direction")
	descBytes           = desc("vat_bytes_total", "Bytes of Cap'n Proto messages.", "direction")
	descCapnwebOpen     = desc("web_connections", "WebSockets of Cap'n Web that are open.")
	descCapnwebBatches  = desc("web_batches_total", "HTTP batches of Cap'n Web.")
	descCapnwebTables   = desc("web_objects", "Entries of the tables of connections over Cap'n Web.", "table")
	descCapnwebQueued   = desc("web_queued_bytes", "Bytes that peers have not read yet.")
	descCapnwebMessages = desc("web_messages_total", "Cap'n Web messages.", "direction")
	descCapnwebBytes    = desc("web_bytes_total", "Bytes of Cap'n Web messages.", "direction")
	descPending         = desc("commit_queue_ops", "Op intents that wait for a transaction.")
	descCommits         = desc("commits_total", "Transactions that committed batches.")
	descCommitted       = desc("committed_ops_total", "Op intents in them.")
	descDatabase        = desc("database_connections", "Connections to Postgres: those that there are, and how many there may be.", "which")
	descShort           = desc("database_connections_short", "1 while the database, its role or a pooler has fewer connections than there may be.")
	descCommittedB      = desc("committed_bytes_total", "Bytes of their arguments.")
	descFollowers       = desc("followers", "Subscriptions of sessions.")
	descFollowed        = desc("followed_sessions", "Sessions that somebody follows here.")
	descBehind          = desc("followers_behind_events", "Events that are known of and not sent to their followers yet: all followers together.")
	descLag             = desc("follower_lag_events", "The same of the follower that lacks most.")
	descSessions        = desc("sessions", "Sessions in the database, as they were last counted: those that are there, and what is left of deleted ones.", "life")
	descEvents          = desc("session_events", "Events in the logs of all sessions, as they were last counted.")
	descStored          = desc("session_bytes", "Bytes that all sessions hold, as their quotas count them, when they were last counted.")
	descForks           = desc("forks", "Large forks, as they were last looked up: those that are being copied, those that are copied and wait to be asked for, and those that have failed and are being removed.", "state")
	descForkBytes       = desc("fork_bytes", "Bytes of them that are copied.")
	descReadBatches     = desc("batches_read_total", "Batches, by whether they were usual enough to be read by hand, or read by the generated code, as all of Cap'n Web are.", "way")
)

// Describe implements prometheus.Collector: it describes nothing, since Collect's series are not all
// there at every time.
func (m metrics) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (m metrics) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v int, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, float64(v), labels...)
	}
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	s := m.s
	gauge(descConnections, s.connections.Count())
	gauge(descHandshakes, s.handshakes.Count())
	commits := s.committer.Stats()
	gauge(descPending, commits.PendingOps)
	counter(descCommits, commits.Transactions)
	counter(descCommitted, commits.Ops)
	counter(descCommittedB, commits.Bytes)
	followers, sessions, behind, lag := s.hub.Followers()
	gauge(descFollowers, followers)
	gauge(descFollowed, sessions)
	gauge(descBehind, int(behind))
	gauge(descLag, int(lag))
	if all := s.operator.Counted(); all != nil {
		gauge(descSessions, int(all.Live), "live")
		gauge(descSessions, int(all.Deleted), "deleted")
		gauge(descEvents, int(all.Events))
		gauge(descStored, int(all.Bytes))
	}
	if forks := s.operator.Copying(); forks != nil {
		gauge(descForks, forks.Going, "copying")
		gauge(descForks, forks.Ready, "copied")
		gauge(descForks, forks.Failed, "failed")
		gauge(descForkBytes, int(forks.Bytes))
	}
	if have, limit, short := s.cfg.Store.PoolStats(); limit > 0 {
		gauge(descDatabase, have, "open")
		gauge(descDatabase, limit, "most")
		gauge(descShort, map[bool]int{true: 1}[short])
	}
	byHand, generated := s.objects.BatchesRead()
	counter(descReadBatches, byHand, "hand")
	counter(descReadBatches, generated, "generated")
	for _, b := range admission.AllLimits() {
		counter(descHits, s.limitHits.Count(b), b.String())
	}
	for _, l := range rpc.AllLimits() {
		counter(descHits, s.rpcLimitHits.Of(l), string(l))
	}
	strangers, known := s.MemoryBudgets()
	for peers, budget := range map[string]*membudget.Budget{"strangers": strangers, "known": known} {
		is := budget.Stats()
		gauge(descPeerBytes, int(is.Held), peers)
		counter(descPeerRefused, is.Refused, peers)
	}
	sum, total := s.traffic()
	gauge(descTables, sum.Questions, "questions")
	gauge(descTables, sum.Answers, "answers")
	gauge(descTables, sum.Exports, "exports")
	gauge(descTables, sum.Imports, "imports")
	gauge(descTables, sum.Embargoes, "embargoes")
	gauge(descTables, sum.QueuedCalls, "queued_calls")
	gauge(descQueued, sum.QueuedBytes)
	counter(descMessages, total.messagesIn, "in")
	counter(descMessages, total.messagesOut, "out")
	counter(descBytes, total.bytesIn, "in")
	counter(descBytes, total.bytesOut, "out")
	m.collectCapnweb(gauge, counter)
}

// collectCapnweb collects the metrics of connections over Cap'n Web.
func (m metrics) collectCapnweb(gauge func(*prometheus.Desc, int, ...string), counter func(*prometheus.Desc, uint64, ...string)) {
	open, sum, total, batches := m.s.capnweb.stats()
	gauge(descCapnwebOpen, open)
	counter(descCapnwebBatches, batches)
	gauge(descCapnwebTables, sum.Exports, "exports")
	gauge(descCapnwebTables, sum.Imports, "imports")
	gauge(descCapnwebTables, sum.Calls, "calls")
	gauge(descCapnwebQueued, int(sum.QueueBytes))
	for _, l := range capnweb.AllLimits() {
		counter(descHits, m.s.capnweb.limitHits.Of(l), "web_"+string(l))
	}
	counter(descCapnwebMessages, total.messagesIn, "in")
	counter(descCapnwebMessages, total.messagesOut, "out")
	counter(descCapnwebBytes, total.bytesIn, "in")
	counter(descCapnwebBytes, total.bytesOut, "out")
}

// traffic sums the tables of the open connections, and the counters of all connections.
func (s *Server) traffic() (sum rpc.Stats, total traffic) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total = s.closedTraffic
	for c := range s.conns {
		one := c.Stats()
		total.add(one)
		sum.Questions += one.Questions
		sum.Answers += one.Answers
		sum.Exports += one.Exports
		sum.Imports += one.Imports
		sum.Embargoes += one.Embargoes
		sum.QueuedCalls += one.QueuedCalls
		sum.QueuedBytes += one.QueuedBytes
	}
	return sum, total
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
