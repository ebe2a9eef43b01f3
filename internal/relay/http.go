package relay

// The API, as opencode calls it: creates, syncs and DELETE.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
	"github.com/mooring-rpc/mooring/internal/origin"
)

const (
	bodyTimeout  = 2 * time.Minute // for a body to arrive
	slotTimeout  = 30 * time.Second
	turnTimeout  = bodyTimeout + slotTimeout // for the syncs of a share that began earlier
	replyTimeout = 2 * turnTimeout
	maxSmallBody = 64 << 10 // of a body that is no sync's
)

// newMux routes opencode's paths.
func (r *Relay) newMux() *http.ServeMux {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/share", r.serveCreate)
	mux.HandleFunc("POST /api/share/{id}/sync", r.serveSync)
	mux.HandleFunc("DELETE /api/share/{id}", r.serveDelete)
	mux.HandleFunc("GET /share/{id}", r.servePage)
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		refuse(w, opencode.ForCreator, fault.NotFound.With("this is a relay: it takes what opencode shares; what it has is read at the server, by the link that sharing gives"))
	})
	return mux
}

// ServeHTTP serves programs on this machine, and no page of a browser that is led here.
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	httpkit.SetDeadlines(w, bodyTimeout, replyTimeout)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if !origin.IsLocal(req) {
		refuse(w, opencode.ForCreator, fault.MissingRight.With("a relay serves programs on its own machine, at localhost"))
		return
	}
	r.mux.ServeHTTP(w, req)
}

func (r *Relay) serveCreate(w http.ResponseWriter, req *http.Request) {
	var body struct {
		SessionID string `json:"sessionID"`
	}
	err := readSmall(w, req, &body)
	if err == nil {
		var made *opencode.CreateReply
		if made, err = r.create(context.WithoutCancel(req.Context()), body.SessionID); err == nil {
			reply(w, http.StatusOK, made)
			return
		}
	}
	r.fail(w, opencode.ForCreator, "create a share", err)
}

// servePage leads to the real server's page.
func (r *Relay) servePage(w http.ResponseWriter, req *http.Request) {
	s, err := r.find(req.PathValue("id"))
	if err != nil {
		refuse(w, opencode.ForWriter, err)
		return
	}
	http.Redirect(w, req, s.rec.URL, http.StatusFound)
}

func (r *Relay) serveDelete(w http.ResponseWriter, req *http.Request) {
	var body struct {
		Secret string `json:"secret"`
	}
	err := readSmall(w, req, &body)
	var s *share
	if err == nil {
		s, err = r.open(req.PathValue("id"), body.Secret)
	}
	if err == nil {
		turn := r.queue.Join(s.turn())
		defer turn.Leave()
		if err = turn.Wait(req.Context(), turnTimeout); err == nil {
			err = s.end(context.WithoutCancel(req.Context()))
		}
	}
	if err != nil {
		r.fail(w, opencode.ForWriter, "end a share", err)
		return
	}
	reply(w, http.StatusOK, opencode.DeleteReply{Success: true})
}

// open returns the share of an id and one of its secrets.
func (r *Relay) open(id, secret string) (*share, error) {
	s, err := r.find(id)
	if err == nil {
		err = s.checkSecret(secret)
	}
	return s, err
}

func (r *Relay) serveSync(w http.ResponseWriter, req *http.Request) {
	n, err := r.sync(w, req)
	if err != nil {
		r.fail(w, opencode.ForWriter, "commit a sync", err)
		return
	}
	reply(w, http.StatusOK, opencode.SyncReply{Success: true, SyncCount: n})
}

// readSmall reads a body whole, one JSON value.
func readSmall(w http.ResponseWriter, req *http.Request, to any) error {
	text, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxSmallBody))
	if err != nil {
		return syncbody.OrMalformed(err, "")
	}
	if err := json.Unmarshal(text, to); err != nil {
		return fault.Malformed.Because(err, "the body is not the JSON that this path expects")
	}
	return nil
}

func reply(w http.ResponseWriter, status int, v any) {
	httpkit.WriteJSON(w, status, append(httpkit.JSON(v), '\n'))
}

// fail logs an error that nobody else would see, since opencode does not show it, and refuses the request with it.
func (r *Relay) fail(w http.ResponseWriter, what opencode.Audience, doing string, err error) {
	if code := fault.CodeOf(err); what == opencode.ForCreator || code != fault.NotFound && code != fault.Revoked {
		r.cfg.Log.Warn("opencode was refused", "doing", doing, "error", err)
	}
	refuse(w, what, err)
}

// refuse answers with an error.
func refuse(w http.ResponseWriter, what opencode.Audience, err error) {
	f := fault.Internal.Because(err, "%v", err)
	if e := (*fault.Error)(nil); errors.As(err, &e) {
		f = e
	}
	status, body := opencode.Refusal(f, what)
	httpkit.SetRetryAfter(w, f.Code)
	reply(w, status, body)
}
