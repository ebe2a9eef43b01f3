//go:build linux

// What commands read: bounded, and given up at the first signal.

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unicode/utf16"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// waited is an input that nobody types into.
type waited struct {
	once  sync.Once
	began chan struct{} // closed when it is read
	end   chan struct{}
}

func newWaited(t *testing.T) *waited {
	w := &waited{began: make(chan struct{}), end: make(chan struct{})}
	t.Cleanup(func() { close(w.end) })
	return w
}

// Read implements io.Reader.
func (w *waited) Read([]byte) (int, error) {
	w.once.Do(func() { close(w.began) })
	<-w.end
	return 0, io.EOF
}

// A command that reads what nobody types ends at the first signal, and says what it did.
func TestASignalEndsReading(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_typed")
	ref := r.shareTo("helper", id, "--rights", "read,append")
	text := strings.TrimSpace(string(readFile(t, ref[1:])))
	fifo := filepath.Join(r.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		words string
		args  []string
	}{
		{"nothing was appended", []string{"session", "append", id}},
		{"nothing was appended", []string{"session", "append", text, "-", "--wait"}},
		{"nothing was imported", []string{"session", "import", "-"}},
		{"", []string{"session", "append", id, fifo}},
		{"", []string{"session", "show", "@" + fifo}},
		{"", []string{"session", "show", id, "--tls-ca", fifo}},
	} {
		ctx, stop := context.WithCancel(t.Context())
		in := newWaited(t)
		var out, errOut lockbuf.Buffer
		code := make(chan int, 1)
		go func() { code <- runContext(ctx, append(c.args, "--home", r.home()), in, &out, &errOut) }()
		if c.words != "" { // of what cannot be opened nothing shows when it is waited for
			<-in.began
		}
		stop()
		if got := <-code; got != cli.ExitRefused || !strings.HasPrefix(errOut.String(), "mooring: canceled: ") || !strings.Contains(errOut.String(), c.words) ||
			strings.Count(errOut.String(), "\n") != 1 || out.String() != "" {
			t.Errorf("mooring %s: exit %d, %q %q", strings.Join(c.args, " "), got, out.String(), errOut.String())
		}
	}
	for range 3 { // those that wait to open it
		w, err := os.OpenFile(fifo, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
	}
	if n := r.tailed(id); n != 3 {
		t.Errorf("%d events", n)
	}
}

// The same on a terminal, with the signal itself: what cannot be undone is asked for.
func TestCtrlCAtAQuestion(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_asked")
	term := newPTY(t)
	p := r.process("session", "delete", id)
	p.cmd.Stdin, p.cmd.Stderr = term.tty, term.tty
	p.start()
	term.until("Type yes: ")
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	if code := p.end(); code != cli.ExitRefused {
		t.Errorf("mooring %s, interrupted: exit %d", p.args, code)
	}
	term.until("\r\nmooring: canceled: nothing was done\r\n")
	// Whoever answers otherwise has it left as it is; yes is yes.
	for answer, args := range map[string][]string{"no\r": {"session", "purge", id, "session"}, "\x04": {"session", "delete", id}, "never\r": {"session", "delete", id, id}} {
		term := newPTY(t)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		term.typed(answer)
		code := runContext(ctx, append(args, "--home", r.home()), term.tty, io.Discard, term.tty)
		cancel()
		if term.until("nothing was done"); code != cli.ExitRefused {
			t.Errorf("mooring %s, answered %q: exit %d", args, answer, code)
		}
	}
	term = newPTY(t)
	term.typed("yes\r")
	if code := runContext(t.Context(), []string{"session", "delete", id, "--home", r.home()}, term.tty, term.tty, term.tty); code != cli.ExitOK {
		t.Errorf("answered with yes: exit %d, %q", code, term.shown.String())
	}
	term.until("deleted at cursor")
}

// Files that are named for others are read no further than such files are long.
func TestInputIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	home := filepath.Join(dir, "home")
	text := strings.Repeat("x", 1<<20+1)
	long := filepath.Join(dir, "long")
	if err := os.WriteFile(long, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	const ref = "mooring://127.0.0.1:1/ses_01JABCDEFGHJKMNPQRSTVWXYZ0.s01JABCDEFGHJKMNPQRSTVWXYZ0#"
	secret := capability.NewSecret().RevealText()
	for _, c := range []struct {
		code  int
		words string
		args  []string
	}{
		{cli.ExitRefused, "more than 4112 bytes", []string{"session", "show", "@/dev/zero"}},
		{cli.ExitRefused, "more than 4112 bytes", []string{"session", "list", "--owner", "@/dev/zero"}},
		{cli.ExitRefused, "more than 4112 bytes", []string{"redeem", "@" + long}},
		{cli.ExitRefused, "is a folder", []string{"redeem", "@" + dir}},
		{cli.ExitRefused, "no such file", []string{"redeem", "@" + filepath.Join(dir, "none")}},
		{cli.ExitUsage, "more than 1048576 bytes", []string{"session", "show", ref + secret, "--tls-ca", "/dev/zero"}},
		{cli.ExitUsage, "more than 1048576 bytes", []string{"session", "show", ref + secret, "--tls-ca", long}},
		{cli.ExitUsage, "is a folder", []string{"session", "show", ref + secret, "--tls-ca", dir}},
		{cli.ExitRefused, "line 1: not JSON", []string{"session", "import", "/dev/zero"}},
		{cli.ExitRefused, "more than 65536 bytes", []string{"serve", "--share-key-file", "/dev/zero"}},
		{cli.ExitRefused, "--tls-cert: /dev/zero has more than 1048576 bytes", []string{"serve", "--data", dir, "--tls-cert", "/dev/zero", "--tls-key", long}},
		{cli.ExitUsage, "is a folder", []string{"session", "import", dir}},
		{cli.ExitUsage, "is a folder", []string{"session", "append", ref + secret, dir}},
		{cli.ExitUsage, "cannot read " + filepath.Join(dir, "none") + ": no such file", []string{"session", "append", ref + secret, filepath.Join(dir, "none")}},
	} {
		if c.args[0] != "serve" {
			c.args = append(c.args, "--home", home)
		}
		code, out, message := command(t, c.args...)
		if code != c.code || !strings.Contains(message, c.words) || strings.Count(message, "\n") != 1 || out != "" || strings.Contains(message, secret) {
			t.Errorf("mooring %s: exit %d, %q %q", strings.Join(c.args[:2], " "), code, out, message)
		}
	}
}

// A pipe gives a ref once, and that is enough for every command.
func TestARefFromAPipe(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_piped")
	ref := r.shareTo("helper", id, "--rights", "read,revoke")
	fifo := filepath.Join(r.dir, "fifo")
	if err := syscall.Mkfifo(fifo, 0o600); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		w, err := os.OpenFile(fifo, os.O_WRONLY, 0)
		if err == nil {
			_, err = bufio.NewReader(strings.NewReader(string(readFile(t, ref[1:])))).WriteTo(w)
			_ = w.Close()
		}
		done <- err
	}()
	if out := r.okAs(r.otherHome("helper"), "", "revoke", "@"+fifo); !strings.HasPrefix(out, "revoked; the cut is at") {
		t.Errorf("revoke: %q", out)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// REF is looked at before standard input is waited for, which may be for ever.
func TestAppendWithoutItsRef(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	ops := filepath.Join(dir, "ops.jsonl")
	if err := os.WriteFile(ops, []byte(putLine("x")), 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, words := range map[string]string{
		ops: "REF comes before it, mooring session append REF " + ops, "ses_unknown": "knows no ref for this session",
		"ses_01JABCDEFGHJKMNPQRSTVWXYZ0.s01JABCDEFGHJKMNPQRSTVWXYZ0": "knows no such ref",
	} {
		var out, errOut lockbuf.Buffer
		in := newWaited(t)
		if code := runContext(t.Context(), []string{"session", "append", arg, "--home", filepath.Join(dir, "home")}, in, &out, &errOut); code != cli.ExitRefused || !strings.Contains(errOut.String(), words) {
			t.Errorf("%s: exit %d, %q", arg, code, errOut.String())
		}
	}
	if code, _, message := command(t, "session", "show", ops, "--home", filepath.Join(dir, "home")); code != cli.ExitRefused || !strings.Contains(message, "@"+ops+" stands for a ref in it") {
		t.Errorf("exit %d, %q", code, message)
	}
}

// TestUTF16IsRead: PowerShell's > writes what a program printed in UTF-16.
func TestUTF16IsRead(t *testing.T) {
	t.Parallel()
	r := newCLI(t, "")
	id := r.create("ses_utf16")
	const line = `{"method":"put","key":"message/m","payload":{"text":"Grüße 😀"}}` + "\n"
	in := func(order binary.AppendByteOrder, text string) string {
		var b []byte
		for _, unit := range utf16.Encode([]rune("\ufeff" + text)) {
			b = order.AppendUint16(b, unit)
		}
		return string(b)
	}
	for _, text := range []string{in(binary.LittleEndian, line), in(binary.BigEndian, line), "\ufeff" + line, line} {
		if got := r.okIn(text, "session", "append", id, "--wait"); !strings.Contains(got, "applied") {
			t.Errorf("%q: %s", text[:4], got)
		}
	}
	if got := r.ok("session", "export", id); !strings.Contains(got, "Grüße 😀") {
		t.Errorf("the export is %s", got)
	}
	file := filepath.Join(r.dir, "ref")
	for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
		if err := os.WriteFile(file, []byte(in(order, mustRef(t, r.owner()).Text()+"\r\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		r.ok("session", "list", "--owner", "@"+file)
	}
}
