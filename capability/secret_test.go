package capability

import (
	"testing"

	"github.com/mooring-rpc/mooring/fault"
)

// The same is in clients/js/test/ref.test.ts: an outbox that goes from one client to
// the other must show its servers what they know.
func TestStreamSecret(t *testing.T) {
	t.Parallel()
	outbox, err := ParseSecret("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8")
	if err != nil {
		t.Fatal(err)
	}
	if got := outbox.StreamSecret("ses_01JABCDEFGHJKMNPQRSTVWXYZ0").RevealText(); got != "89n1WR80OoOkv0oM--78Dr5gGFVJfjnqQ-M8yxWRT5A" {
		t.Errorf("it is %s", got)
	}
	if outbox.StreamSecret("ses_01JABCDEFGHJKMNPQRSTVWXYZ0").Equal(outbox.StreamSecret("ses_01JABCDEFGHJKMNPQRSTVWXYZ1")) {
		t.Error("two sessions have the same")
	}
}

func TestSecretsAreEqual(t *testing.T) {
	a := NewSecret()
	same, err := SecretFrom(a.Reveal())
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		a, b Secret
		want bool
	}{{a, a, true}, {a, same, true}, {a, NewSecret(), false}, {a, Secret{}, false}, {Secret{}, a, false}, {Secret{}, Secret{}, true}} {
		if tc.a.Equal(tc.b) != tc.want {
			t.Errorf("%v", tc)
		}
	}
	if _, err := SecretFrom(nil); fault.CodeOf(err) != fault.BadRefText {
		t.Error(err)
	}
	if n := testing.AllocsPerRun(100, func() { _ = a.Equal(same) }); n > 0 {
		t.Errorf("comparing takes %v allocations", n)
	}
}
