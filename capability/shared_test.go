package capability

// The refs that the JavaScript client is held to as well: testdata/refs.json has what this package makes of each text.
// Run with MOORING_UPDATE=1 to write it anew.

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

const sharedRefs = "../testdata/refs.json"

// sharedRef is a text and what becomes of it.
type sharedRef struct {
	Text    string   `json:"text"`
	Error   string   `json:"error,omitempty"` // what is wrong with it, in full
	TLS     bool     `json:"tls,omitempty"`
	Hosts   []string `json:"hosts,omitempty"`
	Prefix  string   `json:"prefix,omitempty"`
	ID      string   `json:"id,omitempty"`
	Target  string   `json:"target,omitempty"`
	Address string   `json:"address,omitempty"`
	Again   string   `json:"again,omitempty"`  // the text in its one spelling
	Public  string   `json:"public,omitempty"` // as it is printed
	Hash    string   `json:"hash,omitempty"`
	Clear   string   `json:"clear,omitempty"` // the host that would get the secret in clear
	Offline bool     `json:"offline,omitempty"`
	Sealed  bool     `json:"sealed,omitempty"`
	Fits    bool     `json:"fits,omitempty"`
	Derived string   `json:"derived,omitempty"` // DeriveID of target and secret
}

func TestSharedRefs(t *testing.T) {
	t.Parallel()
	const session, space = "ses_01M7XHZXQMGNPZVGCRHFRZXZNV", "spc_01M7XHZXQMGNPZVGCRHFRZXZNW"
	var secrets []Secret
	for _, fill := range []byte{0, 1, 0x80, 0xff} {
		s, err := SecretFrom(bytes.Repeat([]byte{fill}, SecretBytes))
		if err != nil {
			t.Fatal(err)
		}
		secrets = append(secrets, s)
	}
	var texts []string
	for _, s := range secrets {
		for _, id := range []string{DeriveID(session, s), DeriveID(space, s), DeriveSealedID(session, s), session + ".s01M7XHZXQMGNPZVGCRHFRZXZNX"} {
			texts = append(texts, "mooring://localhost/"+id+"#"+s.RevealText())
		}
	}
	id, secret := DeriveID(session, secrets[1]), secrets[1].RevealText()
	for _, where := range []string{
		"mooring://h", "moorings://h", "mooring://H:7600", "mooring://h:1", "mooring://a,b:2,c", "mooring://127.0.0.1:80", "mooring://127.9.9.9",
		"mooring://[::1]", "mooring://[0:0::1]:9", "mooring://[::ffff:127.0.0.1]", "mooring://[2001:DB8::1]:443", "mooring://localhost,example.org",
		"moorings://example.org:443/a/b", "mooring://h/p-_.~", "mooring://h_1-x.y", "mooring://1.2.3.4", "http://h", "MOORING://h", "mooring:/h", "",
		"mooring://", "mooring://h:0", "mooring://h:65536", "mooring://h:01", "mooring://h:", "mooring://h:x", "mooring://h,", "mooring://[::1", "mooring://[::1]9",
		"mooring://[1.2.3.4]", "mooring://[fe80::1%25eth0]", "mooring://h..i", "mooring://h i", "mooring://ü", "mooring://u@h", "mooring://h//p",
		"mooring://h/./p", "mooring://h/../p", "mooring://h/p?q", "mooring://" + strings.Repeat("h,", 16) + "h", "mooring://h/" + strings.Repeat("p", 257),
		"mooring://" + strings.Repeat("h", 64), "mooring://" + strings.Repeat("h", 63),
	} {
		texts = append(texts, where+"/"+id+"#"+secret)
	}
	texts = append(texts, "mooring://h#"+secret, "mooring://h/"+id, "mooring://h/"+id+"#", "mooring://h/"+id+"#"+secret[1:], "mooring://h/"+id+"#"+secret+"A",
		"mooring://h/"+id+"#"+secret[:42]+"B", "mooring://h/"+id+"#"+secret[:42]+"=", "mooring://h/"+session+"#"+secret, "mooring://h/"+session+".#"+secret,
		"mooring://h/"+id[:len(id)-1]+"#"+secret, "mooring://h/"+id[:len(id)-1]+"b#"+secret, "mooring://h/"+strings.ToUpper(id)+"#"+secret,
		"mooring://h/"+strings.Replace(id, ".o", ".x", 1)+"#"+secret, "mooring://h/"+strings.Replace(id, ".o", ".k", 1)+"#"+secret,
		"mooring://h/"+strings.ToLower(session)+id[30:]+"#"+secret, strings.Repeat("x", 4097))

	all := make([]sharedRef, 0, len(texts))
	for _, text := range texts {
		r, err := ParseRef(text)
		if err != nil {
			var f *fault.Error
			if !errors.As(err, &f) {
				t.Fatal(err)
			}
			all = append(all, sharedRef{Text: text, Error: f.Error()})
			continue
		}
		hash := r.Secret.Hash()
		all = append(all, sharedRef{Text: text, TLS: r.TLS, Hosts: r.Hosts, Prefix: r.Prefix, ID: r.ID, Target: r.Target(), Address: r.Address(),
			Again: r.Text(), Public: r.String(), Hash: base64.RawURLEncoding.EncodeToString(hash[:]), Clear: r.ClearTextHost(), Offline: ClientMade(r.ID),
			Sealed: Sealed(r.ID), Fits: DerivedFrom(r.ID, r.Secret), Derived: DeriveID(r.Target(), r.Secret)})
	}
	var want bytes.Buffer
	enc := json.NewEncoder(&want)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", " ")
	if err := enc.Encode(all); err != nil {
		t.Fatal(err)
	}
	if os.Getenv("MOORING_UPDATE") != "" {
		if err := os.WriteFile(sharedRefs, want.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(sharedRefs)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want.Bytes()) {
		t.Errorf("%s does not have what this package makes of its texts: run this test with MOORING_UPDATE=1, and then the JavaScript client's", sharedRefs)
	}
}
