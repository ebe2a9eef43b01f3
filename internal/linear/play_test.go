//go:build linear

package linear

// One history: a fresh session, the clients on it, and all that they saw.

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"

	"github.com/mooring-rpc/mooring/capability"
	"github.com/mooring-rpc/mooring/capnp/wire"
	"github.com/mooring-rpc/mooring/fault"
	"github.com/mooring-rpc/mooring/ledger"
)

// scene is what the clients of a history share: the session, its refs (all of
// them, the ones not minted yet too), the clock.
type scene struct {
	refs  [maxRefs]capability.Ref
	began time.Time

	mu      sync.Mutex
	rand    *rand.Rand
	retries map[string]int // answers that said to come again, by their code
}

// now is the history's clock: monotonic, and one for all clients.
func (s *scene) now() int64 { return int64(time.Since(s.began)) }

func (s *scene) random(n int64) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rand.Int64N(n)
}

func (s *scene) retried(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.retries[fault.CodeOf(err).String()]++
}

// line is an event in the model's words.
func (s *scene) line(e wire.Event) (string, error) {
	method, err1 := e.Method()
	key, err2 := e.Key()
	payload, err3 := e.Payload()
	by, err4 := e.Ref()
	if err := errors.Join(err1, err2, err3, err4); err != nil {
		return "", err
	}
	what := ""
	switch method {
	case "put":
		what = fmt.Sprintf("%s=%d", strings.TrimPrefix(key, "message/"), gjson.Get(payload, "v").Int())
	case "revert", "unrevert", "settle":
		what = strings.TrimPrefix(gjson.Get(payload, "to").Str, "message/")
	case "share", "revoke":
		i, err := s.place(strings.TrimPrefix(key, "ref/"))
		if err != nil {
			return "", err
		}
		what = fmt.Sprintf("r%d", i)
	case "create":
		return logLine(method, what, ownerRef), nil // made under the space's ref
	}
	i, err := s.place(by)
	return logLine(method, what, i), err
}

func (s *scene) place(id string) (int, error) {
	for i, r := range s.refs {
		if r.ID == id {
			return i, nil
		}
	}
	return 0, fmt.Errorf("an event speaks of a ref %q that nobody made", id)
}

// play makes a session and has clients work off the plan on it.
func play(ctx context.Context, space capability.Ref, clients []*client, pl plan) (history, map[string]int, error) {
	s := &scene{rand: rand.New(rand.NewPCG(pl.seed, 2)), retries: map[string]int{}}
	target := capability.SessionPrefix + ulid.Make().String()
	for i := range s.refs {
		s.refs[i] = space.New(target)
	}
	parts := make([]*part, len(pl.steps))
	for i := range parts {
		parts[i] = newPart(clients[i], s)
		defer parts[i].release()
	}
	if err := parts[0].create(ctx, space); err != nil {
		return nil, nil, fmt.Errorf("create a session: %w", err)
	}
	s.began = time.Now()
	if err := parts[0].do(ctx, step{call: pl.first}); err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	meeting := newMeeting(len(parts))
	var working sync.WaitGroup
	for i, p := range parts {
		working.Go(func() {
			for _, st := range pl.steps[i] {
				if st.meet {
					meeting.wait(ctx)
				}
				pause(ctx, st.wait)
				if err := p.do(ctx, st); err != nil {
					cancel(fmt.Errorf("client %d, %s at server %d: %w", p.number, st.call, st.server, err))
					return
				}
			}
		})
	}
	working.Wait()
	var h history
	for _, p := range parts {
		h = append(h, p.saw...)
	}
	return h, s.retries, context.Cause(ctx)
}

// create makes the session, over an outbox that nothing else is sent by; once,
// however often the batch is sent. What it leaves is the model's first state.
func (p *part) create(ctx context.Context, space capability.Ref) error {
	owner := p.scene.refs[ownerRef]
	hash := owner.Secret.Hash()
	in := ledger.Intent{OpID: ulid.Make().String(), Seq: 1, Method: "create", Args: []ledger.Arg{
		argument("ref", owner.ID), argument("hash", base64.RawURLEncoding.EncodeToString(hash[:]))}}
	b := &ledger.Batch{BatchID: ulid.Make().String(), Ops: []ledger.Intent{in}}
	outbox, secret := ulid.Make().String(), capability.NewSecret()
	return p.again(ctx, func() error {
		peer, err := p.peer(ctx, 0)
		if err != nil {
			return err
		}
		live, err := restoreOn(ctx, peer, space)
		if err != nil {
			return err
		}
		defer live.Release()
		session, err := createOn(ctx, live, owner.Target(), owner.ID)
		if err != nil {
			return err
		}
		defer session.Release()
		stream, err := openStreamOn(ctx, session, outbox, secret)
		if err != nil {
			return err
		}
		defer stream.Release()
		return applyOn(ctx, stream, b, func(ack wire.Ack) error {
			list, err := ack.Outcomes()
			if err == nil && (list.Len() != 1 || ledger.Status(list.At(0).Status()) != ledger.Applied) {
				err = errors.New("create did not apply")
			}
			return err
		})
	})
}

// meeting is where clients wait for one another, again and again.
type meeting struct {
	mu      sync.Mutex
	of      int
	missing int
	all     chan struct{} // closed when none is missing
}

func newMeeting(of int) *meeting { return &meeting{of: of, missing: of, all: make(chan struct{})} }

func (m *meeting) wait(ctx context.Context) {
	m.mu.Lock()
	all := m.all
	if m.missing--; m.missing == 0 {
		close(all)
		m.missing, m.all = m.of, make(chan struct{})
	}
	m.mu.Unlock()
	select {
	case <-all:
	case <-ctx.Done():
	}
}
