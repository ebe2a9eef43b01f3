package page

// Files that a message carries: shown only if they are small images within the
// page itself. Nothing is ever loaded from elsewhere.

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// file writes a file part, or an attachment of a tool's.
func file(o *out, p fields) {
	name := p.at("filename").label()
	if name == "" {
		name = p.at("source", "path").label()
	}
	mime := oneLine(p.at("mime").text(), 80)
	address := p.at("url").text()
	o.lit(`<figure class="file">`)
	shown, tooLarge := image(address)
	if shown != "" {
		o.lit(`<img loading="lazy" decoding="async"`)
		o.attr("src", shown)
		if name != "" {
			o.attr("alt", name)
		} else {
			o.lit(` alt="An image without a name"`)
		}
		o.lit(`>`)
	}
	o.lit(`<figcaption>`)
	switch link := outside(address); {
	case link != "":
		o.lit(`<a rel="nofollow noopener noreferrer ugc" target="_blank"`)
		o.attr("href", link)
		o.lit(` dir="auto">`)
		if name == "" {
			name = oneLine(link, labelBytes)
		}
		o.text(name)
		o.lit(`</a>`)
	default:
		if name == "" {
			name = "File"
		}
		o.lit(`<span class="name" dir="auto">`)
		o.text(name)
		o.lit(`</span>`)
	}
	o.element("span", "tag", mime)
	if tooLarge {
		o.lit(`<span class="clip">too large to show here</span>`)
	}
	o.lit(`</figcaption></figure>`)
}

// image is the address again if it is an image that is shown within the page: of a
// kind that browsers only draw, in base64, and of bounded size.
func image(address string) (src string, tooLarge bool) {
	for _, kind := range []string{"image/png", "image/jpeg", "image/gif", "image/webp"} {
		data, ok := strings.CutPrefix(address, "data:"+kind+";base64,")
		if !ok {
			continue
		}
		if len(data) > imageBytes {
			return "", true
		}
		if raw, err := base64.StdEncoding.DecodeString(data); err == nil && len(raw) > 0 {
			return "data:" + kind + ";base64," + data, false
		}
	}
	return "", false
}

// outside is an address again if it may be a link: http or https, of a host.
func outside(address string) string {
	if len(address) > 2048 {
		return ""
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.User != nil {
		return ""
	}
	return u.String()
}
