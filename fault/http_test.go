package fault

import "testing"

func TestEveryCodeHasAStatus(t *testing.T) {
	t.Parallel()
	for c := range names {
		status, known := statuses[c]
		if known == (c == None) || known && (status < 400 || status > 599) {
			t.Errorf("%s has status %d, %v", c, status, known)
		}
		if again := c.RetryAfter() != ""; again != (c.Transient() && c != Gap) || again && status != 404 && status != 429 && status != 503 && c != QuotaExceeded {
			t.Errorf("%s with status %d may be tried again: %v", c, status, again)
		}
	}
	for c, want := range map[Code]int{None: 500, Code(9999): 500, UnknownRef: 401, Revoked: 403, SessionDeleted: 410, Overloaded: 429, Draining: 503, QuotaExceeded: 507} {
		if got := c.HTTPStatus(); got != want {
			t.Errorf("%s has status %d, want %d", c, got, want)
		}
	}
}
