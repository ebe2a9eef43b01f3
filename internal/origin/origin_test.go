package origin

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

func TestAdmission(t *testing.T) {
	t.Parallel()
	patterns := []string{"app.example", "*.wide.example", "https://tls.example"}
	for from, want := range map[string]bool{
		"": true, "http://here.example": true, "https://HERE.example": true, "https://app.example": true, "http://a.wide.example": true,
		"https://tls.example": true, "http://tls.example": false, "https://evil.example": false, "http://app.example.evil": false, "null": false, "://": false,
	} {
		r, w := httptest.NewRequest("POST", "http://here.example/x", nil), httptest.NewRecorder()
		if from != "" {
			r.Header.Set("Origin", from)
		}
		shown := ""
		if want {
			shown = from
		}
		if got := Admit(w, r, patterns); got != want || w.Header().Get("Access-Control-Allow-Origin") != shown || w.Header().Get("Vary") != "Origin" {
			t.Errorf("%q: %v, %v", from, got, w.Header())
		}
	}
}

func TestPreflight(t *testing.T) {
	t.Parallel()
	r, w := httptest.NewRequest("OPTIONS", "http://here.example/x", nil), httptest.NewRecorder()
	if IsPreflight(r) {
		t.Error("any OPTIONS is one")
	}
	r.Header.Set("Access-Control-Request-Method", "POST")
	r.Header.Set("Access-Control-Request-Headers", "authorization")
	if !IsPreflight(r) {
		t.Error("it is none")
	}
	Preflight(w, r, "GET, POST")
	h := w.Header()
	if w.Code != http.StatusNoContent || h.Get("Access-Control-Allow-Methods") != "GET, POST" || h.Get("Access-Control-Allow-Headers") != "authorization" || h.Get("Access-Control-Allow-Credentials") != "" {
		t.Error(w.Code, h)
	}
}
