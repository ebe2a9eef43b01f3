package attach

// opencode's stream of events: read by a goroutine, which connects again whenever it breaks off.

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/internal/opencode/opencodeapi"
)

const (
	silence  = 90 * time.Second // after which a stream is taken for broken; opencode sends a heartbeat every 10 s
	maxEvent = 64 << 20         // of one event, in bytes
	maxAhead = 32 << 20         // of the events that are not taken yet
)

// event is one of opencode's, or what became of the stream.
type event struct {
	Type       string          `json:"type"`
	Properties json.RawMessage `json:"properties"`

	err error // of a stream that ended
}

// The types of what became of the stream.
const (
	streamOpen  = "stream.open"
	streamEnded = "stream.ended"
)

// stream hands over events in their order. Who does not take them in time loses all of a connection, and learns so: memory is bounded, and
// opencode does not wait.
type stream struct {
	api   *opencodeapi.API
	ready chan struct{} // has an element if there are events

	mu    sync.Mutex // guards the rest
	queue []event
	bytes int
}

func newStream(api *opencodeapi.API) *stream { return &stream{api: api, ready: make(chan struct{}, 1)} }

// errBehind ends a connection whose events are not taken.
var errBehind = errors.New("its events came faster than they could be recorded")

// push adds an event, or refuses it.
func (s *stream) push(e event) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(e.Properties); s.bytes+n > maxAhead && e.err == nil {
		return errBehind
	}
	if e.Type == streamOpen { // what is left of the connection before is read from opencode anyway
		s.queue, s.bytes = nil, 0
	}
	s.queue = append(s.queue, e)
	s.bytes += len(e.Properties)
	select {
	case s.ready <- struct{}{}:
	default:
	}
	return nil
}

// take returns the events that are there.
func (s *stream) take() []event {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := s.queue
	s.queue, s.bytes = nil, 0
	return list
}

// run reads until ctx ends.
func (s *stream) run(ctx context.Context) {
	wait := backoff.NewExponentialBackOff(backoff.WithInitialInterval(100*time.Millisecond), backoff.WithMaxInterval(10*time.Second), backoff.WithMaxElapsedTime(0))
	for ctx.Err() == nil {
		err := s.connect(ctx, wait.Reset)
		if ctx.Err() != nil {
			return
		}
		_ = s.push(event{Type: streamEnded, err: err})
		timer := time.NewTimer(wait.NextBackOff())
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
}

// connect reads one connection to its end.
func (s *stream) connect(ctx context.Context, opened func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := time.AfterFunc(silence, func() { cancel(fmt.Errorf("%w: it has sent nothing for %s", opencodeapi.ErrAway, silence)) })
	defer silent.Stop()
	res, err := s.api.Open(ctx, "GET", "/event", nil, nil)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	in := bufio.NewScanner(res.Body)
	in.Buffer(make([]byte, 64<<10), maxEvent)
	first := true
	for in.Scan() {
		silent.Reset(silence)
		data, found := bytes.CutPrefix(in.Bytes(), []byte("data:"))
		if !found {
			continue
		}
		var e event
		if err := json.Unmarshal(data, &e); err != nil || e.Type == "" {
			return fault.Incompatible.With("what opencode sends as an event cannot be read")
		}
		if first {
			first = false
			opened()
			if err := s.push(event{Type: streamOpen}); err != nil {
				return err
			}
		}
		e.err = nil
		if err := s.push(e); err != nil {
			return err
		}
	}
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	if err := in.Err(); err != nil {
		return fmt.Errorf("%w: %w", opencodeapi.ErrAway, err)
	}
	return fmt.Errorf("%w: it has ended", opencodeapi.ErrAway)
}
