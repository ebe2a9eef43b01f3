package page

// The files that pages load: built by make web, embedded in the binary, and served under names
// that change with their content.

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/mooring-rpc/mooring/internal/httpkit"
)

//go:embed dist
var dist embed.FS

// asset is one served file.
type asset struct {
	body []byte
	gzip []byte // the same, compressed
	kind string // its Content-Type
	sum  string
}

// assetNames maps a file of dist to the name it is served under, assets that name to the file.
var assetNames, assets = load()

func load() (map[string]string, map[string]asset) {
	names, files := map[string]string{}, map[string]asset{}
	list, err := dist.ReadDir("dist")
	if err != nil {
		panic("page: " + err.Error()) // embedded: it exists, or nothing was built
	}
	for _, f := range list {
		body, err := dist.ReadFile("dist/" + f.Name())
		if err != nil {
			panic("page: " + err.Error())
		}
		sum := sha256.Sum256(body)
		ext := path.Ext(f.Name())
		hash := hex.EncodeToString(sum[:8])
		name := strings.TrimSuffix(f.Name(), ext) + "-" + hash + ext
		names[f.Name()], files[name] = name, asset{body, compress(body), kindOf(ext), hash}
	}
	return names, files
}

// compress compresses as well as can be: it is done once.
func compress(body []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(body)
	}
	if err == nil {
		err = z.Close()
	}
	if err != nil {
		panic("page: " + err.Error()) // a buffer takes everything, and the level is valid
	}
	return b.Bytes()
}

func kindOf(ext string) string {
	switch ext { // not the system's table, which varies
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// assetPath returns the path of a file of dist, below a server's base.
func assetPath(base, name string) string { return base + "/assets/" + assetNames[name] }

// Assets serves the pages' files, at any path that ends in their names: mount it at /assets/. A
// name's content never changes, so browsers cache it forever.
func Assets() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		a, ok := assets[path.Base(r.URL.Path)]
		switch {
		case !ok:
			http.Error(w, "there is no such asset", http.StatusNotFound)
		case r.Method != http.MethodGet && r.Method != http.MethodHead:
			h.Set("Allow", "GET, HEAD")
			http.Error(w, "assets are only read", http.StatusMethodNotAllowed)
		default:
			h.Set("Content-Type", a.kind)
			h.Set("Vary", "Accept-Encoding")
			h.Set("Cache-Control", "public, max-age=31536000, immutable")
			h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
			h.Set("Cross-Origin-Resource-Policy", "same-origin")
			body, tag := a.body, a.sum
			if httpkit.AcceptsGzip(r.Header) {
				body, tag = a.gzip, a.sum+"-gzip"
				h.Set("Content-Encoding", "gzip")
				h.Set("Content-Length", strconv.Itoa(len(body)))
			}
			h.Set("ETag", strconv.Quote(tag))
			http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(body))
		}
	})
}
