package servercmd

import (
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/server"
)

// limitFields says which field each limit's flag is for.
func limitFields(l *server.Limits) map[string]any {
	return map[string]any{
		"max-connections": &l.Connections, "max-connections-per-address": &l.ConnectionsPerAddress, "max-handshakes": &l.Handshakes,
		"max-stranger-bytes": &l.StrangerBytes, "max-peer-bytes": &l.PeerBytes, "max-ref-bytes": &l.RefBytes,
		"max-subscriptions": &l.Subscriptions, "max-batches-in-flight": &l.BatchesInFlight, "max-commit-queue": &l.CommitQueue,
		"batch-timeout": &l.BatchTimeout, "max-wrong-tries": &l.WrongTries, "wrong-try-interval": &l.WrongTryInterval,
		"handshake-timeout": &l.HandshakeTimeout, "idle-timeout": &l.IdleTimeout, "ping-interval": &l.PingInterval,
		"ping-timeout": &l.PingTimeout, "write-timeout": &l.WriteTimeout,
		"max-message-bytes": &l.MessageBytes, "max-segments": &l.Segments, "max-nesting": &l.Nesting,
		"max-traversal-bytes": &l.TraversalBytes, "max-questions": &l.Questions, "max-answers": &l.Answers,
		"max-answer-bytes": &l.AnswerBytes, "max-exports": &l.Exports, "max-imports": &l.Imports,
		"max-share-bytes": &l.ShareBytes, "max-share-message": &l.ShareMessageBytes, "max-share-requests": &l.ShareRequests,
		"max-share-creates": &l.ShareCreates, "max-share-secrets": &l.ShareSecrets,
		"share-body-timeout": &l.ShareBodyTimeout, "share-sync-timeout": &l.ShareSyncTimeout,
		"session-quota": &l.SessionQuota, "ref-quota": &l.RefQuota, "create-quota": &l.CreateQuota,
		"max-queued-calls": &l.QueuedCalls, "max-queued-bytes": &l.QueuedBytes,
	}
}

// Every limit has a flag that sets its field and no other, and stands in the help once.
func TestLimitFlags(t *testing.T) {
	t.Parallel()
	flags := func() (*cobra.Command, *server.Limits) {
		limits := server.DefaultLimits()
		cmd := &cobra.Command{Use: "x"}
		addLimits(cmd, &limits)
		return cmd, &limits
	}
	help := Serve(&cli.Env{}).Flags().FlagUsages()
	untouched := server.DefaultLimits()
	fields := limitFields(&untouched)
	all, _ := flags()
	all.Flags().VisitAll(func(f *pflag.Flag) {
		if f.Name == "help" {
			return
		}
		if fields[f.Name] == nil {
			t.Errorf("--%s is for no field that the test knows", f.Name)
			return
		}
		cmd, limits := flags()
		value := map[string]string{"int": "123", "size": "123MiB", "duration": "123s"}[f.Value.Type()]
		if err := cmd.Flags().Set(f.Name, value); err != nil {
			t.Errorf("--%s %s: %v", f.Name, value, err)
		}
		for name, field := range limitFields(limits) {
			if changed := !reflect.DeepEqual(field, fields[name]); changed != (name == f.Name) {
				t.Errorf("--%s: the field of --%s has changed is %v", f.Name, name, changed)
			}
		}
		if err := checkLimits(cmd.Flags(), *limits); (err != nil) != (f.Name == "max-message-bytes") { // above what may be traversed
			t.Errorf("--%s %s: %v", f.Name, value, err)
		}
		if n := strings.Count(help, "--"+f.Name+" "); n != 1 {
			t.Errorf("the help names --%s %d times", f.Name, n)
		}
	})
	for name := range fields {
		if all.Flags().Lookup(name) == nil {
			t.Errorf("there is no --%s", name)
		}
	}
}
