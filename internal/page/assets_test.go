package page_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/mooring-rpc/mooring/internal/page"
)

// assetsOf are the assets that a page refers to.
func assetsOf(t *testing.T) []string {
	t.Helper()
	var b strings.Builder
	if err := page.Start(&b, page.Head{}).End(); err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`/assets/[^"]+`).FindAllString(b.String(), -1)
	if len(found) != 4 {
		t.Fatalf("assets %v", found)
	}
	return found
}

func get(method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	page.Assets().ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestAssets(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}
	total := 0
	for _, path := range assetsOf(t) {
		w := get("GET", path)
		h := w.Header()
		if w.Code != 200 || h.Get("Content-Type") != kinds[filepath.Ext(path)] || h.Get("Cache-Control") != "public, max-age=31536000, immutable" || h.Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: %d %v", path, w.Code, h)
		}
		if w.Body.Len() == 0 {
			t.Errorf("%s is empty: run make web", path)
		}
		total += w.Body.Len()
		if head := get("HEAD", path); head.Code != 200 || head.Body.Len() != 0 || head.Header().Get("Content-Length") != h.Get("Content-Length") {
			t.Errorf("HEAD %s: %d %v", path, head.Code, head.Header())
		}
		if below := get("GET", "/prefix"+path); below.Code != 200 {
			t.Errorf("below a prefix: %d", below.Code)
		}
		if w := get("POST", path); w.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST %s: %d", path, w.Code)
		}
	}
	// With a page around it: what is loaded before there is content.
	if limit := 72 << 10; total > limit {
		t.Errorf("the assets have %d bytes in all, above %d", total, limit)
	}
	for _, path := range []string{"/assets/", "/assets/page.js", "/assets/../assets.go", "/assets/page-0000000000000000.js"} {
		if w := get("GET", path); w.Code != 404 {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// An asset is sent compressed to who accepts that; either way each is a representation of its own, of which a part can
// be asked for, and which is not sent again to who has it.
func TestAssetsCompressed(t *testing.T) {
	t.Parallel()
	for _, path := range assetsOf(t) {
		ask := func(method string, head ...string) *httptest.ResponseRecorder {
			w, r := httptest.NewRecorder(), httptest.NewRequest(method, path, nil)
			for i := 0; i < len(head); i += 2 {
				r.Header.Set(head[i], head[i+1])
			}
			page.Assets().ServeHTTP(w, r)
			return w
		}
		plain, small := ask("GET", "Accept-Encoding", "br, gzip;q=0"), ask("GET", "Accept-Encoding", "br, gzip;q=0.5")
		z, err := gzip.NewReader(small.Body)
		if err != nil {
			t.Fatal(err)
		}
		packed := small.Body.Len()
		if text, err := io.ReadAll(z); err != nil || string(text) != plain.Body.String() {
			t.Errorf("%s: %d bytes of %d, %v", path, len(text), plain.Body.Len(), err)
		}
		if strings.HasSuffix(path, ".js") && plain.Body.Len() > 4000 && 2*packed > plain.Body.Len() {
			t.Errorf("%s: %d bytes are compressed to %d", path, plain.Body.Len(), packed)
		}
		tags := map[string]bool{}
		for accepts, w := range map[string]*httptest.ResponseRecorder{"": plain, "gzip": small} {
			h := w.Header()
			if h.Get("Vary") != "Accept-Encoding" || h.Get("Content-Encoding") != accepts || h.Get("ETag") == "" {
				t.Errorf("%s, accepting %q: %v", path, accepts, h)
			}
			tags[h.Get("ETag")] = true
			if head := ask("HEAD", "Accept-Encoding", accepts); head.Body.Len() != 0 || head.Header().Get("ETag") != h.Get("ETag") || head.Header().Get("Content-Length") != h.Get("Content-Length") || h.Get("Content-Length") == "" {
				t.Errorf("HEAD %s: %v", path, head.Header())
			}
			if again := ask("GET", "Accept-Encoding", accepts, "If-None-Match", h.Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() != 0 {
				t.Errorf("%s again: %d, %d bytes", path, again.Code, again.Body.Len())
			}
			if part := ask("GET", "Accept-Encoding", accepts, "Range", "bytes=2-9"); part.Code != http.StatusPartialContent || part.Body.Len() != 8 || part.Header().Get("ETag") != h.Get("ETag") || part.Header().Get("Content-Length") != "8" {
				t.Errorf("a part of %s: %d %v, %d bytes", path, part.Code, part.Header(), part.Body.Len())
			}
		}
		if len(tags) != 2 {
			t.Errorf("%s: tags %v", path, tags)
		}
	}
}

// Nothing comes from elsewhere, and nothing needs what the content security policy
// forbids.
func TestAssetsLoadNothing(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"page.css", "page.js", "console.css", "console.js", "theme.js", "mark.svg"} {
		text, err := os.ReadFile(filepath.Join("dist", name))
		if err != nil {
			t.Fatal(err)
		}
		for _, bad := range []string{"https://", "@import", "url(", "eval(", "new Function", "document.write", "import("} {
			if strings.Contains(string(text), bad) {
				t.Errorf("%s has %s", name, bad)
			}
		}
		if s := strings.ReplaceAll(string(text), "http://www.w3.org/", ""); strings.Contains(s, "http://") {
			t.Errorf("%s has an address", name)
		}
	}
}
