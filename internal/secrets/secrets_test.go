package secrets

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// Secrets of no account, in pieces, so that nobody who looks for such finds them here.
var (
	github  = "ghp_" + "R7kQm2Zx9VbT4nLw8YcJ5sHd1GfP6aEu3oXi"
	aws     = "AKIA" + "Q3EGZ7VTM2XKWBYF"
	slack   = "xoxb-" + "914263758210-2736481950274-Qm7ZkTx2Vb9LnRw4YcJ8sHdG"
	stripe  = "sk_live_" + "9VbT4nLw8YcJ5sHd1GfP6aEu"
	private = "-----BEGIN RSA PRIVATE KEY-----\nMIIBOgIBAAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf9Cnzj4p4WGeKLs1Pt8Qu\nKUpRKfFLfRYC9AIKjbJTWitCqvjWYzvQwECAwEAAQ\n-----END RSA PRIVATE KEY-----"
)

func TestFound(t *testing.T) {
	t.Parallel()
	for value, rule := range map[string]string{
		`{"text":"the token is ` + github + `."}`:                          "github-pat",
		`{"a":{"b":["export AWS_ACCESS_KEY_ID=` + aws + `"]}}`:             "aws-access-token",
		`{"output":"` + slack + `"}`:                                       "slack-bot-token",
		`{"x":"` + stripe + `"}`:                                           "stripe-access-token",
		`{"x":` + string(quoted("key:\n"+private+"\n")) + `}`:              "private-key",
		`{"x":"postgres://ada:tiny@db.example.org/app"}`:                   "password-in-url",
		`{"x":"curl https://x:R7kQm2Zx9VbT4nLw8Y@example.org"}`:            "password-in-url",
		`{"api_key":"R7kQm2Zx9VbT4nLw8YcJ5sHd"}`:                           "generic-api-key", // by its name
		`{"x":"line one\nSECRET_TOKEN=R7kQm2Zx9VbT4nLw8YcJ5sHd\nanother"}`: "generic-api-key",
		`{"` + github + `":1}`:                                             "",
		`{"x":"ghp_short"}`:                                                "",
		`{"x":"postgres://ada:$PASSWORD@db/app, https://example.org:80/"}`: "",
		`{"x":"a commit is 6f1ed002ab5595859014ebf0951522d9a1b2c3d4"}`:     "",
		`{"x":"key = ` + strings.Repeat("a", 40) + `"}`:                    "", // allowed
		`{"x":"access_token = kqkqkqzkqkqkqzkq7"}`:                         "", // of low entropy
		`not JSON`: "",
		`{"x":"`:   "",
	} {
		var s Scanner
		s.Scan([]byte(value))
		if rule == "" {
			if got := s.Summary(); got != "" {
				t.Errorf("%s: %s", value, got)
			}
			continue
		}
		if got := s.Summary(); got != rule+" (1)" {
			t.Errorf("%s: %q", value, got)
			continue
		}
		redacted := s.Redact([]byte(value))
		if !json.Valid(redacted) || !strings.Contains(string(redacted), "[redacted: "+rule+"]") {
			t.Errorf("%s: redacted: %s", value, redacted)
		}
		var again Scanner
		if again.Scan(redacted); again.Summary() != "" {
			t.Errorf("%s: still in %s: %s", value, redacted, again.Summary())
		}
	}
}

// TestRedactsElsewhere has a secret that a rule knows by its name redacted where it has none, and nothing else changed.
func TestRedactsElsewhere(t *testing.T) {
	t.Parallel()
	var s Scanner
	s.Scan([]byte(`{"text":"SECRET_TOKEN=R7kQm2Zx9VbT4nLw8YcJ5sHd"}`))
	s.Scan([]byte(`{"text":"postgres://ada:tiny@db.example.org/app"}`))
	in := `{ "R7kQm2Zx9VbT4nLw8YcJ5sHd": 1.50, "b": ["it is \u00527kQm2Zx9VbT4nLw8YcJ5sHd!", "a \u00e9 <b> tiny", "http://ada:tiny@x"] }`
	want := `{ "[redacted: generic-api-key]": 1.50, "b": ["it is [redacted: generic-api-key]!", "a \u00e9 <b> tiny", "http://ada:[redacted: password-in-url]@x"] }`
	if got := string(s.Redact([]byte(in))); got != want {
		t.Errorf("%s", got)
	}
}

// TestRules compiles each.
func TestRules(t *testing.T) {
	t.Parallel()
	set := loadRules()
	if len(set.rules) < 200 {
		t.Errorf("%d rules", len(set.rules))
	}
	for _, r := range set.rules {
		if r.compiled() == nil || len(r.Keywords) == 0 || !regexp.MustCompile(`^[a-z0-9-]+$`).MatchString(r.ID) {
			t.Errorf("%+v", r)
		}
		for i := range r.Allowlists {
			r.Allowlists[i].compiled()
		}
	}
}

// FuzzRedact has what is redacted stay JSON, and what was found be gone.
func FuzzRedact(f *testing.F) {
	f.Add(`a "quoted" ` + github + "\n" + private)
	f.Add("postgres://ada:tiny@db.example.org/app \\ \u2028")
	f.Fuzz(func(t *testing.T, text string) {
		value, err := json.Marshal(map[string]string{"x": text})
		if err != nil {
			t.Fatal(err) // no text does that
		}
		var s Scanner
		s.Scan(value)
		got := s.Redact(value)
		if !json.Valid(got) {
			t.Fatalf("%q", got)
		}
		for secret := range s.rules {
			if len(secret) >= minRepeated && !strings.Contains("[redacted: "+s.rules[secret]+"]", secret) && strings.Contains(jsonText(t, got), secret) {
				t.Fatalf("%q is in %s", secret, got)
			}
		}
	})
}

func jsonText(t *testing.T, value []byte) string {
	t.Helper()
	var m map[string]string
	if err := json.Unmarshal(value, &m); err != nil {
		t.Fatal(err)
	}
	return m["x"]
}

// A file in base64, as of a picture, is not looked into, and what is around it and at its ends is.
func TestFilesInBase64(t *testing.T) {
	t.Parallel()
	file := strings.Repeat("ghp/AKIA+sk+eyJ9", 1<<18) // 4 MiB, with the words that rules look for
	for _, text := range []string{"data:image/png;base64," + file, file, file + " and " + file, strings.Repeat("a word ", 600)} {
		size := 0
		for piece := range withoutFiles(text) {
			size += len(piece)
		}
		if files := strings.Count(text, file[:1<<20]); size > 8192+files || files == 0 && size != len(text) {
			t.Errorf("%.20s… of %d bytes: %d are looked at", text, len(text), size)
		}
	}
	for _, text := range []string{github + file, file + github, github + " " + file, file + "\n" + github, file + " " + github + " " + file, "x " + file + " https://ada:" + github[4:20] + "@example.org"} {
		var s Scanner
		if s.Scan(quoted(text)); !strings.HasSuffix(s.Summary(), " (1)") {
			t.Errorf("%.20s… of %d bytes: %q", text, len(text), s.Summary())
		}
		if got := string(s.Redact(quoted(text))); strings.Contains(got, github[4:20]) || !strings.Contains(got, file[:1<<20]) {
			t.Errorf("%.20s… of %d bytes is redacted to %d", text, len(text), len(got))
		}
	}
}
