// Command preview renders the recordings of opencode and the pages around them into files, to
// inspect the design: go run ./internal/page/internal/preview FOLDER. Any file server can show the folder;
// nothing in it is live.
package main

import (
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/page/internal/recorded"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: preview FOLDER")
		os.Exit(2)
	}
	if err := render(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "preview:", err)
		os.Exit(1)
	}
}

func render(folder string) error {
	files, err := filepath.Glob("testdata/opencode/*.jsonl")
	if err != nil {
		return err
	}
	pages := map[string]func(io.Writer) error{
		"unlock": func(w io.Writer) error { return page.Unlock(w, "", "ses_01.abc") },
		"signin": func(w io.Writer) error { return page.SignIn(w, "") },
		"failure": func(w io.Writer) error {
			return page.Failure(w, "", 410, fault.Revoked.With("the ref was revoked at cursor 240: ask its sharer for a new one"))
		},
		"sessions": func(w io.Writer) error { return page.Sessions(w, rows()) },
		"kinds": func(w io.Writer) error {
			state, err := recorded.Kinds()
			if err != nil {
				return err
			}
			return state.Write(w, page.Head{ID: "kinds", Cursor: 7})
		},
	}
	for _, file := range files {
		state, err := recorded.Read(file)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(filepath.Base(file), "-")
		pages[name] = func(w io.Writer) error { return state.Write(w, page.Head{ID: state.ID, Cursor: state.Cursor}) }
	}
	assets := regexp.MustCompile(`/assets/([a-z0-9.-]+)`)
	for name, write := range pages {
		var b strings.Builder
		if err := write(&b); err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Join(folder, "assets"), 0o755); err != nil {
			return err
		}
		for _, m := range assets.FindAllString(b.String(), -1) {
			w := httptest.NewRecorder()
			page.Assets().ServeHTTP(w, httptest.NewRequest("GET", m, nil))
			if w.Code == 200 {
				if err := os.WriteFile(filepath.Join(folder, m), w.Body.Bytes(), 0o644); err != nil {
					return err
				}
			}
		}
		if err := os.WriteFile(filepath.Join(folder, name+".html"), []byte(b.String()), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func rows() page.List {
	l := page.List{Query: "", Order: "changed", Next: "/sessions?after=x"}
	for i, title := range []string{"Long session", "Edit session", "Revert and unshare", "", "A session with a title that is rather long, so that one sees how it breaks on the screen of a phone"} {
		l.Rows = append(l.Rows, page.Row{Title: title, ID: "ses_01M7XHZXQMGNPZVGCRHFRZXZNV", External: "ses_e058388aeffeU4xCgg4CR1bkbw",
			Created: 1795203823442 - int64(i)*86400000, Updated: 1795203835373 - int64(i)*80000000, Cursor: uint64(237 * (i + 1)), Link: "/s/ses_01"})
	}
	return l
}
