package e2e

// The documents of the protocols, taken at their word: what they say to run is run, as it stands but for ids and addresses.
// What needs the programs of others in JavaScript is run in e2e.

import (
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/a2aproject/a2a-go/v2/a2a"
	"github.com/a2aproject/a2a-go/v2/a2aclient"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// document is a document's text.
func document(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// block is the first block of a text in a language.
func block(t *testing.T, text, language string) string {
	t.Helper()
	_, rest, ok := strings.Cut(text, "\n```"+language+"\n")
	code, _, closed := strings.Cut(rest, "\n```")
	if !ok || !closed {
		t.Fatalf("no block of %s in\n%s", language, text)
	}
	return code + "\n"
}

// reader is somebody who does what a document says, in a folder of their own with a home folder below it. They have the
// owner's ref of a server, whose data are in data/.
type reader struct {
	t      *testing.T
	dir    string
	env    []string
	server *server
}

func newReader(t *testing.T, flags ...string) *reader {
	t.Helper()
	dir := t.TempDir()
	r := &reader{t: t, dir: dir, server: startServer(t, serverConfig{Data: filepath.Join(dir, "data"), Args: flags})}
	home := filepath.Join(dir, "home", "ada")
	r.env = append(environment(""), "PATH="+filepath.Dir(mooring)+string(os.PathListSeparator)+os.Getenv("PATH"), "HOME="+home, "XDG_CONFIG_HOME="+filepath.Join(home, "config"))
	r.run("mooring session list --owner @data/owner.ref")
	return r
}

// command is one that they run.
func (r *reader) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(bounded(r.t), name, args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	return cmd
}

// run runs a line, and returns what it prints.
func (r *reader) run(line string) string {
	r.t.Helper()
	out, err := r.command("sh", "-euc", line).CombinedOutput()
	if err != nil {
		r.t.Fatalf("$ %s\n%v\n%s", line, err, out)
	}
	return string(out)
}

// anyID is an id of a session as the documents write it, and as it is.
var anyID = regexp.MustCompile(`\bses_(01J…|[0-9A-HJKMNP-TV-Z]{26}\b)`)

// do runs a line about a session, whose id is in the place of the document's, and returns what it prints, and its own id if
// that has one.
func (r *reader) do(line, session string) (printed, id string) {
	r.t.Helper()
	if session != "" {
		line = anyID.ReplaceAllString(line, session)
	}
	printed = r.run(line)
	return printed, anyID.FindString(printed)
}

func (r *reader) file(name string) string {
	r.t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		r.t.Fatal(err)
	}
	return strings.TrimSpace(string(text))
}

// TestMCPPage: the model's programs start what docs/mcp.md has them start, and speak with the server that it names.
func TestMCPPage(t *testing.T) {
	t.Parallel()
	page := document(t, "mcp.md")
	serving := regexp.MustCompile("`mooring serve (--mcp --mcp-allow \\S+)`").FindStringSubmatch(page)
	writing := regexp.MustCompile("`mooring mcp (--allow \\S+)`").FindStringSubmatch(page)
	if serving == nil || writing == nil {
		t.Fatal("docs/mcp.md does not say how to allow more than reading")
	}
	r := newReader(t, strings.Fields(serving[1])...)
	_, id := r.do("mooring session create", "")
	_, setup, _ := strings.Cut(page, "\n## Setting it up\n")
	setup, _, _ = strings.Cut(setup, "\n## ")
	lines := splitLines(block(t, setup, "sh"))
	r.do(lines[0], id)
	ref := r.file("reader.ref")

	// has checks that a client that speaks by a transport has some tools, and finds the session.
	has := func(name string, transport mcp.Transport, tools ...string) {
		t.Helper()
		ctx := bounded(t)
		session, err := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil).Connect(ctx, transport, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		defer func() {
			if err := session.Close(); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}()
		list, err := session.ListTools(ctx, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var names []string
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		for _, tool := range tools {
			if !slices.Contains(names, tool) {
				t.Errorf("%s: no %s in %v", name, tool, names)
			}
		}
		found, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "list_sessions", Arguments: map[string]any{}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if text := found.Content[0].(*mcp.TextContent).Text; found.IsError || !strings.Contains(text, id) {
			t.Errorf("%s: an error is %t: %s; without %s", name, found.IsError, text, id)
		}
	}
	local := func(name string, command []string, tools ...string) {
		t.Helper()
		for i := range command {
			command[i] = strings.ReplaceAll(command[i], "/home/me/", r.dir+"/")
		}
		has(name, &mcp.CommandTransport{Command: r.command(mooring, command[1:]...)}, tools...)
	}
	remote := func(name, url string, header http.Header, tools ...string) {
		t.Helper()
		address := strings.Replace(url, "https://mooring.example.org", "http://"+r.server.address(), 1)
		transport := &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		has(name, &mcp.StreamableClientTransport{Endpoint: address, HTTPClient: &http.Client{Transport: withHeader{header, transport}}}, tools...)
	}

	// Claude Code itself runs these lines in e2e/claude-store. Here the shell says what it is given.
	for _, line := range lines[1:] {
		said := splitLines(r.run(`claude() { printf '%s\n' "$@"; }; ` + line))
		switch {
		case slices.Equal(said[:4], []string{"mcp", "add", "mooring", "--"}):
			local(line, said[4:], "read_session")
		case len(said) == 8 && slices.Equal(said[:5], []string{"mcp", "add", "--transport", "http", "mooring"}) && said[6] == "--header":
			key, value, _ := strings.Cut(said[7], ": ")
			remote(line, said[5], http.Header{key: {value}}, "read_session", "append_message", "ask")
		default:
			t.Errorf("%s: Claude Code is given %q", line, said)
		}
	}
	var opencode struct {
		MCP map[string]struct {
			Type    string
			Command []string
			URL     string
			Headers map[string]string
		}
	}
	code := block(t, setup, "json")
	if err := json.Unmarshal([]byte(code), &opencode); err != nil {
		t.Fatal(err)
	}
	local("opencode", opencode.MCP["mooring"].Command, "read_session")
	there := opencode.MCP["there"]
	remote("opencode", there.URL, http.Header{"Authorization": {strings.Replace(there.Headers["Authorization"], "{file:~/reader.ref}", ref, 1)}}, "read_session")
	var others struct {
		Servers map[string]struct {
			Command string
			Args    []string
			URL     string
			Headers map[string]string
		}
	}
	_, rest, _ := strings.Cut(setup, code)
	if err := json.Unmarshal([]byte(block(t, rest, "json")), &others); err != nil {
		t.Fatal(err)
	}
	local("VS Code", append([]string{others.Servers["mooring"].Command}, others.Servers["mooring"].Args...), "read_session")
	remote("VS Code", others.Servers["there"].URL, http.Header{"Authorization": {strings.Replace(others.Servers["there"].Headers["Authorization"], "${input:ref}", ref, 1)}}, "read_session")

	local("what is not reading", append([]string{"mooring", "mcp"}, strings.Fields(writing[1])...), "append_message", "put_value", "ask", "wait_answer", "share")
}

// withHeader sends requests with a header.
type withHeader struct {
	header http.Header
	via    http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range w.header {
		r.Header[name] = values
	}
	return w.via.RoundTrip(r)
}

// TestTranscriptsPage: what docs/transcripts.md imports is imported, and what it says is printed then is, among more.
func TestTranscriptsPage(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	code := block(t, document(t, "transcripts.md"), "console")
	for _, name := range regexp.MustCompile(`~/\S+\.jsonl`).FindAllString(code, -1) {
		recorded := "codex-0.169.0"
		switch {
		case strings.Contains(name, "*"):
			continue
		case strings.Contains(name, ".claude"):
			recorded = "claude-2.1.332"
		}
		text, err := os.ReadFile("../../testdata/transcripts/" + recorded + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		secret := strings.ReplaceAll(string(text), "half", "token ghp_"+"R7kQm2Zx9VbT4nLw8YcJ5sHd1GfP6aEu3oXi")
		at := filepath.Join(r.dir, "home", "ada", name[2:])
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(at, []byte(secret), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	id, commands := "", 0
	var left []string // printed by the last command, and not looked for yet
	for _, line := range splitLines(code) {
		if command, ok := strings.CutPrefix(line, "$ "); ok {
			printed, made := r.do(command, id)
			if strings.Contains(command, " import ") {
				id = made
			}
			left, commands = splitLines(strings.ReplaceAll(strings.ReplaceAll(printed, r.dir, ""), r.server.hosts[0], "127.0.0.1:7600")), commands+1
			continue
		}
		want := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(line), "…", `\S+`) + "$")
		if strings.HasPrefix(line, "ses_") {
			want = regexp.MustCompile("^" + anyID.String() + "$")
		}
		i := slices.IndexFunc(left, want.MatchString)
		if i < 0 {
			t.Fatalf("%q is not printed: %q", line, left)
		}
		left = left[i+1:]
	}
	if commands != 4 {
		t.Errorf("%d commands", commands)
	}
	if shown := r.run("mooring session show " + id); !strings.Contains(shown, "Please make a.css blue.") {
		t.Errorf("what was imported is\n%s", shown)
	}
}

// TestUIMessagePage: a session is exported, and imported at another server, as docs/ai-sdk.md says.
func TestUIMessagePage(t *testing.T) {
	t.Parallel()
	lines := splitLines(block(t, document(t, "ai-sdk.md"), "sh"))
	if len(lines) != 2 {
		t.Fatalf("not an export and an import: %q", lines)
	}
	recorded, err := filepath.Abs("../../testdata/transcripts/codex-0.169.0.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	from, to := newReader(t), newReader(t)
	_, id := from.do("mooring session import "+recorded, "")
	from.do(lines[0], id)
	chat, err := os.ReadFile(filepath.Join(from.dir, "chat.json"))
	if err == nil {
		err = os.WriteFile(filepath.Join(to.dir, "chat.json"), chat, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	_, imported := to.do(lines[1], "")
	if again := to.run("mooring session export " + imported + " --format uimessage"); again != string(chat) || !strings.Contains(again, "Please make a.css blue.") {
		t.Errorf("%s\nbecame\n%s", chat, again)
	}
}

// TestClaudePage: the session of docs/claude.md is made, with a ref that appends. Its program is run in e2e/claude-store.
func TestClaudePage(t *testing.T) {
	t.Parallel()
	r := newReader(t)
	id := ""
	for _, line := range splitLines(block(t, document(t, "claude.md"), "sh")) {
		if _, made := r.do(line, id); id == "" {
			id = made
		}
	}
	appended := r.command(mooring, "session", "append", "@claude.ref", "--wait", "--home", filepath.Join(r.dir, "other"))
	appended.Stdin = strings.NewReader(`{"method":"put","key":"claude/app/@sessions/s","payload":{}}`)
	if out, err := appended.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if got := r.run("mooring session get " + id + " claude/app/@sessions/s"); strings.TrimSpace(got) != "{}" {
		t.Errorf("the session has %q", got)
	}
}

// TestA2AProgram: the program of docs/a2a.md answers a client of the protocol, and its task is in the session.
func TestA2AProgram(t *testing.T) {
	t.Parallel()
	code := block(t, document(t, "a2a.md"), "go")
	line := regexp.MustCompile(`// (mooring share .*)\n`).FindStringSubmatch(code)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := ln.Addr().String()
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if line == nil || strings.Count(code, "127.0.0.1:8080") != 1 {
		t.Fatalf("the program has no ref, or no address:\n%s", code)
	}
	r := newReader(t)
	_, id := r.do("mooring session create", "")
	r.do(line[1], id)
	program := buildProgram(t, strings.Replace(code, "127.0.0.1:8080", address, 1), r.dir)
	serving, err := launch(r.command(program))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(serving.kill)
	client, err := a2aclient.NewFromCard(t.Context(), &a2a.AgentCard{SupportedInterfaces: []*a2a.AgentInterface{a2a.NewAgentInterface("http://"+address+"/rpc", a2a.TransportProtocolJSONRPC)}})
	if err != nil {
		t.Fatal(err)
	}
	message := a2a.NewMessage(a2a.MessageRoleUser, a2a.NewTextPart("Do it."))
	var answer a2a.SendMessageResult
	eventually(t, "the program answers", func() bool {
		answer, err = client.SendMessage(bounded(t), &a2a.SendMessageRequest{Message: message})
		return err == nil
	})
	task, ok := answer.(*a2a.Task)
	if !ok || task.Status.State != a2a.TaskStateCompleted {
		t.Fatalf("the answer is %+v", answer)
	}
	if got := r.run("mooring session get " + id + " a2a_task/" + string(task.ID)); !strings.Contains(got, "Done.") {
		t.Errorf("the task is %s", got)
	}
}
