package page

// Files of a message: shown only if they are small images embedded in the payload. Nothing is
// ever loaded from elsewhere.

import (
	"encoding/base64"
	"net/url"
	"strings"
)

// file writes a file part, or a tool's attachment.
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

// image returns address if it is an image shown in the page: of a type that browsers only render,
// in base64, and of bounded size.
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

// outside returns address if it may be a link: http or https, with a host.
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
