package server

import (
	"go/ast"
	"go/parser"
	"go/token"
	"net"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/server/node"
	"github.com/mooring-rpc/mooring/internal/share"
)

func TestOrigins(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"app.example", "app.example:8080", "*.example", "https://app.example", "http://*.example:8080", "chrome-extension://abc", "[::1]:3000", "*"} {
		if !isOrigin(good) {
			t.Errorf("%q is none", good)
		}
	}
	for _, bad := range []string{"http://x y", "x y", "https://app.example/", "app.example/x", "", " ", "://x", "https://", "ht tp://x", "[a", "u@x"} {
		if isOrigin(bad) {
			t.Errorf("%q is one", bad)
		}
	}
}

// A sealed ref can be redeemed at every address at which the server knows itself.
func TestAudiences(t *testing.T) {
	t.Parallel()
	listening := []net.Addr{&net.TCPAddr{IP: net.IPv4zero, Port: 7611}, &net.UnixAddr{Name: "/run/capnp", Net: "unix"}, &net.TCPAddr{IP: net.IPv4(10, 0, 0, 7), Port: 7612}}
	for _, c := range []struct {
		advertised, more []string
		want             string
	}{
		{[]string{"a.example:7600", "b.example:7600"}, []string{"127.0.0.1:7611"}, "a.example:7600 b.example:7600 127.0.0.1:7611 "},
		{nil, nil, ""},
		{nil, []string{"agents:7611"}, "agents:7611 "},
	} {
		if got := strings.Join(audiences(c.advertised, c.more, listening), " "); got != c.want+"127.0.0.1:7611 localhost:7611 10.0.0.7:7612" {
			t.Errorf("%v, %v: %s", c.advertised, c.more, got)
		}
	}
}

// The error of a configuration names the field.
func TestValidate(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		"":                                  func(*Config) {},
		"Config.Dir is missing":             func(c *Config) { c.Dir = "" },
		"Config.DatabaseConnections is a n": func(c *Config) { c.DatabaseConnections, c.DatabaseURL = 2, "postgres://h/d" },
		"Config.DatabaseConnections is for a Postgres: name it with Config.DatabaseURL": func(c *Config) { c.DatabaseConnections = 3 },
		"Config.DatabaseURL cannot be read":                                             func(c *Config) { c.DatabaseURL = "postgres://u:secret@h:port/d" },
		`Config.Origins "x y" is neither`:                                               func(c *Config) { c.Origins = []string{"a", "x y"} },
		"Config.ShareKey is shorter than 16":                                            func(c *Config) { c.ShareKey = "123456789012345" },
		"Config.Address: ":                                                              func(c *Config) { c.Address = "mooring://" },
		"Config.Address: a server cannot be below /api":                                 func(c *Config) { c.Address = "mooring://h/api" },
		"Config.PublicURL is not http://HOST or https://HOST":                           func(c *Config) { c.PublicURL = "ftp://h" },
		"Limits.MessageBytes must hold a batch":                                         func(c *Config) { c.Limits.MessageBytes = 1 << 20 },
		"Limits.TraversalBytes must be at least Limits.MessageBytes":                    func(c *Config) { c.Limits.TraversalBytes = 15 << 20 },
		"Limits.StrangerBytes must be at least 8.0 MiB":                                 func(c *Config) { c.Limits.StrangerBytes = 1 },
		"Limits.RefBytes and Limits.PeerBytes must":                                     func(c *Config) { c.Limits.RefBytes = 63 << 20 },
	} {
		cfg := Config{Dir: "data"}
		change(&cfg)
		err := cfg.Validate()
		if want == "" {
			if err != nil {
				t.Error(err)
			}
		} else if fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for want, cfg := range map[string]Config{"Config.Address and Config.Addrs": {Dir: "data"}, "Config.Address: ": {Dir: "data", Address: "mooring://"}} {
		if _, err := New(t.Context(), cfg); fault.CodeOf(err) != fault.Usage || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// limited says which field each limit is for.
func limited(c *node.Config, shareCfg *share.Config) map[string]any {
	return map[string]any{
		"Connections": &c.Connections, "ConnectionsPerAddress": &c.ConnectionsPerAddress, "Handshakes": &c.Handshakes,
		"StrangerBytes": &c.StrangerBytes, "PeerBytes": &c.KnownBytes, "RefBytes": &c.RefBytes,
		"Subscriptions": &c.Subscriptions, "BatchesInFlight": &c.BatchesInFlight, "CommitQueue": &c.QueueOps,
		"BatchTimeout": &c.BatchTimeout, "WrongTries": &c.WrongTries, "WrongTryInterval": &c.WrongTryInterval,
		"HandshakeTimeout": &c.RPC.HandshakeTimeout, "IdleTimeout": &c.RPC.IdleTimeout, "PingInterval": &c.RPC.PingInterval,
		"PingTimeout": &c.RPC.PingTimeout, "WriteTimeout": &c.RPC.WriteTimeout, "MessageBytes": &c.RPC.MessageBytes,
		"Segments": &c.RPC.Segments, "Nesting": &c.RPC.Nesting, "TraversalBytes": &c.RPC.Traversal,
		"Questions": &c.RPC.Questions, "Answers": &c.RPC.Answers, "AnswerBytes": &c.RPC.AnswerBytes, "Exports": &c.RPC.Exports,
		"Imports": &c.RPC.Imports, "ShareBytes": &shareCfg.BodyBytes, "ShareMessageBytes": &shareCfg.MessageBytes,
		"ShareRequests": &shareCfg.Requests, "ShareCreates": &shareCfg.CreatesPerHour, "ShareSecrets": &shareCfg.Writers,
		"ShareBodyTimeout": &shareCfg.BodyTimeout, "ShareSyncTimeout": &shareCfg.SyncTimeout,
		"SessionQuota": &c.Session.Limits.SessionBytes, "RefQuota": &c.Session.Limits.RefBytes,
		"CreateQuota": &c.Session.Limits.AccountBytes, "QueuedCalls": &c.RPC.QueuedCalls, "QueuedBytes": &c.RPC.QueuedBytes,
	}
}

// Every limit sets its field and no other, and its comment has its default.
func TestLimits(t *testing.T) {
	t.Parallel()
	file, err := parser.ParseFile(token.NewFileSet(), "limits.go", nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	comments := map[string]string{}
	ast.Inspect(file, func(n ast.Node) bool {
		if f, is := n.(*ast.Field); is && f.Comment != nil {
			comments[f.Names[0].Name] = f.Comment.Text()
		}
		return true
	})
	defaults, shared := node.DefaultConfig(), share.DefaultConfig()
	fields, all := limited(&defaults, &shared), reflect.ValueOf(DefaultLimits())
	if all.NumField() != len(fields) {
		t.Errorf("there are %d limits, the test knows %d", all.NumField(), len(fields))
	}
	for i := range all.NumField() {
		name, standard := all.Type().Field(i).Name, all.Field(i).Interface()
		if have := reflect.ValueOf(fields[name]).Elem().Interface(); have != standard {
			t.Errorf("%s: the default is %v, the server's %v", name, standard, have)
		}
		message := regexp.MustCompile(`\(([^()]*)\)\n$`).FindStringSubmatch(comments[name])
		if message == nil || !same(message[1], standard) {
			t.Errorf("%s is %v by default: %s", name, standard, comments[name])
		}
		var limits Limits
		reflect.ValueOf(&limits).Elem().Field(i).SetInt(123456789)
		nodeCfg, shareCfg := node.DefaultConfig(), share.DefaultConfig()
		limits.apply(&nodeCfg, &shareCfg)
		for other, field := range limited(&nodeCfg, &shareCfg) {
			if changed := !reflect.DeepEqual(field, fields[other]); changed != (other == name) {
				t.Errorf("%s: that the field of %s has changed is %v", name, other, changed)
			}
		}
	}
}

// same reports whether text says a limit's value: 1m, 16 MiB, 1,024.
func same(text string, value any) bool {
	if d, is := value.(time.Duration); is {
		said, err := time.ParseDuration(text)
		return err == nil && said == d
	}
	n, err := humanize.ParseBytes(text)
	return err == nil && int(n) == value
}
