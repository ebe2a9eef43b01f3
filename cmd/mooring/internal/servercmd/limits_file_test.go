package servercmd

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/server"
)

// givenLimits is a command line with these limits on it.
func givenLimits(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	limits := server.DefaultLimits()
	given := limitFlags(&limits)
	if err := given.Parse(args); err != nil {
		t.Fatal(err)
	}
	return given
}

func TestReadLimits(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		what, text, want string
	}{
		{"nothing", "", ""},
		{"comments", "# none\n\n   # of these\r\n", ""},
		{"of all kinds", "max-connections = 5\r\nsession-quota=3MiB # little\n\tping-interval =  2s", "max-connections=5 ping-interval=2s session-quota=3MiB"},
		{"that flags beat", "max-imports = 7\nmax-exports = 8", "max-exports=8"},
		{"exact sizes", "session-quota = 1500000", "session-quota=1500000B"},
		{"of shares", "max-share-requests = 9\nshare-sync-timeout = 1m", "max-share-requests=9 share-sync-timeout=1m0s"},
		{"no value", "\nmax-connections =", "! line 2 is not NAME = VALUE"},
		{"no name", "= 5", "! line 1 is not NAME = VALUE"},
		{"one word", "max-connections", "! line 1 is not NAME = VALUE"},
		{"a name that is none", "max-conections = 5", `! line 1: no limit has the name "max-conections": mooring serve --help lists them`},
		{"a flag that limits nothing", "listen = 5", `! line 1: no limit has the name "listen": mooring serve --help lists them`},
		{"twice", "max-imports = 5\nmax-imports = 5", "! line 2: max-imports is given twice"},
		{"no number", "max-imports = many\x1b[2J", `! line 1: "many [2J" is not a value for max-imports`},
		{"nothing at all", "max-imports = 0", "! line 1: --max-imports must be above 0"},
		{"less than that", "ping-interval = -1s", "! line 1: --ping-interval must be above 0"},
		{"no bytes", "session-quota = 0B", "! line 1: --session-quota counts from 1B"},
		{"that do not go together", "max-message-bytes = 4GiB", "! --max-traversal-bytes must be at least --max-message-bytes"},
	} {
		set, err := readLimits(c.text, givenLimits(t, "--max-imports", "6"), nil)
		got := ""
		if err != nil {
			got = "! " + faultMessage(err)
			if fault.CodeOf(err) != fault.Usage {
				t.Errorf("%s: %v is no fault of usage", c.what, err)
			}
		} else {
			plain, _ := readLimits("", givenLimits(t, "--max-imports", "6"), nil)
			limitFlags(&set.limits).VisitAll(func(f *pflag.Flag) {
				if v := set.values[f.Name]; v != plain.values[f.Name] {
					got += f.Name + "=" + v + " "
				}
				if f.Value.String() != set.values[f.Name] {
					t.Errorf("%s: %s is %s for the server", c.what, f.Name, f.Value)
				}
			})
			if got = strings.TrimSpace(got); set.values["max-imports"] != "6" {
				t.Errorf("%s: the flag does not count but %s", c.what, set.values["max-imports"])
			}
		}
		if !strings.Contains(got, c.want) || c.want == "" && got != "" {
			t.Errorf("%s: %s, want %s", c.what, got, c.want)
		}
	}
}

// The file is read again within a minute; what is wrong with it changes nothing and is told
// once, and what is taken out of it is the default again.
func TestLimitsAreReadAgain(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "limits")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("max-connections = 5\nsession-quota = 2MiB\n")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		var log lockbuf.Buffer
		var now atomic.Pointer[limitSet]
		var applied atomic.Int32
		l := &limitsFile{path: file, flags: givenLimits(t, "--max-imports", "6"), log: slog.New(slog.NewTextHandler(&log, nil)), apply: func(set limitSet) {
			now.Store(&set)
			applied.Add(1)
		}}
		if _, _, err := l.load(ctx); err != nil {
			t.Fatal(err)
		}
		if l.current.limits.Connections != 5 || l.current.limits.Imports != 6 {
			t.Errorf("%d connections, %d imports", l.current.limits.Connections, l.current.limits.Imports)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			reloadLoop(ctx, nil, l.reload)
		}()
		for _, step := range []struct {
			what   string
			change func()
			log    string // what is logged of this step
			apply  bool
		}{
			{"as it was", func() {}, "", false},
			{"another value", func() { write("max-connections = 7\nsession-quota = 2MiB") }, `the limits were read again" file=FILE changed="max-connections=7"`, true},
			{"half a line", func() { write("max-conn") }, `the previous ones stay" error="--limits FILE: line 1 is not NAME = VALUE"`, false},
			{"no file", func() { _ = os.Remove(file) }, "the previous ones stay", false},
			{"a folder", func() { _ = os.Mkdir(file, 0o700) }, "is not a regular file", false},
			{"one that waits for the next start", func() {
				_ = os.Remove(file)
				write("max-connections = 8\nwrite-timeout = 3s\n")
			}, `changed="max-connections=8 session-quota=1GiB"|only at the next start" limits="write-timeout=3s"`, true},
			{"that which goes with it", func() { write("max-message-bytes = 20MiB\nmax-traversal-bytes=21MiB") }, `changed="max-connections=10000 max-traversal-bytes=21MiB"|limits="max-message-bytes=20MiB"`, true},
			{"what does not go with what runs", func() { write("max-message-bytes = 12MiB\nmax-traversal-bytes=12MiB") }, `must be at least --max-message-bytes`, false},
			{"a flag's", func() { write("max-imports = 9") }, `changed="max-traversal-bytes=`, true},
		} {
			step.change()
			before, took := log.String(), applied.Load()
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			message := strings.ReplaceAll(strings.TrimPrefix(log.String(), before), file, "FILE")
			want := strings.Split(step.log, "|")
			if strings.Count(message, "\n") != len(want) && step.log != "" || step.log == "" && message != "" {
				t.Errorf("%s: it is logged: %s", step.what, message)
			}
			for _, part := range want {
				if !strings.Contains(message, part) {
					t.Errorf("%s: it is not logged that %s: %s", step.what, part, message)
				}
			}
			if n := applied.Load() - took; (n > 0) != step.apply {
				t.Errorf("%s: limits were changed %d times", step.what, n)
			}
		}
		if def, now := server.DefaultLimits(), now.Load().limits; now.Connections != def.Connections || now.MessageBytes != def.MessageBytes ||
			now.WriteTimeout != def.WriteTimeout || now.Imports != 6 {
			t.Errorf("%+v", now)
		}
		cancel()
		<-done
	})
}
