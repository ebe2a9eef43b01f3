// The search of a session: what it has found, as a page, of which the script of the session's own page
// shows the list. It reads what the page's ref shows.

package web

import (
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/page"
	"github.com/mooring-rpc/mooring/internal/server/objects"
	"github.com/mooring-rpc/mooring/internal/session"
)

// refreshSeconds is after how long a browser without the script asks again while an index is made.
const refreshSeconds = "2"

// serveSearch writes what is found by ?q=WORDS, from ?after=PLACE on.
func (q *request) serveSearch() error {
	release, err := q.admitPaint()
	if err != nil {
		return err
	}
	defer release()
	h, desc, err := q.describe()
	if err != nil {
		return err
	}
	v := q.r.URL.Query()
	asked := session.SearchQuery{Text: strings.TrimSpace(v.Get("q")), After: v.Get("after")}
	found := page.Search{Base: q.base, Path: q.path, Info: desc.Info, Query: asked.Text}
	status := http.StatusOK
	if err := q.search(h, asked, &found); err != nil {
		f := q.toFault(err)
		if f.Code == fault.Unsupported {
			f = fault.Unsupported.With("some server here is still of an earlier version, which cannot search: try again later")
		}
		if !q.wantsHTML() {
			return f
		}
		httpkit.SetRetryAfter(q.w, f.Code)
		q.site.server.Refused(q.w, f)
		found.Refused, status = f, f.Code.HTTPStatus()
	}
	q.writeFound(status, found)
	return nil
}

// writeFound writes the page of a search.
func (q *request) writeFound(status int, found page.Search) {
	if found.Indexing && q.isShare() {
		q.w.Header().Set("Refresh", refreshSeconds)
	}
	q.writeHTML(status, func(w io.Writer) error { return page.Found(w, found) })
}

// search reads a page of what is found.
func (q *request) search(h *objects.Capability, asked session.SearchQuery, found *page.Search) error {
	got, err := h.Search(q.r.Context(), asked) // without a render slot: it may have to make the session's index first
	if err != nil {
		return err
	}
	if asked.After != "" {
		found.First = q.searchLink(asked.Text, "")
	} else if got.Indexing {
		found.Indexing = true
		return nil
	}
	if got.Next != "" {
		found.Next = q.searchLink(asked.Text, got.Next)
	}
	found.Found = got.Found
	found.Who, err = q.speakers(h, got.Found)
	return err
}

// searchLink returns the path of a page of a search; after "" is the first.
func (q *request) searchLink(text, after string) string {
	v := url.Values{"q": {text}}
	if after != "" {
		v.Set("after", after)
	}
	return q.path + "?" + v.Encode()
}

// speakers returns by whom the messages are that were found, or their parts.
func (q *request) speakers(h *objects.Capability, found []*session.Found) (map[string]string, error) {
	if err := q.site.acquireRender(q.r.Context()); err != nil {
		return nil, err
	}
	defer q.site.releaseRender()
	who := map[string]string{}
	var keys []string
	for _, f := range found {
		k, err := session.ParseKey(f.Key)
		if _, there := who[k.Message]; err == nil && k.Message != "" && !there {
			who[k.Message] = ""
			keys = append(keys, session.MessageKey(k.Message))
		}
	}
	for len(keys) > 0 {
		got, next, err := h.Values(q.r.Context(), keys, q.site.cfg.PageBytes)
		if err != nil {
			return nil, err
		}
		for _, e := range got.Entries {
			who[strings.TrimPrefix(e.Key, session.MessageKey(""))] = page.Speaker(e.Payload)
		}
		keys = keys[next:]
	}
	return who, nil
}
