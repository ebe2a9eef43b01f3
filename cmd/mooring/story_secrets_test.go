//go:build unix

// No secret gets to where it does not belong: logs, outputs, metrics, URLs, process
// lists, the server's database, other files of the home folder. What real processes
// show of themselves is looked at in internal/e2e/secrets_test.go.

package main

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/home"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodetest"
	"github.com/mooring-rpc/mooring/internal/pgtest"
)

// secrecy collects secrets, and what was shown to whoever looked.
type secrecy struct {
	t       *testing.T
	secrets map[string][]byte // whose: 32 bytes
	shown   map[string][]byte // where: what
	looks   int               // at folders
}

// learn takes the secrets of a home folder's outbox.
func (s *secrecy) learn(home string) {
	s.t.Helper()
	db, err := sql.Open("sqlite", "file:"+filepath.Join(home, "outbox.db")+"?_pragma=busy_timeout(10000)")
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	var secret []byte
	if err := db.QueryRow("SELECT secret FROM mooring_outbox").Scan(&secret); err != nil {
		s.t.Fatal(err)
	}
	s.secrets["the outbox in "+filepath.Base(home)] = secret
	rows, err := db.Query("SELECT ref FROM mooring_outbox_ref WHERE role <> 'gone'")
	if err != nil {
		s.t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			s.t.Fatal(err)
		}
		s.learnRef(text)
	}
	if err := rows.Err(); err != nil {
		s.t.Fatal(err)
	}
}

// learnKey takes the private key of a home folder, if there is one.
func (s *secrecy) learnKey(dir string) {
	s.t.Helper()
	key, err := home.ReadSealKey(dir)
	if err != nil {
		s.t.Fatal(err)
	}
	if key != nil {
		s.secrets["the seal key in "+filepath.Base(dir)] = key.Seed()
	}
}

func (s *secrecy) learnRef(text string) {
	s.t.Helper()
	ref, err := capability.ParseRef(strings.TrimSpace(text))
	if err != nil {
		s.t.Fatal(err)
	}
	s.secrets[ref.ID] = ref.Secret.Reveal()
}

// folder takes the files below a folder for shown, but for some that hold secrets.
func (s *secrecy) folder(dir string, but ...string) {
	s.t.Helper()
	s.looks++
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		for _, name := range but {
			if strings.HasPrefix(entry.Name(), name) {
				if info.Mode().Perm()&0o077 != 0 {
					s.t.Errorf("%s holds secrets and has mode %o", entry.Name(), info.Mode().Perm())
				}
				return nil
			}
		}
		what, err := os.ReadFile(path)
		s.shown[fmt.Sprintf("the file %s, look %d", path, s.looks)] = what
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// database takes every value of every row of a Postgres database for shown.
func (s *secrecy) database(url string) {
	s.t.Helper()
	if tables, rows := s.tables(url); rows < 50 {
		s.t.Errorf("the server's %d tables have only %d rows", tables, rows)
	}
}

// tables is database for one of any size, which it gives.
func (s *secrecy) tables(url string) (tables, rows int) {
	s.t.Helper()
	db, err := sql.Open("pgx", url)
	if err != nil {
		s.t.Fatal(err)
	}
	defer db.Close()
	names, err := db.Query("SELECT relname FROM pg_class WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace")
	if err != nil {
		s.t.Fatal(err)
	}
	var all []string
	for names.Next() {
		var name string
		if err := names.Scan(&name); err != nil {
			s.t.Fatal(err)
		}
		all = append(all, name)
	}
	for _, table := range all {
		lines, err := db.Query("SELECT t::text FROM " + table + " t")
		if err != nil {
			s.t.Fatal(err)
		}
		var text bytes.Buffer
		for lines.Next() {
			var row string
			if err := lines.Scan(&row); err != nil {
				s.t.Fatal(err)
			}
			text.WriteString(row)
			rows++
		}
		if err := lines.Err(); err != nil {
			s.t.Fatal(err)
		}
		s.shown["the server's table "+table] = text.Bytes()
	}
	return len(all), rows
}

// check looks for every secret in whatever spelling.
func (s *secrecy) check() {
	s.t.Helper()
	for whose, secret := range s.secrets {
		for spelling, text := range map[string]string{
			"as it is": string(secret), "in base64url": base64.RawURLEncoding.EncodeToString(secret),
			"in base64": base64.RawStdEncoding.EncodeToString(secret), "in hex": hex.EncodeToString(secret),
			"as numbers": strings.Trim(fmt.Sprint(secret), "[]"),
		} {
			for where, what := range s.shown {
				if bytes.Contains(what, []byte(text)) {
					s.t.Errorf("the secret of %s stands %s in %s", whose, spelling, where)
				}
			}
		}
	}
}

func TestNoSecretIsShown(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"sqlite", "postgres"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			data, url := filepath.Join(dir, "data"), ""
			tap := newTap(t)
			flags := []string{"--verbose", "--advertise", "mooring://" + tap.address(), "--metrics-listen", "127.0.0.1:0", "--ai-sdk", "--a2a", "--mcp", "--mcp-allow", "append,ask"}
			if kind == "postgres" {
				url = pgtest.URL(t)
				flags = append(flags, "--database-url", url)
			}
			srv := startServe(t, data, flags...)
			tap.lead(srv.banner.Listening)
			s := &secrecy{t: t, secrets: map[string][]byte{}, shown: map[string][]byte{}}
			owner, agent := filepath.Join(dir, "owner"), filepath.Join(dir, "agent")

			n := 0
			do := func(home, in string, want int, args ...string) string {
				t.Helper()
				n++
				args = append(args, "--home", home)
				var out, errOut lockbuf.Buffer
				ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
				defer cancel()
				code := runContext(ctx, args, strings.NewReader(in), &out, &errOut)
				label := fmt.Sprintf("%d: mooring %s", n, args[:2])
				if code != want {
					t.Errorf("%s: exit %d, %s%s", label, code, out.String(), errOut.String())
				}
				s.shown["the arguments of "+label] = []byte(strings.Join(args, " "))
				s.shown["the output of "+label] = []byte(out.String())
				s.shown["the errors of "+label] = []byte(errOut.String())
				return strings.TrimSpace(out.String())
			}
			file := func(name string) string { return filepath.Join(dir, name+".ref") }

			id := do(owner, "", cli.ExitOK, "session", "import", opencodetest.Path(t, "a-edit-1.18.33.jsonl"), "--owner", "@"+filepath.Join(data, "owner.ref"))
			do(owner, "", cli.ExitOK, "share", id, "--rights", "read,append,share", "--actor", "owner/agent", "--to", file("agent"))
			do(owner, "", cli.ExitOK, "share", id, "--rights", "read", "--redemptions", "1", "--to", file("once"), "--json")
			do(agent, "", cli.ExitOK, "redeem", "@"+file("agent"), "--json")
			do(agent, "", cli.ExitOK, "redeem", "@"+file("once"))
			do(owner, "", cli.ExitOK, "redeem", "@"+file("agent"))
			do(filepath.Join(dir, "third"), "", cli.ExitRefused, "redeem", "@"+file("once"))
			do(agent, "", cli.ExitOK, "share", "@"+file("agent"), "--rights", "read", "--to", file("below"))
			do(agent, putLine("one"), cli.ExitOK, "session", "append", "@"+file("agent"), "--wait", "--json")
			do(agent, `{"method":"put","key":"ref/x","payload":{}}`, cli.ExitRefused, "session", "append", "@"+file("agent"))
			do(agent, putLine("denied"), cli.ExitRefused, "session", "append", "@"+file("once"), "--wait")
			do(agent, "", cli.ExitOK, "session", "tail", "@"+file("below"), "--json")
			do(agent, "", cli.ExitOK, "session", "show", "@"+file("below"), "--json")
			do(agent, "", cli.ExitOK, "session", "export", "@"+file("below"))
			do(owner, "", cli.ExitOK, "session", "list", "--json")
			// What is copied wrongly: another secret, and one cut short.
			text, err := os.ReadFile(file("agent"))
			if err != nil {
				t.Fatal(err)
			}
			address, _, _ := strings.Cut(string(text), "#")
			other := capability.NewSecret()
			for name, text := range map[string]string{
				"strange": address + "#" + other.RevealText(), "cut": string(text[:len(text)-3]), "long": strings.TrimSpace(string(text)) + "x",
			} {
				if err := os.WriteFile(file(name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
				do(filepath.Join(dir, "third"), "", cli.ExitRefused, "redeem", "@"+file(name), "--json")
			}
			// A sealed one, where its key is, where another is, and where none is.
			key := do(agent, "", cli.ExitOK, "key")
			do(owner, "", cli.ExitOK, "share", id, "--rights", "read,append", "--seal", key, "--to", file("sealed"))
			do(filepath.Join(dir, "third"), "", cli.ExitRefused, "redeem", "@"+file("sealed"), "--json")
			do(filepath.Join(dir, "third"), "", cli.ExitOK, "key", "--json")
			do(filepath.Join(dir, "third"), "", cli.ExitRefused, "redeem", "@"+file("sealed"))
			do(agent, "", cli.ExitOK, "redeem", "@"+file("sealed"), "--json")
			do(agent, putLine("sealed"), cli.ExitOK, "session", "append", "@"+file("sealed"), "--wait")
			do(owner, "", cli.ExitOK, "share", id, "--rights", "read,ask", "--to", file("asker"))
			for _, name := range []string{"asker", "strange", "cut", "sealed"} {
				s.protocols("http://"+srv.banner.Listening, id, file(name), name == "asker")
			}
			do(owner, "", cli.ExitOK, "revoke", "@"+file("asker"))
			s.protocols("http://"+srv.banner.Listening, id, file("asker"), false)
			do(owner, "", cli.ExitOK, "revoke", "@"+file("agent"))
			do(agent, putLine("late"), cli.ExitRefused, "session", "append", "@"+file("agent"), "--wait")
			do(owner, "", cli.ExitOK, "revoke", "--epoch", id)
			s.client(dir, file("agent"))
			for _, home := range []string{owner, agent} {
				do(home, "", cli.ExitOK, "outbox", "list", "--json")
				do(home, "", cli.ExitOK, "outbox", "status")
			}
			s.shown["the metrics"] = fetched(t, srv.banner.Metrics)
			s.shown["what HTTP was asked"] = tap.requests()
			if n := bytes.Count(s.shown["what HTTP was asked"], []byte("GET /capnp HTTP/1.1")); n < 20 {
				t.Errorf("only %d requests were seen", n)
			}
			s.folder(data, "owner.ref") // with what a running database has beside its file
			code, log := srv.stop()
			if code != cli.ExitOK || !strings.Contains(log, `"level":"DEBUG"`) {
				t.Errorf("the server ended with %d and its log is not verbose:\n%s", code, log)
			}
			s.shown["the server's log"] = []byte(log)
			do(agent, putLine("offline"), cli.ExitOK, "session", "append", "@"+file("below"))

			s.secrets["a ref that never was"] = other.Reveal()
			s.learnRef(srv.owner.Text())
			for _, folder := range []string{owner, agent, filepath.Join(dir, "third"), filepath.Join(dir, "programmed")} {
				s.learn(folder)
				s.learnKey(folder)
				s.folder(folder, "outbox.db", home.SealKeyFile)
			}
			s.folder(data, "owner.ref") // the SQLite file among it
			if url != "" {
				s.database(url)
			}
			if len(s.secrets) < 13 {
				t.Errorf("only %d secrets were looked for", len(s.secrets))
			}
			s.check()
		})
	}
}

// protocols asks the session's agent by others' protocols over HTTP, under a ref that is good or not.
func (s *secrecy) protocols(base, session, file string, good bool) {
	s.t.Helper()
	ref, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	ask := func(method, path, body string) {
		s.t.Helper()
		req, err := http.NewRequestWithContext(s.t.Context(), method, base+path, strings.NewReader(body))
		if err != nil {
			s.t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(ref)))
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			s.t.Fatal(err)
		}
		defer resp.Body.Close()
		var answer bytes.Buffer
		if err := resp.Write(&answer); err != nil || good && resp.StatusCode >= 400 {
			s.t.Errorf("%s %s under %s: %s %v", method, path, filepath.Base(file), answer.String(), err)
		}
		s.looks++
		s.shown[fmt.Sprintf("answer %d, to %s %s", s.looks, method, path)] = answer.Bytes()
	}
	ask("POST", "/a2a/v1/message:send", `{"message":{"messageId":"m","role":"ROLE_USER","parts":[{"text":"x"}]},"configuration":{"returnImmediately":true}}`)
	ask("GET", "/a2a/v1/tasks", "")
	ask("POST", "/a2a", `{"jsonrpc":"2.0","id":1,"method":"GetExtendedAgentCard","params":{}}`)
	ask("POST", "/mcp", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"x","version":"1"}}}`)
	if !good {
		ask("GET", "/api/ai/chat/"+session+"/stream", "")
		ask("POST", "/api/ai/chat", `{"id":"`+session+`","messages":[{"id":"u","role":"user","parts":[{"type":"text","text":"x"}]}]}`)
	} else { // it waits for an agent: the stop withdraws it
		ask("POST", "/api/ai/chat/"+session+"/stop", "")
	}
}

// client does with a program, which logs everything, what a dead ref allows.
func (s *secrecy) client(dir, file string) {
	s.t.Helper()
	var log lockbuf.Buffer
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	text, err := os.ReadFile(file)
	if err != nil {
		s.t.Fatal(err)
	}
	ref, err := capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil {
		s.t.Fatal(err)
	}
	c, err := client.Open(ctx, client.Config{OpenOutbox: sqliteclient.Outbox(filepath.Join(dir, "programmed")),
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() {
		if err := c.Close(); err != nil {
			s.t.Errorf("close the client: %v", err)
		}
		if log.String() == "" {
			s.t.Error("the client logs nothing")
		}
		s.shown["the client's log"] = []byte(log.String())
	}()
	session, err := c.Session(ctx, ref)
	if err != nil {
		s.t.Fatal(err)
	}
	b := session.Batch()
	b.Put("message/programmed", map[string]any{"n": 1})
	ticket, err := b.Commit(ctx)
	if err != nil {
		s.t.Fatal(err)
	}
	results, err := ticket.Wait(ctx)
	if err != nil || results.Err() == nil {
		s.t.Errorf("a revoked ref's op: %v, %v", results, err)
	}
	message := fmt.Sprintf("%v %+v %#v %v %+v %v", ref, ref, ref.Secret, session, results, results.Err())
	s.shown["what a program prints"] = []byte(message)
}
