// The limits of mooring serve: each a flag named after the bound.

package servercmd

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/server"
)

// limitFlags returns a flag for every limit of l, whose values are the defaults.
func limitFlags(l *server.Limits) *pflag.FlagSet {
	limits := pflag.NewFlagSet("limits", pflag.ContinueOnError)
	limits.SortFlags = false
	count := func(p *int, name, help string) { limits.IntVar(p, name, *p, help) }
	size := func(p *int, name, help string) { limits.Var((*byteSize)(p), name, help) }
	span := func(p *time.Duration, name, help string) { cli.DurationVar(limits, p, name, *p, help) }

	count(&l.Connections, "max-connections", "connections at once; beyond: refused")
	count(&l.ConnectionsPerAddress, "max-connections-per-address",
		"of those from one address (an IPv6 /64); behind a proxy all clients have the proxy's address")
	count(&l.Handshakes, "max-handshakes", "HTTP connections that are not a WebSocket yet; beyond: the address with the most loses its oldest")
	span(&l.HandshakeTimeout, "handshake-timeout", "time for a connection to become a WebSocket, and to send its first message")
	span(&l.BatchTimeout, "batch-timeout", "time for an HTTP batch of Cap'n Web or an API request, from its head to the last answer; beyond: cut off")
	span(&l.IdleTimeout, "idle-timeout", "a silent connection is closed after this time if it holds no capabilities")
	span(&l.PingInterval, "ping-interval", "how often a silent WebSocket is pinged")
	span(&l.PingTimeout, "ping-timeout", "time to answer a ping; beyond: closed")
	span(&l.WriteTimeout, "write-timeout", "a peer that reads nothing for this time is closed")
	size(&l.MessageBytes, "max-message-bytes", "one Cap'n Proto message, or half of one of Cap'n Web; beyond: aborted")
	count(&l.Segments, "max-segments", "segments of one message; beyond: aborted")
	count(&l.Nesting, "max-nesting", "depth of pointers, steps of a pipelined path; beyond: the call fails")
	size(&l.TraversalBytes, "max-traversal-bytes", "bytes read from one message, repeats counted; beyond: the call fails")
	count(&l.Questions, "max-questions", "the server's unanswered calls (events to subscribers) per connection; beyond: they wait")
	count(&l.Answers, "max-answers", "a peer's unanswered calls; beyond: overloaded, and aborted at twice as many unfinished")
	size(&l.AnswerBytes, "max-answer-bytes", "size of a peer's calls and results in memory; beyond: overloaded")
	count(&l.Exports, "max-exports", "capabilities of the server that a connection holds; beyond: overloaded")
	count(&l.Imports, "max-imports", "capabilities of a connection that the server holds; beyond: aborted")
	count(&l.QueuedCalls, "max-queued-calls", "calls waiting on one unresolved promise; beyond: overloaded")
	size(&l.QueuedBytes, "max-queued-bytes", "size of messages that a peer has not read; beyond: overloaded, and closed at four times as much")
	size(&l.StrangerBytes, "max-stranger-bytes", "memory for all peers that have not shown a ref, half of it for one address; beyond: they wait 10s, then overloaded")
	size(&l.PeerBytes, "max-peer-bytes", "memory for unanswered messages of all other peers; beyond: as above")
	size(&l.RefBytes, "max-ref-bytes", "of that, for peers under one ref; beyond: as above")
	count(&l.Subscriptions, "max-subscriptions", "subscriptions of one connection; beyond: overloaded")
	count(&l.BatchesInFlight, "max-batches-in-flight", "unanswered batches of one stream; beyond: overloaded")
	count(&l.WrongTries, "max-wrong-tries", "unknown or wrong refs that one address may try at once; beyond: answers are delayed, and after 64 more the connection is aborted")
	span(&l.WrongTryInterval, "wrong-try-interval", "delay between those answers; right refs are never delayed")
	count(&l.CommitQueue, "max-commit-queue", "op intents of all connections that wait for a transaction; beyond: overloaded")
	size(&l.SessionQuota, "session-quota", "size of one session's log and state; beyond: quota_exceeded, except for removals")
	size(&l.RefQuota, "ref-quota", "of that, what was written under one ref that is not an owner's; beyond: quota_exceeded")
	size(&l.CreateQuota, "create-quota", "approximate total size of the sessions made under one ref of the space and its descendants; beyond: quota_exceeded")
	size(&l.ShareBytes, "max-share-bytes", "one sync of opencode's share API, read item by item; beyond: 413")
	size(&l.ShareMessageBytes, "max-share-message", "one message of opencode's share API over Cap'n Web, held whole; beyond: closed")
	count(&l.ShareRequests, "max-share-requests", "requests of one address to that API at once; beyond: they wait, then 429")
	count(&l.ShareCreates, "max-share-creates", "shares created by one address per hour, repeats counted; beyond: 429")
	count(&l.ShareSecrets, "max-share-secrets", "valid secrets of one share; beyond: the oldest ends")
	span(&l.ShareBodyTimeout, "share-body-timeout", "time for a sync to arrive; beyond: cut off")
	span(&l.ShareSyncTimeout, "share-sync-timeout", "time for a sync to be committed while the database is busy or unavailable; beyond: 429 or 503")
	return limits
}

// addLimits adds the flags of limitFlags to cmd, and a section in its help.
func addLimits(cmd *cobra.Command, l *server.Limits) {
	limits := limitFlags(l)
	standard := cmd.UsageFunc()
	cmd.SetUsageFunc(func(c *cobra.Command) error { // and no template: text/template has the linker keep every method there is
		hide := func(hidden bool) { limits.VisitAll(func(f *pflag.Flag) { f.Hidden = hidden }) }
		var text strings.Builder
		out := c.OutOrStderr()
		c.SetOut(&text)
		hide(true)
		err := standard(c)
		hide(false)
		c.SetOut(out)
		const after = "\n\nGlobal Flags:\n"
		before, rest, _ := strings.Cut(text.String(), after)
		_, writing := fmt.Fprint(out, before, "\n\nLimits (sizes as 16MiB, times as 10s):\n", strings.TrimRight(limits.FlagUsages(), " \n"), after, rest)
		return errors.Join(err, writing)
	})
	cmd.Flags().AddFlagSet(limits)
}

// checkLimits returns an error for the first invalid limit.
func checkLimits(flags *pflag.FlagSet, limits server.Limits) error {
	var err error
	flags.VisitAll(func(f *pflag.Flag) {
		if err == nil && f.Changed {
			err = checkLimit(f)
		}
	})
	if err != nil {
		return err
	}
	return replaceMessage(limits.Validate(), limitNames)
}

// limitNames are the flags' names of limits that have to go together.
var limitNames = strings.NewReplacer("Limits.MessageBytes", "--max-message-bytes", "Limits.TraversalBytes", "--max-traversal-bytes",
	"Limits.StrangerBytes", "--max-stranger-bytes", "Limits.RefBytes", "--max-ref-bytes", "Limits.PeerBytes", "--max-peer-bytes")

// checkLimit checks one limit.
func checkLimit(f *pflag.Flag) error {
	switch v := f.Value.(type) {
	case *byteSize:
		if *v <= 0 {
			return fault.Usage.With("--%s counts from 1B", f.Name)
		}
	default:
		zero := v.String() == "0" || v.String() == "0s" || strings.HasPrefix(v.String(), "-")
		if zero && (strings.HasPrefix(f.Name, "max-") || strings.HasSuffix(f.Name, "-timeout") || f.Name == "ping-interval" || f.Name == "wrong-try-interval") {
			return fault.Usage.With("--%s must be above 0", f.Name)
		}
	}
	return nil
}

// byteSize is a flag's number of bytes: 65536, 64KiB, 16 MiB.
type byteSize int

// Set implements pflag.Value.
func (b *byteSize) Set(s string) error {
	n, err := humanize.ParseBytes(s)
	if err != nil || n > 1<<40 {
		return fault.Usage.With("%q is not a size such as 64KiB or 16MiB", s)
	}
	*b = byteSize(n)
	return nil
}

// String implements pflag.Value: the exact value, in the largest unit that divides it.
func (b *byteSize) String() string {
	n, unit := uint64(*b), 0
	for ; n > 0 && n%1024 == 0 && unit < len(byteUnits)-1; unit++ {
		n /= 1024
	}
	return strconv.FormatUint(n, 10) + byteUnits[unit]
}

var byteUnits = []string{"B", "KiB", "MiB", "GiB", "TiB"}

// Type implements pflag.Value.
func (b *byteSize) Type() string { return "size" }
