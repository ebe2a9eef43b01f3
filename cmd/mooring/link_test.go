//go:build unix

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/internal/lockbuf"
)

// The address that link prints is that of a page which serves what the ref allows,
// and says what it holds to nobody but whoever asked.
func TestLink(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, database string) {
		r := newCLI(t, database)
		id := r.importSmall()
		reader, sealed := filepath.Join(r.dir, "reader.ref"), filepath.Join(r.dir, "sealed.ref")
		r.ok("share", id, "--rights", "read", "--to", reader)
		r.ok("share", id, "--rights", "read", "--seal", strings.TrimSpace(r.ok("key")), "--to", sealed)
		ref := mustRef(t, "@"+reader)

		got := r.runIn("", "link", "@"+reader)
		want := "http://" + r.proxy.Addr() + "/s/" + ref.ID + "#" + ref.Secret.RevealText() + "\n"
		if got.code != cli.ExitOK || got.out != want || strings.Count(got.err, "\n") != 1 || !strings.Contains(got.err, "secret") || strings.Contains(got.err, ref.Secret.RevealText()) {
			t.Errorf("%+v, want %s", got, want)
		}
		r.ok("redeem", "@"+reader) // the home knows it from then on
		if out := r.ok("link", ref.ID); out != want {
			t.Errorf("by its id: %s", out)
		}
		var shown struct{ URL string }
		if got := r.runIn("", "link", "@"+reader, "--json"); json.Unmarshal([]byte(got.out), &shown) != nil || shown.URL+"\n" != want || got.err != "" {
			t.Errorf("as JSON: %+v", got)
		}
		if out := r.ok("link", id); !strings.HasPrefix(out, "http://"+r.proxy.Addr()+"/s/"+id+".") {
			t.Errorf("of a session's id: %s", out)
		}
		owner := mustRef(t, r.owner())
		if out := r.ok("link", r.owner()); out != "http://"+r.proxy.Addr()+"/sessions#"+owner.ID+"#"+owner.Secret.RevealText()+"\n" {
			t.Errorf("of a space: %s", out)
		}
		if out := r.ok("link", owner.Target()); !strings.Contains(out, "/sessions#"+owner.ID+"#") {
			t.Errorf("of a space's id: %s", out)
		}
		page, _, _ := strings.Cut(want, "#")
		res, err := http.Get(page)
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if err != nil || res.StatusCode != http.StatusOK || !strings.Contains(string(body), "/s/"+ref.ID+"/open") {
			t.Errorf("the page is %d %s %v", res.StatusCode, body, err)
		}

		// Without a server it works too; what cannot be linked is refused.
		r.stop()
		if out := r.ok("link", "@"+reader); out != want {
			t.Errorf("without a server: %s", out)
		}
		r.fails(cli.ExitRefused, "unavailable", "link", "@"+reader, "--public")
		r.start()
		r.fails(cli.ExitRefused, "sealed", "link", "@"+sealed)
		r.fails(cli.ExitRefused, "not_found", "link", "ses_unknown")
		r.fails(cli.ExitRefused, "bad_ref_text", "link", "@"+filepath.Join(r.dir, "none"))
		r.fails(cli.ExitRefused, "bad_argument", "link", r.owner(), "--public")
		r.fails(cli.ExitRefused, "missing_right", "link", "@"+reader, "--public")
		r.fails(cli.ExitUsage, "mooring link takes REF, and got 0 arguments", "link")

		r.fails(cli.ExitUsage, "public", "link", "@"+reader, "--public", "--opencode")
		r.fails(cli.ExitRefused, "bad_argument", "link", "@"+reader, "--opencode")

		// What opencode shares has a public page, which a ref of the session leads to.
		creator, mine := filepath.Join(r.dir, "creator.ref"), filepath.Join(r.dir, "mine.ref")
		r.ok("share", r.owner(), "--rights", "create", "--to", creator)
		r.fails(cli.ExitRefused, "create and nothing else", "link", r.owner(), "--opencode") // which may all
		made := createShare(t, strings.TrimSpace(r.ok("link", "@"+creator, "--opencode")), "ses_shared")
		if database == "" {
			r.stop()
		}
		var out, errOut lockbuf.Buffer
		args := []string{"admin", "rotate-owner", "--data", r.data(), "--session", "ses_shared", "--to", mine}
		if database != "" {
			args = append(args, "--database-url", database)
		}
		if code := runContext(t.Context(), args, strings.NewReader(""), &out, &errOut); code != cli.ExitOK {
			t.Fatal(code, errOut.String())
		}
		if r.stop == nil {
			r.start()
		}
		got = r.runIn("", "link", "@"+mine, "--public")
		if got.code != cli.ExitOK || got.err != "" || got.out != "http://"+r.proxy.Addr()+"/share/"+made.ID+"\n" {
			t.Errorf("the public share is %+v", got)
		}
		r.ok("revoke", ref.ID)
		r.fails(cli.ExitRefused, "revoked", "link", "@"+reader, "--public")
		plain := strings.Replace(ref.Text(), r.proxy.Addr(), "example.org", 1)
		r.fails(cli.ExitRefused, "plaintext", "link", plain, "--public")
	})
}

func TestLinkSpellings(t *testing.T) {
	t.Parallel()
	ref := "ses_01JABCDEFGHJKMNPQRSTVWXYZ0.s01JABCDEFGHJKMNPQRSTVWXYZ0#" + strings.Repeat("A", 43)
	for at, want := range map[string]string{
		"mooring://127.0.0.1/": "http://127.0.0.1:7600/s/", "moorings://pages.example:443/": "https://pages.example/s/",
		"moorings://pages.example/a/b/": "https://pages.example:7600/a/b/s/", "mooring://[::1]:80/": "http://[::1]/s/",
		"mooring://one,two/": "http://one:7600/s/",
	} {
		var out, errOut lockbuf.Buffer
		code := runContext(t.Context(), []string{"link", at + ref}, strings.NewReader(""), &out, &errOut)
		if want += ref + "\n"; code != cli.ExitOK || out.String() != want {
			t.Errorf("%s: exit %d, %s%s, want %s", at, code, out.String(), errOut.String(), want)
		}
	}
	if !regexp.MustCompile(`(?m)^  link `).MatchString(help(t)) {
		t.Error("the help does not name link")
	}
}

// help is what mooring says of itself.
func help(t *testing.T) string {
	t.Helper()
	var out, errOut lockbuf.Buffer
	if code := runContext(t.Context(), []string{"--help"}, strings.NewReader(""), &out, &errOut); code != cli.ExitOK {
		t.Fatal(code, errOut.String())
	}
	return out.String()
}
