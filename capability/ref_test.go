package capability_test

// Sturdy refs as text: what is read, what is refused, where they lead.

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"
	"pgregory.net/rapid"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// The id that belongs to session1 and secretText, computed by another program
// from the description alone.
const derivedID = session1 + ".od2dztis2xxesmh6x6tam6dcajm"

const serverID = session1 + ".s01J00000000000000000000009"

func TestParseRef(t *testing.T) {
	t.Parallel()
	tail := "/" + derivedID + "#" + secretText
	for text, want := range map[string]struct {
		ref  capability.Ref
		urls []string
		text string // "" if it is printed as it was read
	}{
		"mooring://127.0.0.1" + tail:                      {capability.Ref{Hosts: []string{"127.0.0.1:7600"}}, []string{"ws://127.0.0.1:7600/capnp"}, ""},
		"moorings://a.example:443" + tail:                 {capability.Ref{TLS: true, Hosts: []string{"a.example:443"}}, []string{"wss://a.example:443/capnp"}, ""},
		"mooring://A.Example:7600" + tail:                 {capability.Ref{Hosts: []string{"a.example:7600"}}, []string{"ws://a.example:7600/capnp"}, "mooring://a.example" + tail},
		"moorings://a,b:1,[::1],[2001:DB8::0:5]:9" + tail: {capability.Ref{TLS: true, Hosts: []string{"a:7600", "b:1", "[::1]:7600", "[2001:db8::5]:9"}}, []string{"wss://a:7600/capnp", "wss://b:1/capnp", "wss://[::1]:7600/capnp", "wss://[2001:db8::5]:9/capnp"}, "moorings://a,b:1,[::1],[2001:db8::5]:9" + tail},
		"mooring://a/Z0z9A" + tail:                        {capability.Ref{Hosts: []string{"a:7600"}, Prefix: "Z0z9A"}, []string{"ws://a:7600/Z0z9A/capnp"}, ""},
		"mooring://a/x/y.z~" + tail:                       {capability.Ref{Hosts: []string{"a:7600"}, Prefix: "x/y.z~"}, []string{"ws://a:7600/x/y.z~/capnp"}, ""},
	} {
		r, err := capability.ParseRef(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		w := want.ref.With(derivedID, mustSecret(t, secretText))
		if !reflect.DeepEqual(r, w) || r.Target() != session1 {
			t.Errorf("%s reads as %#v, want %#v", text, r, w)
		}
		if !reflect.DeepEqual(r.URLs(), want.urls) {
			t.Errorf("%s leads to %v", text, r.URLs())
		}
		if want.text == "" {
			want.text = text
		}
		if r.Text() != want.text {
			t.Errorf("%s is printed as %s", text, r.Text())
		}
	}
}

func TestRefsAtOneAddressShareNothing(t *testing.T) {
	t.Parallel()
	at := capability.Ref{Hosts: []string{"a:7600"}}
	ref := at.With(derivedID, mustSecret(t, secretText))
	at.Hosts[0] = "b:7600"
	if ref.Hosts[0] != "a:7600" {
		t.Errorf("the ref has gone to %s", ref.Hosts[0])
	}
}

func badRefs() []string {
	tail := "/" + serverID + "#" + secretText
	return []string{
		"", secretText, "#" + secretText, tail, "mooring:", "mooring://", "mooring:///", "mooring://" + tail,
		"http://a" + tail, "MOORING://a" + tail, "mooring:/a" + tail, " mooring://a" + tail, "mooring://a" + tail + "\n",
		"mooring://a/" + serverID, "mooring://a/" + serverID + "#", "mooring://a#" + secretText, "mooring://a/#" + secretText,
		"mooring://a" + tail[:len(tail)-1], "mooring://a" + tail + "A", "mooring://a" + tail + "=",
		"mooring://a/" + serverID + "#" + secretText[:42] + "+", "mooring://a/" + serverID + "#" + secretText[:42] + "9", // trailing bits
		"mooring://a/" + serverID + "#" + secretText[:21] + "#" + secretText[:21],
		"mooring://a/" + serverID + "#" + secretText[:20] + "\n\n" + secretText[:21],
		"mooring://a/" + serverID + "#" + strings.Repeat("A", 42) + "\n",
		"mooring://a,/" + serverID + "#" + secretText, "mooring://,a" + tail, "mooring://a:" + tail, "mooring://a:0" + tail,
		"mooring://a:65536" + tail, "mooring://a:+80" + tail, "mooring://a:080" + tail, "mooring://a:b" + tail, "mooring://a:1:2" + tail,
		"mooring://" + secretText + "@a" + tail, "mooring://a b" + tail, "mooring://é" + tail, "mooring://a..b" + tail, "mooring://.a" + tail,
		"mooring://::1" + tail, "mooring://[::1" + tail, "mooring://[::1]7" + tail, "mooring://[127.0.0.1]" + tail, "mooring://[fe80::1%eth0]" + tail,
		"mooring://a" + strings.Repeat(",a", 16) + tail, "mooring://" + strings.Repeat("a", 254) + tail, "mooring://" + strings.Repeat("a", 5000) + tail,
		"mooring://a//" + serverID + "#" + secretText, "mooring://a/.." + tail, "mooring://a/x/./y" + tail, "mooring://a/x%20" + tail, "mooring://a/x?" + tail,
		"mooring://a/" + strings.Repeat("x", 257) + tail,
		"mooring://a/" + session1 + "#" + secretText, "mooring://a/" + session1 + ".#" + secretText, "mooring://a/" + session1 + ".x#" + secretText,
		"mooring://a/" + strings.ToLower(serverID) + "#" + secretText, "mooring://a/usr_" + serverID[4:] + "#" + secretText,
		"mooring://a/" + serverID + "x#" + secretText, "mooring://a/" + derivedID + "a#" + secretText,
		"mooring://a/" + strings.ToUpper(derivedID[:4]) + derivedID[4:] + "#" + secretText,
		"mooring://a/" + derivedID[:len(derivedID)-1] + "b#" + secretText, // trailing bits
	}
}

func TestParseRefRefuses(t *testing.T) {
	t.Parallel()
	for _, text := range badRefs() {
		r, err := capability.ParseRef(text)
		if !errors.Is(err, fault.BadRefText) || !reflect.DeepEqual(r, capability.Ref{}) {
			t.Errorf("%q reads as %v, %v", text, r, err)
		}
		if err != nil && strings.Contains(err.Error(), secretText[:20]) {
			t.Errorf("%q is refused with %v", text, err)
		}
	}
}

func FuzzParseRef(f *testing.F) {
	f.Add("mooring://127.0.0.1/" + derivedID + "#" + secretText)
	f.Add("moorings://a,b:1,[::1]/x/y/" + serverID + "#" + secretText)
	for _, text := range badRefs() {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := capability.ParseRef(text)
		if err != nil {
			checkNoEcho(t, text, err)
			return
		}
		again, err := capability.ParseRef(r.Text())
		if err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%q is printed as %q, which reads as %v, %v", text, r.Text(), again, err)
		}
		if strings.Contains(r.String(), r.Secret.RevealText()) || capability.Target(r.ID) == "" || len(r.URLs()) != len(r.Hosts) {
			t.Fatalf("%q reads as %v", text, r)
		}
	})
}

// FuzzParseAddress: an address reads back as it is printed, and so do refs at it.
func FuzzParseAddress(f *testing.F) {
	for _, text := range []string{"mooring://h", "moorings://a:1,[::1]:80/x/y", "http://h", "wss://h/x/", "https://h:443", "mooring://h/", "mooring://h?x", "mooring://h:0"} {
		f.Add(text)
	}
	secret, err := capability.ParseSecret(secretText)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, text string) {
		r, err := capability.ParseAddress(text)
		if err != nil {
			return
		}
		if again, err := capability.ParseAddress(r.Address()); err != nil || !reflect.DeepEqual(again, r) {
			t.Fatalf("%q is printed as %q, which reads as %v, %v", text, r.Address(), again, err)
		}
		at := r.With(derivedID, secret)
		if again, err := capability.ParseRef(at.Text()); err != nil || again.Text() != at.Text() {
			t.Fatalf("%q: a ref at it is %q, which reads as %v, %v", text, at.Text(), again, err)
		}
	})
}

// checkNoEcho fails if an error repeats any 8 bytes of what may be a secret.
func checkNoEcho(t *testing.T, text string, err error) {
	_, secret, _ := strings.Cut(text, "#")
	message := err.Error()
	for i := 0; i+8 <= len(secret); i++ {
		piece := secret[i : i+8]
		if strings.Contains(message, piece) && !strings.Contains("the ref has no #SECRET: quote it in a shell, where # begins a comment", piece) &&
			!strings.Contains(staticTexts, piece) {
			t.Fatalf("%q is refused with %v", text, err)
		}
	}
}

// staticTexts are the messages as they are for refs without any content, so
// that a fuzzer that writes our own words into a secret finds nothing.
var staticTexts = func() string {
	var b strings.Builder
	for _, text := range badRefs() {
		if _, err := capability.ParseRef(text); err != nil {
			b.WriteString(err.Error())
			b.WriteByte('\n')
		}
	}
	return b.String()
}()

func TestRefTextRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		host := rapid.SampledFrom([]string{"a:7600", "b.example:1", "127.0.0.1:65535", "[::1]:7600", "[2001:db8::1]:443", "xn--a-b_c:80"})
		r := capability.Ref{TLS: rapid.Bool().Draw(t, "tls"), Hosts: rapid.SliceOfN(host, 1, 16).Draw(t, "hosts"),
			Prefix: strings.Join(rapid.SliceOfN(rapid.StringMatching(`[a-z0-9~_-]{1,9}`), 0, 3).Draw(t, "prefix"), "/")}
		r = r.New(rapid.SampledFrom([]string{session1, session2, space1}).Draw(t, "target"))
		got, err := capability.ParseRef(r.Text())
		if err != nil || !reflect.DeepEqual(got, r) {
			t.Fatalf("%s reads as %#v, %v", r.Text(), got, err)
		}
		if !capability.ClientMade(r.ID) || !capability.DerivedFrom(r.ID, r.Secret) || capability.DerivedFrom(r.ID, capability.NewSecret()) {
			t.Fatalf("%s: the id and its secret do not belong together", r)
		}
		address, err := capability.ParseAddress(r.Address())
		if err != nil || !reflect.DeepEqual(address.With(r.ID, r.Secret), r) {
			t.Fatalf("%s is at %#v, %v", r, address, err)
		}
	})
}

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"mooring://a":              "mooring://a",
		"moorings://a:443/x/":      "moorings://a:443/x",
		"https://a.example":        "moorings://a.example:443",
		"https://a.example:8443/x": "moorings://a.example:8443/x",
		"wss://a,b":                "moorings://a:443,b:443",
		"http://[::1]/":            "mooring://[::1]:80",
		"ws://a:7600":              "mooring://a",
		"ws://a":                   "mooring://a:80",
	} {
		r, err := capability.ParseAddress(text)
		if err != nil || r.Address() != want || r.String() != want || r.ID != "" || !r.Secret.IsZero() {
			t.Errorf("%s reads as %s, %v; want %s", text, r, err, want)
		}
	}
	for _, text := range []string{"", "a:80", "ftp://a", "https://", "https://u:p@a", "https://a?b", "https://a#b", "https://a//x", "https://a:x", "mooring://" + strings.Repeat("a", 5000)} {
		if r, err := capability.ParseAddress(text); !errors.Is(err, fault.BadRefText) {
			t.Errorf("%.30q reads as %s, %v", text, r, err)
		}
	}
	for text, says := range map[string]string{"ftp://a": "mooring://", "https://a?b": "query"} {
		if _, err := capability.ParseAddress(text); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s is refused with %v", text, err)
		}
	}
}

// The bounds of a text and of its pieces are taken, and nothing beyond them.
func TestRefTextBounds(t *testing.T) {
	t.Parallel()
	host := strings.Repeat(strings.Repeat("a", 63)+".", 3) + strings.Repeat("a", 61)
	all := func(n int) string { return "mooring://" + strings.Repeat(host+",", n-1) + host + "/" }
	tail := derivedID + "#" + secretText
	fill := func(begin, end string, n int) string { return begin + strings.Repeat("x", n-len(begin)-len(end)) + end }
	for what, parse := range map[string]struct {
		ok  bool
		err error
	}{
		"an address":                 {true, second(capability.ParseAddress(fill(all(16), "", 4096)))},
		"an address too long":        {false, second(capability.ParseAddress(fill(all(16), "", 4097)))},
		"a ref":                      {true, second(capability.ParseRef(fill(all(15), "/"+tail, 4096)))},
		"a ref too long":             {false, second(capability.ParseRef(fill(all(15), "/"+tail, 4097)))},
		"a path":                     {true, second(capability.ParseRef("mooring://a/" + strings.Repeat("x", 256) + "/" + tail))},
		"a path too long":            {false, second(capability.ParseRef("mooring://a/" + strings.Repeat("x", 257) + "/" + tail))},
		"a name too long":            {false, second(capability.ParseRef("mooring://" + host + "a/" + tail))},
		"a piece of a name too long": {false, second(capability.ParseRef("mooring://a." + strings.Repeat("a", 64) + "/" + tail))},
	} {
		if (parse.err == nil) != parse.ok {
			t.Errorf("%s: %v", what, parse.err)
		}
	}
}

func second(_ capability.Ref, err error) error { return err }

func TestClearText(t *testing.T) {
	t.Parallel()
	for text, foreign := range map[string]string{
		"mooring://localhost":            "",
		"mooring://LOCALHOST:1":          "",
		"mooring://127.0.0.1":            "",
		"mooring://127.9.9.9:80":         "",
		"mooring://[::1]":                "",
		"mooring://[::ffff:127.0.0.1]":   "",
		"moorings://a.example":           "",
		"mooring://a.example":            "a.example:7600",
		"mooring://127.0.0.1,10.0.0.1":   "10.0.0.1:7600",
		"mooring://127.0.0.1.example":    "127.0.0.1.example:7600",
		"mooring://127.1":                "127.1:7600",
		"mooring://a.localhost":          "a.localhost:7600",
		"mooring://localhost.example:80": "localhost.example:80",
		"mooring://0.0.0.0":              "0.0.0.0:7600",
		"mooring://[::]":                 "[::]:7600",
		"mooring://[2001:db8::1]":        "[2001:db8::1]:7600",
	} {
		r, err := capability.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.ClearTextHost(); got != foreign {
			t.Errorf("%s would go in clear to %q, want %q", text, got, foreign)
		}
		if err := r.CheckPlaintext(false); (foreign != "") != errors.Is(err, fault.Plaintext) {
			t.Errorf("%s: %v", text, err)
		}
		if err := r.CheckPlaintext(true); err != nil {
			t.Errorf("%s, allowed: %v", text, err)
		}
	}
}

func TestRefIDs(t *testing.T) {
	t.Parallel()
	secret := mustSecret(t, secretText)
	if id := capability.DeriveID(session1, secret); id != derivedID {
		t.Errorf("derived %s, want %s", id, derivedID)
	}
	if capability.DeriveID(session1, secret) == capability.DeriveID(session2, secret) {
		t.Error("the target is not in the tail")
	}
	server := capability.ServerID(space1, ulid.ULID{1})
	for id, want := range map[string]struct {
		target  string
		offline bool
		fits    bool
	}{
		derivedID: {session1, true, true},
		capability.DeriveID(session1, capability.NewSecret()): {session1, true, false},
		serverID:                   {session1, false, false},
		server:                     {space1, false, false},
		"":                         {},
		".":                        {},
		session1:                   {},
		session1 + ".":             {},
		session1 + ".o":            {},
		session1 + ".s":            {},
		session1 + "." + serverID:  {},
		"x" + derivedID:            {},
		strings.ToUpper(derivedID): {},
	} {
		if got := capability.Target(id); got != want.target {
			t.Errorf("%q is for %q", id, got)
		}
		if capability.ClientMade(id) != want.offline || capability.DerivedFrom(id, secret) != want.fits {
			t.Errorf("%q: offline %v, fits %v", id, capability.ClientMade(id), capability.DerivedFrom(id, secret))
		}
	}
	if capability.DerivedFrom(derivedID, capability.Secret{}) || capability.DerivedFrom(capability.DeriveID(session1, capability.Secret{}), capability.Secret{}) {
		t.Error("no secret fits")
	}
	if capability.CheckClientMade(derivedID) != nil || codeOf(capability.CheckClientMade(serverID)) != fault.BadArgument || codeOf(capability.CheckClientMade("")) != fault.BadArgument {
		t.Error("who may make an id is mixed up")
	}
	if capability.IsSession(session1[len(capability.SessionPrefix):]) || capability.IsSpace(space1[len(capability.SpacePrefix):]) ||
		!capability.IsSession(session1) || capability.IsSession(space1) || capability.IsSession(session1+"0") || !capability.IsSpace(space1) || capability.IsSpace(session1) {
		t.Error("the kinds of ids are mixed up")
	}
}

func TestFixedIDs(t *testing.T) {
	t.Parallel()
	space := capability.SpacePrefix + "01ARZ3NDEKTSV4RRFFQ69G5FAV"
	id := capability.FixedID(space, "some end")
	if capability.Target(id) != space || capability.ClientMade(id) || id != capability.FixedID(space, "some end") || id == capability.FixedID(space, "another") ||
		id[len(space):] == capability.FixedID(capability.SpacePrefix+"01ARZ3NDEKTSV4RRFFQ69G5FAW", "some end")[len(space):] {
		t.Errorf("the fixed id is %s", id)
	}
}

func TestWebAddress(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"https://share.example": "https://share.example", "http://share.example": "http://share.example", "mooring://share.example": "http://share.example:7600",
		"moorings://share.example:443/a/b": "https://share.example/a/b", "https://[2001:db8::1]": "https://[2001:db8::1]", "mooring://[::1]:7611,other.example": "http://[::1]:7611",
	} {
		address, err := capability.ParseAddress(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := address.WebAddress(); got != want {
			t.Errorf("%s is %s in a browser, want %s", text, got, want)
		}
	}
}
