package home

import (
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/cmd/mooring/internal/cli"
	"github.com/mooring-rpc/mooring/fault"
)

// A ref is found in whatever editors and terminals put around it.
func TestRefArguments(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const id = "ses_01JABCDEFGHJKMNPQRSTVWXYZ0.s01JABCDEFGHJKMNPQRSTVWXYZ0"
	secret := strings.Repeat("A", 43)
	ref := "mooring://127.0.0.1/" + id + "#" + secret
	space := strings.Replace(ref, "ses_", "spc_", 1)
	spaceID := strings.Replace(id, "ses_", "spc_", 1)
	file := func(text string) string {
		f, err := os.CreateTemp(dir, "*.ref")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteString(text); err != nil {
			t.Fatal(err)
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
		return "@" + f.Name()
	}
	h := &Folder{}
	for _, arg := range []string{
		ref, " " + ref + "\n", "\ufeff" + ref, file(ref), file("\ufeff" + ref + "\r\n"), file("\n\n" + ref + "\n\n"), " " + file(ref) + "\n",
		"http://127.0.0.1:7600/s/" + id + "#" + secret, file("http://127.0.0.1:7600/s/" + id + "#" + secret + "\n"),
	} {
		for range 2 {
			if got, plain, err := h.Ref(t.Context(), arg); err != nil || plain != "" || got.Text() != ref {
				t.Errorf("%q: %v %q %v", arg, got, plain, err)
			}
		}
	}
	for arg, want := range map[string]string{
		"https://share.example/a/b/s/" + id + "#" + secret:              "moorings://share.example:443/a/b/" + id + "#" + secret,
		"https://share.example:7600/sessions#" + spaceID + "#" + secret: strings.Replace(space, "mooring://127.0.0.1", "moorings://share.example", 1),
	} {
		if got, _, err := h.Ref(t.Context(), arg); err != nil || got.Text() != want {
			t.Errorf("%q: %v %v", arg, got, err)
		}
	}
	for arg, want := range map[string]string{" ses_x\n": "ses_x", "\ufeff" + id + " ": id} {
		if _, got, err := h.Ref(t.Context(), arg); err != nil || got != want {
			t.Errorf("%q: %q %v", arg, got, err)
		}
	}
	for _, c := range []struct {
		arg, words, not string
		misspelt        bool
	}{
		{"", "REF is empty", "", false}, {" \n", "REF is empty", "", false},
		{file(""), "is empty", "", false}, {file("\ufeff\n"), "is empty", "", false},
		{file(ref + "\n" + ref + "\n"), "more than one ref", "", false}, {file(ref[:40] + "\n" + ref[40:]), "white space within", "cut off", false},
		{file("\xff\xfem\x00o\x00"), "does not start with mooring://", "", false}, {file("hello"), "does not start with mooring://", "cut off", false},
		{ref[:len(ref)-1], "cut off", "", true}, {ref + "A", "44 characters", "cut off", true}, {ref[:len(ref)-1] + "*", "mistyped", "cut off", true},
		{"http://127.0.0.1/s/" + id, "without the secret", secret, true}, {"http://127.0.0.1/" + id + "#" + secret, "mooring://", secret, true},
		{"https://share.example/sessions", "without the secret", "", true}, {"mooring://h o/" + id + "#" + secret, "white space", secret, true},
	} {
		_, _, err := h.Ref(t.Context(), c.arg)
		if err == nil || !strings.Contains(err.Error(), c.words) || c.not != "" && strings.Contains(err.Error(), c.not) {
			t.Errorf("%q: %v, want %q", c.arg, err, c.words)
			continue
		}
		if _, is := err.(cli.UsageError); is != c.misspelt || fault.CodeOf(err) != fault.BadRefText && fault.CodeOf(err) != fault.Usage {
			t.Errorf("%q: misspelt %v, %s", c.arg, is, fault.CodeOf(err))
		}
	}
}
