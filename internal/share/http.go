// The HTTP API: opencode's paths, their requests and replies.

package share

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
	"github.com/mooring-rpc/mooring/internal/opencode"
	"github.com/mooring-rpc/mooring/internal/opencode/syncbody"
	"github.com/mooring-rpc/mooring/internal/origin"
)

// creatorPrefix is the prefix of paths that carry a create-only ref, up to the next slash.
const creatorPrefix = "/t/"

// Mount registers the API with its server, before that runs.
func (s *Service) Mount() {
	for _, path := range []string{"/api/share", "/api/share/", "/api/sessions", "/rpc/share", "/ws/", creatorPrefix} {
		s.cfg.Server.Mount(path, s)
	}
}

// verb answers a visitor's request for the share that the path names, or "".
type verb = func(w http.ResponseWriter, v *visitor, id string)

// newMux routes each path, also below a create-only ref, to its verbs by method; "" is any method.
func (s *Service) newMux() *http.ServeMux {
	read := func(do verb) map[string]verb { return map[string]verb{http.MethodGet: do, http.MethodHead: do} }
	mux := http.NewServeMux()
	for path, verbs := range map[string]map[string]verb{
		"/api/sessions":            read(s.serveSessions),
		"/api/share":               {http.MethodPost: s.serveCreate},
		"/api/share/{id}":          {http.MethodGet: s.serveShare, http.MethodHead: s.serveShare, http.MethodDelete: s.serveDelete},
		"/api/share/{id}/sync":     {http.MethodPost: s.serveSync},
		"/api/share/{id}/data":     read(s.serveData),
		"/api/share/{id}/metadata": read(s.serveMetadata),
		"/rpc/share":               {"": s.serveRPC},
		"/ws/{id}":                 {http.MethodGet: s.serveWS},
	} {
		for _, prefix := range []string{"", creatorPrefix + "{creator}"} {
			mux.HandleFunc(prefix+path, func(w http.ResponseWriter, r *http.Request) { s.serve(w, r, verbs) })
		}
	}
	mux.HandleFunc("/", s.serveUnknown)
	return mux
}

// ServeHTTP serves the API at the paths that Mount registers, with or without a slash at the end.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	// Throttled callers, and callers waiting for a slot, get their answer late.
	lim := s.liveConfig.Load()
	httpkit.SetDeadlines(w, s.cfg.StallTimeout, lim.BodyTimeout+2*lim.SyncTimeout)
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	httpkit.Route(s.mux, w, r, "/"+strings.Trim(r.URL.Path, "/"), s.serveUnknown)
}

// serveUnknown serves a path that is none of the API's.
func (s *Service) serveUnknown(w http.ResponseWriter, r *http.Request) { s.serve(w, r, nil) }

// serve dispatches a request by its method. It removes a ref from the path before any verb sees
// the request.
func (s *Service) serve(w http.ResponseWriter, r *http.Request, verbs map[string]verb) {
	v := &visitor{Request: r, caller: s.cfg.Server.Caller(r.Context(), r.RemoteAddr), creator: r.PathValue("creator")}
	if v.creator != "" {
		r.URL.Path, r.RequestURI = strings.TrimPrefix(r.URL.Path, creatorPrefix+v.creator), ""
	}
	do, known := verbs[v.Method]
	if !known {
		do = verbs[""]
	}
	if verbs[http.MethodGet] != nil && (v.Method == http.MethodGet || v.Method == http.MethodHead) {
		if refused := httpkit.RefuseBody(w, r); refused != nil {
			s.refuse(w, v, refused, opencode.ForReader)
			return
		}
	}
	switch {
	case do != nil:
		do(w, v, r.PathValue("id"))
	case verbs == nil:
		s.refuse(w, v, fault.NotFound.With("there is nothing at this path"), opencode.ForCreator)
	default:
		allowed := make([]string, 0, len(verbs))
		for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodPost} {
			if verbs[m] != nil {
				allowed = append(allowed, m)
			}
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		s.cfg.Server.Refused(w, fault.UnknownMethod.With(""))
		writeJSON(w, http.StatusMethodNotAllowed, opencode.ErrorReply{Error: "this path takes " + strings.Join(allowed, " and ")})
	}
}

// maxSmallBody bounds bodies that are not a sync's.
const maxSmallBody = 64 << 10

// firstBodyBytes is the initial buffer of a small body: a stranger's, so little is held for it.
const firstBodyBytes = 512

func (s *Service) serveCreate(w http.ResponseWriter, v *visitor, _ string) {
	var body struct {
		SessionID string `json:"sessionID"`
	}
	err := s.readJSON(w, v, &body)
	if err == nil {
		var got *opencode.CreateReply
		if got, err = s.create(v.Context(), v, body.SessionID); err == nil {
			writeJSON(w, http.StatusOK, got)
			return
		}
	}
	s.refuse(w, v, err, opencode.ForCreator)
}

// create is Create for a visitor, over any protocol.
func (s *Service) create(ctx context.Context, v *visitor, external string) (*opencode.CreateReply, error) {
	leave, err := s.slots.acquire(ctx, v.caller.Address())
	if err != nil {
		return nil, err
	}
	defer leave()
	base, err := s.baseURL(v)
	if err != nil {
		return nil, err
	}
	by, err := s.creatorRef(ctx, v)
	if err != nil {
		return nil, err
	}
	made, err := s.createShare(ctx, v.caller, by, origin.ForwardedFor(v.Request), external)
	if err != nil {
		return nil, err
	}
	return &opencode.CreateReply{ID: made.ID, URL: base + "/share/" + made.ID, Secret: made.Secret}, nil
}

func (s *Service) serveSync(w http.ResponseWriter, v *visitor, id string) {
	lim := s.liveConfig.Load()
	httpkit.SetDeadlines(w, lim.BodyTimeout, 2*(lim.BodyTimeout+lim.SyncTimeout))
	n, err := s.applySync(w, v, id, lim)
	if err != nil {
		s.refuse(w, v, err, opencode.ForWriter)
		return
	}
	writeJSON(w, http.StatusOK, opencode.SyncReply{Success: true, SyncCount: n})
}

// applySync reads a body and commits it, piece by piece as it arrives: a body no larger than a
// piece is applied whole or not at all. Once the whole body has arrived it is committed even if
// the client goes away: the client does not send it again.
func (s *Service) applySync(w http.ResponseWriter, v *visitor, id string, lim *Config) (n int, err error) {
	ctx := v.Context()
	leave, err := s.slots.acquire(ctx, v.caller.Address())
	if err != nil {
		return 0, err
	}
	defer leave()
	memory := s.newMemory(ctx, v.caller)
	defer memory.close()
	if err := memory.Grow(syncbody.BufferBytes); err != nil {
		return 0, err
	}
	var writer *writer
	var sync *syncRun
	defer func() {
		if writer != nil {
			err = sync.finish(err)
			writer.close()
		}
	}()
	body := syncbody.Reader{In: bufio.NewReaderSize(http.MaxBytesReader(w, v.Body, int64(lim.BodyBytes)), syncbody.BufferBytes), Memory: memory,
		OnSecret: func(secret string) (err error) {
			if writer, err = s.openWriter(ctx, v.caller, id, secret); err != nil {
				return err
			}
			sync = writer.newSync()
			memory.chargeToShare(writer.share.ID)
			if v.ContentLength > int64(lim.BodyBytes) {
				return tooLargeFault(lim)
			}
			return nil
		},
		Add: func(item json.RawMessage) bool { return sync.sync.Add(item) },
		Flush: func() error {
			defer httpkit.SetDeadlines(w, lim.BodyTimeout, 2*(lim.BodyTimeout+lim.SyncTimeout))
			return sync.flush(context.WithoutCancel(ctx))
		},
		OnOversize: func(bytes int64, limit int) {
			sync.leaveOut("", fmt.Sprintf("an item has %d bytes, the limit is %d", bytes, limit))
		}}
	return body.Read()
}

func tooLargeFault(lim *Config) *fault.Error {
	return fault.TooLarge.With("a body has at most %d bytes", lim.BodyBytes)
}

func (s *Service) serveDelete(w http.ResponseWriter, v *visitor, id string) {
	var body struct {
		Secret string `json:"secret"`
	}
	err := s.readJSON(w, v, &body)
	if err == nil {
		err = s.delete(context.WithoutCancel(v.Context()), v, id, body.Secret)
	}
	if err != nil {
		s.refuse(w, v, err, opencode.ForWriter)
		return
	}
	writeJSON(w, http.StatusOK, opencode.DeleteReply{Success: true})
}

// delete is Delete for a visitor, over any protocol.
func (s *Service) delete(ctx context.Context, v *visitor, id, secret string) error {
	leave, err := s.slots.acquire(ctx, v.caller.Address())
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithTimeout(ctx, s.liveConfig.Load().SyncTimeout)
	defer cancel()
	return s.deleteShare(ctx, v.caller, id, secret)
}

// readJSON reads the whole body, one JSON value, before anything is changed.
func (s *Service) readJSON(w http.ResponseWriter, v *visitor, to any) error {
	memory := s.newMemory(v.Context(), v.caller)
	defer memory.close()
	data, err := httpkit.ReadBody(http.MaxBytesReader(w, v.Body, maxSmallBody), firstBodyBytes, memory.Grow)
	switch {
	case err != nil:
		return syncbody.OrMalformed(err, "")
	case !utf8.Valid(data):
		return fault.Malformed.With("the body is not UTF-8")
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fault.Malformed.Because(err, "the body is not the JSON that this path expects")
	}
	return nil
}

// writeJSON writes a JSON reply: a line.
func writeJSON(w http.ResponseWriter, status int, v any) {
	httpkit.WriteJSON(w, status, append(httpkit.JSON(v), '\n'))
}
