package capability_test

// A secret is never printed by accident, wherever it is put.

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/fault"
)

// holder has secrets where fmt cannot call their methods.
type holder struct {
	Ref    capability.Ref
	Secret *capability.Secret
	ref    capability.Ref
	secret capability.Secret
	many   map[string]capability.Ref
}

func TestSecretsAreNeverPrinted(t *testing.T) {
	t.Parallel()
	secret := mustSecret(t, secretText)
	ref := capability.Ref{Hosts: []string{"a:7600"}}.With(derivedID, secret)
	h := holder{ref, &secret, ref, secret, map[string]capability.Ref{"k": ref}}
	values := map[string]any{
		"secret": secret, "*secret": &secret, "ref": ref, "*ref": &ref, "holder": h, "*holder": &h,
		"list": []any{secret, ref, h}, "map": map[string]any{"s": secret, "r": &ref}, "error": fmt.Errorf("with %v and %+v: %w", secret, ref, fault.Revoked),
	}
	forms := []string{secretText, hex.EncodeToString(secret.Reveal()), strings.ToUpper(hex.EncodeToString(secret.Reveal())), string(secret.Reveal()[:16]),
		"0 1 2 3 4 5", "0, 1, 2, 3, 4", "0x0, 0x1, 0x2", "1 10 11 100"}
	clean := func(how, text string) {
		t.Helper()
		for _, form := range forms {
			if strings.Contains(text, form) {
				t.Errorf("%s gives the secret away: %s", how, text)
				return
			}
		}
	}
	for name, v := range values {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "% x", "%#x", "%d", "%b", "%o", "%c", "%U", "%t", "%p", "%e", "%10.3v", "%T"} {
			clean(name+" by "+verb, fmt.Sprintf(verb, v))
		}
		clean(name+" by Sprint", fmt.Sprint(v)+fmt.Sprintln(v))
		text, err := json.Marshal(v)
		if err != nil {
			t.Errorf("%s as JSON: %v", name, err)
		}
		clean(name+" as JSON", string(text))
		var log bytes.Buffer
		for _, handler := range []slog.Handler{slog.NewTextHandler(&log, nil), slog.NewJSONHandler(&log, nil)} {
			l := slog.New(handler).With("bound", v)
			l.LogAttrs(context.Background(), slog.LevelError, "m", slog.Any("v", v), slog.Group("g", "v", v))
		}
		clean(name+" in a log", log.String())
	}
	for how, got := range map[string]string{"%v": fmt.Sprintf("%v", ref), "%#v": fmt.Sprintf("%#v", ref), "%s": fmt.Sprintf("%s", &ref), "String": ref.String(), "GoString": ref.GoString(), "LogValue": ref.LogValue().String()} {
		if want := "mooring://a/" + derivedID + "#…"; got != want {
			t.Errorf("%s gives %s, want %s", how, got, want)
		}
	}
	text, err := secret.MarshalText()
	for how, got := range map[string]string{"%v": fmt.Sprintf("%v", secret), "String": secret.String(), "GoString": secret.GoString(), "LogValue": secret.LogValue().String(), "MarshalText": string(text)} {
		if got != "…" || err != nil {
			t.Errorf("a secret's %s gives %s, %v", how, got, err)
		}
	}
	if text, err := ref.MarshalText(); err != nil || string(text) != ref.String() {
		t.Errorf("MarshalText gives %s, %v", text, err)
	}
	if _, err := capability.ParseRef(ref.String()); !errors.Is(err, fault.BadRefText) {
		t.Errorf("what is printed reads back: %v", err)
	}
}

func TestSecrets(t *testing.T) {
	t.Parallel()
	s := mustSecret(t, secretText)
	if s.RevealText() != secretText || !bytes.Equal(s.Reveal(), []byte("\x00\x01\x02\x03\x04\x05\x06\x07\x08\t\n\v\f\r\x0e\x0f\x10\x11\x12\x13\x14\x15\x16\x17\x18\x19\x1a\x1b\x1c\x1d\x1e\x1f")) {
		t.Errorf("revealed %s, %x", s.RevealText(), s.Reveal())
	}
	s.Reveal()[0] = 99
	given := s.Reveal()
	same, err := capability.SecretFrom(given)
	if err != nil || !same.Equal(s) {
		t.Errorf("from its bytes: %v", err)
	}
	given[0] = 99
	if !same.Equal(s) || s.Reveal()[0] != 0 {
		t.Error("a secret shares its bytes")
	}
	if hash := s.Hash(); hex.EncodeToString(hash[:]) != "630dcd2966c4336691125448bbb25b4ff412a49c732db2c8abc1b8581bd710dd" {
		t.Errorf("hash %x", hash)
	}
	if text := s.HashText(); text != "Yw3NKWbEM2aRElRIu7JbT_QSpJxzLbLIq8G4WBvXEN0" {
		t.Errorf("hash %s", text)
	}
	var none capability.Secret
	if !none.IsZero() || s.IsZero() || none.Reveal() != nil || none.RevealText() != "" || none.Equal(s) || s.Equal(none) {
		t.Error("no secret passes for one")
	}
	if a, b := capability.NewSecret(), capability.NewSecret(); a.Equal(b) || a.IsZero() {
		t.Error("new secrets are not new")
	}
	for _, n := range []int{0, 31, 33} {
		if _, err := capability.SecretFrom(make([]byte, n)); !errors.Is(err, fault.BadRefText) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
}
