// The HTTP API: opencode's paths, their requests and replies.

package share

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/httpkit"
)

// creatorPrefix is the prefix of paths that carry a create-only ref, up to the next slash.
const creatorPrefix = "/t/"

// Mount registers the API with its server, before that runs.
func (s *Service) Mount() {
	for _, path := range []string{"/api/share", "/api/share/", "/api/sessions", "/rpc/share", "/ws/", creatorPrefix} {
		s.cfg.Server.Mount(path, s)
	}
}

// ServeHTTP serves the API at the paths that Mount registers. It removes a ref from the path
// before any other code sees the request.
func (s *Service) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path, creator := r.URL.Path, ""
	if rest, ok := strings.CutPrefix(path, creatorPrefix); ok {
		creator, path, _ = strings.Cut(rest, "/")
		path = "/" + path
		bare := *r
		bare.URL, bare.RequestURI, bare.Pattern = &url.URL{Path: path, RawQuery: r.URL.RawQuery}, "", ""
		r = &bare
	}
	// Throttled callers, and callers waiting for a slot, get their answer late.
	lim := s.liveConfig.Load()
	httpkit.SetDeadlines(w, s.cfg.StallTimeout, lim.BodyTimeout+2*lim.SyncTimeout)
	v := &visitor{Request: r, caller: s.cfg.Server.Caller(r.Context(), r.RemoteAddr), creator: creator}
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	s.route(w, v, strings.Split(strings.Trim(path, "/"), "/"))
}

// route dispatches the request by path.
func (s *Service) route(w http.ResponseWriter, v *visitor, at []string) {
	type verb = func(http.ResponseWriter, *visitor, string)
	var verbs map[string]verb
	id := ""
	if len(at) > 1 {
		id = at[len(at)-1]
	}
	switch n := len(at); {
	case n == 2 && at[0] == "rpc" && at[1] == "share":
		s.serveRPC(w, v)
		return
	case n == 2 && at[0] == "ws":
		verbs = map[string]verb{http.MethodGet: s.serveWS}
	case n == 2 && at[0] == "api" && at[1] == "sessions":
		verbs = map[string]verb{http.MethodGet: s.serveSessions}
	case n == 2 && at[0] == "api" && at[1] == "share":
		verbs = map[string]verb{http.MethodPost: s.serveCreate}
	case n == 3 && at[0] == "api" && at[1] == "share":
		verbs = map[string]verb{http.MethodGet: s.serveShare, http.MethodDelete: s.serveDelete}
	case n == 4 && at[0] == "api" && at[1] == "share":
		id = at[2]
		switch at[3] {
		case "sync":
			verbs = map[string]verb{http.MethodPost: s.serveSync}
		case "data":
			verbs = map[string]verb{http.MethodGet: s.serveData}
		case "metadata":
			verbs = map[string]verb{http.MethodGet: s.serveMetadata}
		}
	}
	do := verbs[v.Method]
	switch {
	case verbs[http.MethodGet] != nil && (v.Method == http.MethodGet || v.Method == http.MethodHead) && v.ContentLength != 0:
		w.Header().Set("Connection", "close") // or net/http waits for the body before it answers
		s.refuse(w, v, fault.BadArgument.With("what is read takes no body"), forReader)
	case do != nil:
		do(w, v, id)
	case v.Method == http.MethodHead && verbs[http.MethodGet] != nil && at[0] == "api":
		verbs[http.MethodGet](w, v, id)
	case verbs == nil:
		s.refuse(w, v, fault.NotFound.With("there is nothing at this path"), forCreator)
	default:
		allowed := make([]string, 0, len(verbs))
		for _, m := range []string{http.MethodDelete, http.MethodGet, http.MethodPost} {
			if verbs[m] != nil {
				allowed = append(allowed, m)
			}
		}
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		s.cfg.Server.Refused(w, fault.UnknownMethod.With(""))
		writeJSON(w, http.StatusMethodNotAllowed, errorBody{Error: "this path takes " + strings.Join(allowed, " and ")})
	}
}

// maxSmallBody bounds bodies that are not a sync's.
const maxSmallBody = 64 << 10

// firstBodyBytes is the initial buffer of a small body: a stranger's, so little is held for it.
const firstBodyBytes = 512

// createReply is a create's reply: the only reply that carries a secret.
type createReply struct {
	ID     string `json:"id"`
	URL    string `json:"url"`
	Secret string `json:"secret"`
}

func (s *Service) serveCreate(w http.ResponseWriter, v *visitor, _ string) {
	var body struct {
		SessionID string `json:"sessionID"`
	}
	err := s.readJSON(w, v, &body)
	if err == nil {
		var got *createReply
		if got, err = s.create(v.Context(), v, body.SessionID); err == nil {
			writeJSON(w, http.StatusOK, got)
			return
		}
	}
	s.refuse(w, v, err, forCreator)
}

// create is Create for a visitor, over any protocol.
func (s *Service) create(ctx context.Context, v *visitor, external string) (*createReply, error) {
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
	made, err := s.Create(ctx, v.caller, by, forwardedFor(v.Request), external)
	if err != nil {
		return nil, err
	}
	return &createReply{ID: made.ID, URL: base + "/share/" + made.ID, Secret: made.Secret}, nil
}

// syncReply is a sync's reply.
type syncReply struct {
	Success   bool `json:"success"`
	SyncCount int  `json:"syncCount"`
}

func (s *Service) serveSync(w http.ResponseWriter, v *visitor, id string) {
	lim := s.liveConfig.Load()
	httpkit.SetDeadlines(w, lim.BodyTimeout, 2*(lim.BodyTimeout+lim.SyncTimeout))
	n, err := s.applySync(w, v, id, lim)
	if err != nil {
		s.refuse(w, v, err, forWriter)
		return
	}
	writeJSON(w, http.StatusOK, syncReply{true, n})
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
	held := s.newMemory(ctx, v.caller)
	defer held.close()
	if err := held.grow(bodyBufBytes); err != nil {
		return 0, err
	}
	var writer *Writer
	var sync *syncRun
	defer func() {
		if writer != nil {
			err = sync.finish(err)
			writer.Close()
		}
	}()
	piece := 0 // bytes charged for the piece being collected
	body := bodyReader{in: bufio.NewReaderSize(http.MaxBytesReader(w, v.Body, int64(lim.BodyBytes)), bodyBufBytes), charge: held,
		onSecret: func(secret string) (err error) {
			if writer, err = s.Writer(ctx, v.caller, id, secret); err != nil {
				return err
			}
			sync = writer.newSync()
			held.chargeToShare(writer.share.ID)
			if v.ContentLength > int64(lim.BodyBytes) {
				return tooLargeFault(lim)
			}
			return nil
		},
		onItem: func(item json.RawMessage) error {
			n++
			if err := held.grow(len(item)); err != nil { // parsing holds a second copy
				return err
			}
			piece += cap(item) + len(item)
			if !sync.add(item) {
				return nil
			}
			err := sync.flush(context.WithoutCancel(ctx))
			held.shrink(piece)
			piece = 0
			httpkit.SetDeadlines(w, lim.BodyTimeout, 2*(lim.BodyTimeout+lim.SyncTimeout))
			return err
		},
		onOversize: func(bytes int64, most int) {
			n++
			sync.leaveOut("", fmt.Sprintf("an item has %d bytes, the limit is %d", bytes, most))
		}}
	if err := body.read(); err != nil {
		return 0, err
	}
	return n, sync.flush(context.WithoutCancel(ctx))
}

// bodyBufBytes is the read buffer of a body, in bytes.
const bodyBufBytes = 32 << 10

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
		s.refuse(w, v, err, forWriter)
		return
	}
	writeJSON(w, http.StatusOK, deleteReply{true})
}

// deleteReply is a DELETE's reply.
type deleteReply struct {
	Success bool `json:"success"`
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
	return s.Delete(ctx, v.caller, id, secret)
}

// readJSON reads the whole body, one JSON value, before anything is changed.
func (s *Service) readJSON(w http.ResponseWriter, v *visitor, to any) error {
	held := s.newMemory(v.Context(), v.caller)
	defer held.close()
	data, err := httpkit.ReadBody(http.MaxBytesReader(w, v.Body, maxSmallBody), firstBodyBytes, held.grow)
	switch {
	case err != nil:
		return orMalformed(err, "")
	case !utf8.Valid(data):
		return fault.Malformed.With("the body is not UTF-8")
	}
	if err := json.Unmarshal(data, to); err != nil {
		return fault.Malformed.Because(err, "the body is not the JSON that this path takes")
	}
	return nil
}

// writeJSON writes a JSON reply: a line.
func writeJSON(w http.ResponseWriter, status int, v any) {
	httpkit.WriteJSON(w, status, append(httpkit.JSON(v), '\n'))
}
