package main

// What a task that is sent by A2A costs: a SendMessage that does not wait, beside the batch of the same op over the same HTTP.

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/mooring-rpc/mooring/capability"
)

// tasksRow is what a task costs on one database.
type tasksRow struct {
	db          string
	batch, task quantiles
}

// taskAim is how many batches a task may take.
const taskAim = 1.5

// tasksOfSession is how many of each are asked in a session: it has at most 256 that are open.
const tasksOfSession = 100

func (b *bench) tasks(ctx context.Context, db string, r *report) (err error) {
	rig, err := b.newRig(ctx, db, "path")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	row := tasksRow{db: db}
	var batches, tasks []time.Duration
	var s *httpSession
	for i := range b.opts.rounds*b.opts.appends + warmUp {
		if i%tasksOfSession == 0 {
			if s, err = newHTTPSession(ctx, rig.owner); err != nil {
				return err
			}
			b.progress.Printf("%s, tasks: %d of %d", db, i, b.opts.rounds*b.opts.appends)
		}
		text := "the time, please"
		batch, err := timed(func() error {
			return s.post(ctx, "/api/v1/sessions/"+s.id+"/batches", map[string]any{"outbox": "bench", "secret": s.secret, "incarnation": 1, "batch_id": ulid.Make().String(), "ops": []any{
				map[string]any{"op_id": ulid.Make().String(), "seq": i%tasksOfSession + 1, "method": "ask", "args": map[string]any{"request": strconv.Itoa(i), "kind": "prompt", "payload": map[string]string{"text": text}}}}}, nil)
		})
		if err != nil {
			return err
		}
		task, err := timed(func() error {
			return s.post(ctx, "/a2a/v1/message:send", map[string]any{"configuration": map[string]bool{"returnImmediately": true},
				"message": map[string]any{"messageId": ulid.Make().String(), "role": "ROLE_USER", "parts": []any{map[string]string{"text": text}}}}, nil)
		})
		if err != nil {
			return err
		}
		if i >= warmUp {
			batches, tasks = append(batches, batch), append(tasks, task)
		}
	}
	row.batch, row.task = quantilesOf(batches), quantilesOf(tasks)
	r.tasks = append(r.tasks, row)
	return nil
}

// httpSession is a session that is written to over HTTP.
type httpSession struct {
	base, ref  string
	id, secret string
}

// newHTTPSession makes a session.
func newHTTPSession(ctx context.Context, owner capability.Ref) (*httpSession, error) {
	secret := make([]byte, 32)
	_, _ = rand.Read(secret) // never fails
	s := &httpSession{base: owner.WebAddress(), ref: owner.Text(), secret: base64.RawURLEncoding.EncodeToString(secret)}
	var made struct{ Session, Text string }
	err := s.post(ctx, "/api/v1/spaces/"+owner.Target()+"/sessions", struct{}{}, &made)
	s.id, s.ref = made.Session, made.Text
	return s, err
}

// post posts JSON, and decodes the answer unless to is nil.
func (s *httpSession) post(ctx context.Context, path string, body, to any) error {
	text, err := json.Marshal(body)
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+path, bytes.NewReader(text))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+s.ref)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	answer, err := io.ReadAll(res.Body)
	switch err = errors.Join(err, res.Body.Close()); {
	case err != nil:
		return err
	case res.StatusCode >= 300:
		return fmt.Errorf("a POST of %s is answered with status %d: %s", path, res.StatusCode, answer)
	case to == nil:
		return nil
	}
	return json.Unmarshal(answer, to)
}
