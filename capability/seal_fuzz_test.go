package capability

import (
	"crypto/ed25519"
	"testing"
)

func FuzzParseSealKey(f *testing.F) {
	f.Add("")
	f.Add("lB2kGVoX9yrd81vpeFpZ2C8NUniuYT-PmYB89WYU9EQ")
	f.Add("lB2kGVoX9yrd81vpeFpZ2C8NUniuYT-PmYB89WYU9ER") // bits that no byte has
	f.Add("lB2kGVoX9yrd81vpeFpZ2C8NUniuYT-PmYB89WYU9EQ=")
	f.Add("lB2kGVoX9yrd81vpeFpZ2C8NUniuYT-PmYB89WYU9EQ\n")
	f.Add("lB2kGVoX9yrd81vpeFpZ2C8NUniuYT-PmYB89WY\n\n\n")
	f.Fuzz(func(t *testing.T, text string) {
		key, err := ParseSealKey(text)
		switch {
		case err != nil && key != nil:
			t.Errorf("%q is no key, and gave %x", text, key)
		case err == nil && len(key) != ed25519.PublicKeySize:
			t.Errorf("%q gave %d bytes", text, len(key))
		case err == nil && SealKeyText(key) != text: // a key has one text
			t.Errorf("%q is written %q", text, SealKeyText(key))
		}
	})
}
