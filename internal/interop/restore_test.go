// A foreign client and a real mooring serve: the owner's ref is restored, a session made and appended to.

package interop

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
	mooring "github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/client/sqliteclient"
	"github.com/mooring-rpc/mooring/internal/gobuild"
)

// binary is mooring, compiled when a test first asks for it.
var binary = gobuild.Once{Folder: "cmd/mooring"}

func init() { atExit = append(atExit, binary.Remove) }

// banner is what mooring serve --json says of itself.
type banner struct {
	Listening string   `json:"listening"`
	Capnp     []string `json:"capnp"`
}

// serveMooring starts a server and gives its banner and its owner's ref.
func serveMooring(t *testing.T, args ...string) (b banner, owner capability.Ref) {
	t.Helper()
	path, err := binary.Path()
	if err != nil {
		t.Fatal(err)
	}
	data := t.TempDir()
	args = append([]string{"serve", "--json", "--listen", "127.0.0.1:0", "--data", data}, args...)
	p := launch(t, exec.Command(path, args...))
	if err := json.Unmarshal([]byte(p.line(t)), &b); err != nil || b.Listening == "" {
		t.Fatalf("the server does not say where it listens: %v", err)
	}
	text, err := os.ReadFile(filepath.Join(data, "owner.ref"))
	if err != nil {
		t.Fatal(err)
	}
	owner, err = capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return b, owner
}

// restores has a foreign client make a session under the owner's ref and put a message into it, and reads that.
func restores(t *testing.T, p *process, owner capability.Ref, from string) {
	t.Helper()
	id := capability.SessionPrefix + ulid.Make().String()
	ref := owner.New(id)
	hash := ref.Secret.Hash()
	// The space's ref and secret, the session's id, its owner's ref and the hash of that one's secret, an outbox, and
	// the ids of a batch and its two ops.
	p.tell(t, strings.Join([]string{"restore", owner.ID, hex.EncodeToString(owner.Secret.Reveal()), id, ref.ID,
		base64.RawURLEncoding.EncodeToString(hash[:]), "obx_" + ulid.Make().String(),
		ulid.Make().String(), ulid.Make().String(), ulid.Make().String()}, " "))
	p.expect(t, "ok restore")
	p.finish(t)

	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, err := mooring.Open(ctx, mooring.Config{OpenOutbox: sqliteclient.Outbox(t.TempDir())})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s, err := c.Session(ctx, ref)
	if err != nil {
		t.Fatal(err)
	}
	page, err := s.Events(ctx, 0, 10)
	if err != nil {
		t.Fatal(err)
	}
	last := page.Events[len(page.Events)-1]
	if last.Method != "put" || last.Key != "message/msg_1" || !strings.Contains(string(last.Payload), from) {
		t.Errorf("the session's last event is %s %s %s", last.Method, last.Key, last.Payload)
	}
}

// saves has a foreign client restore a ref that the command line made, save it, and restore what it got.
func saves(t *testing.T, p *process, owner capability.Ref) {
	t.Helper()
	dir := t.TempDir()
	mooring := func(args ...string) string {
		t.Helper()
		path, err := binary.Path()
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		cmd := exec.CommandContext(ctx, path, append(args, "--home", filepath.Join(dir, "home"))...)
		cmd.Stderr = os.Stderr
		said, err := cmd.Output()
		if err != nil {
			t.Fatalf("mooring %s: %v", args[0], err)
		}
		return strings.TrimSpace(string(said))
	}
	ownerFile, refFile := filepath.Join(dir, "owner.ref"), filepath.Join(dir, "foreign.ref")
	if err := os.WriteFile(ownerFile, []byte(owner.Text()), 0o600); err != nil {
		t.Fatal(err)
	}
	id := mooring("session", "import", "../../testdata/opencode/a-edit-1.18.33.jsonl", "--owner", "@"+ownerFile)
	mooring("share", id, "--rights", "read,append,share", "--actor", "owner/foreign", "--to", refFile)
	text, err := os.ReadFile(refFile)
	if err != nil {
		t.Fatal(err)
	}
	ref, err := capability.ParseRef(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	p.tell(t, "save "+ref.ID+" "+hex.EncodeToString(ref.Secret.Reveal()))
	p.expect(t, "ok save")
	p.finish(t)
}

func TestGoCapnpSaves(t *testing.T) {
	for _, sub := range subprotocols {
		t.Run(sub, func(t *testing.T) {
			t.Parallel()
			b, owner := serveMooring(t)
			saves(t, goCapnp(t, "client", sub, "ws://"+b.Listening+"/capnp"), owner)
		})
	}
}

func TestGoCapnpRestores(t *testing.T) {
	for _, sub := range subprotocols {
		t.Run(sub, func(t *testing.T) {
			t.Parallel()
			b, owner := serveMooring(t)
			restores(t, goCapnp(t, "client", sub, "ws://"+b.Listening+"/capnp"), owner, "from go-capnp")
		})
	}
}
