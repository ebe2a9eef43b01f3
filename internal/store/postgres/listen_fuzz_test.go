package postgres

import (
	"strings"
	"testing"
)

// Whoever may use the database may notify: an announcement is any text.
func FuzzParseAnnouncement(f *testing.F) {
	for _, text := range []string{"", " ", "ses_1 7", "ses_1", "ses_1 ", " 7", "ses_1 -7", "ses_1 7 8", "ses_1 18446744073709551616", "ses_1 +7", "ses_1 0x7"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		session, cursor, ok := parseNotification(text)
		if !ok {
			return
		}
		if session == "" || strings.Contains(session, " ") || !strings.HasPrefix(text, session+" ") {
			t.Errorf("%q is about session %q", text, session)
		}
		if digits := strings.TrimLeft(strings.TrimPrefix(text, session+" "), "0"); digits != "" && strings.Trim(digits, "0123456789") != "" {
			t.Errorf("%q is about cursor %d", text, cursor)
		}
	})
}
