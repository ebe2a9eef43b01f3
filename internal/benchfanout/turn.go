package main

// What the AI SDK's stream of a running turn costs the server, beside the API's stream of events of the same session.

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/mooring-rpc/mooring/client"
	"github.com/mooring-rpc/mooring/internal/session"
)

// turnStream is a turn whose text grows in deltas, at a steady rate and as fast as it goes. By turns it is followed as a chat
// of the AI SDK and as server-sent events.
type turnStream struct {
	followers int
	rate      float64 // deliveries a second
	paced     int     // deltas of a round at that rate,
	fast      int     // and as fast as it goes
}

func (l turnStream) label() string {
	return fmt.Sprintf("ai-sdk, %d followers of a running turn", l.followers)
}

func (l turnStream) small() special {
	return turnStream{followers: l.followers / 20, rate: l.rate / 20, paced: l.paced / 10, fast: l.fast / 10}
}

func (l turnStream) measure(ctx context.Context, b *bench, dir string) (_ []figure, err error) {
	rig, err := b.newRig(ctx, dir, benchCase{wire: wireSSE, followers: l.followers, sessions: 1, batch: 1, replicas: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	turn, err := beginTurn(ctx, rig.w)
	if err != nil {
		return nil, fmt.Errorf("beginning a turn: %w", err)
	}
	var figures []figure
	for _, how := range []struct {
		name   string
		deltas int
		pace   time.Duration
	}{
		{fmt.Sprintf("%.0f/s", l.rate), l.paced, time.Duration(float64(time.Second) * float64(l.followers) / l.rate)},
		{"full speed", l.fast, 0},
	} {
		rig.c.events = how.deltas
		cpu := map[string][]float64{}
		for round := range b.opts.rounds {
			b.progress.Printf("%s, %s, round %d of %d", l.label(), how.name, round+1, b.opts.rounds)
			wires := []string{wireAISDK, wireSSE}
			for i := range wires {
				wire := wires[(i+round)%2]
				x, err := turn.round(ctx, rig, wire, how.deltas, how.pace)
				if err != nil {
					return nil, fmt.Errorf("%s: %w", wire, err)
				}
				cpu[wire] = append(cpu[wire], x.server.Seconds()*1e6)
			}
			b.progress.Printf("%s, %s: %.2f µs of the server's CPU, of events %.2f", l.label(), how.name, cpu[wireAISDK][round], cpu[wireSSE][round])
		}
		figures = append(figures, compared("the server's CPU of a delivery, "+how.name+", µs", "events to as many", cpu[wireAISDK], cpu[wireSSE], 2, "ratio ≤ 1.3"))
	}
	return figures, nil
}

// deltaBytes is the size of a delta's text.
const deltaBytes = 40

// turn is a turn that answers a prompt, in a writer's only session.
type turn struct {
	w      *writer
	part   string // key of its text
	length int    // of that
}

// beginTurn asks a prompt, and begins to answer it with a text of one delta.
func beginTurn(ctx context.Context, w *writer) (*turn, error) {
	b := w.sessions[0].Batch()
	prompt, _ := b.Ask(session.KindPrompt, map[string]any{"text": "Go on."}, client.AskOptions{})
	b.ClaimRequest(prompt, time.Hour, "")
	message := "turn_" + prompt
	b.Begin(message, map[string]any{"id": message, "role": "assistant"})
	t := &turn{w: w, part: session.PartKey(message, "text"), length: deltaBytes}
	b.Put(t.part, map[string]any{"id": "text", "messageID": message, "type": "text", "text": strings.Repeat("x", deltaBytes)})
	return t, w.commit(ctx, 0, b)
}

// round is one of followers that come for it and go afterwards.
func (t *turn) round(ctx context.Context, r *rig, wire string, deltas int, pace time.Duration) (_ result, err error) {
	s, last := &side{servers: r.m.servers, addresses: r.m.addresses}, t.w.last
	if wire == wireAISDK {
		last = []uint64{uint64(t.length / deltaBytes)}
	}
	defer func() {
		if s.followers.Child != nil {
			err = errors.Join(err, s.followers.Stop())
		}
	}()
	if _, err := s.follow(ctx, &following{Wire: wire, Addresses: s.addresses, Refs: t.w.refs, Last: last, FromEnd: true, Followers: r.c.followers}); err != nil {
		return result{}, err
	}
	x, _, err := r.roundOf(s, "", func() error { return t.stream(ctx, deltas, pace) })
	return x, err
}

// stream has the text grow by so many deltas, one after the other, since each names the length before it.
func (t *turn) stream(ctx context.Context, deltas int, pace time.Duration) error {
	var wg sync.WaitGroup
	slots, errs := make(chan struct{}, inFlight), make([]error, deltas)
	start := time.Now()
	for i := range deltas {
		time.Sleep(time.Until(start.Add(time.Duration(i) * pace)))
		text := strconv.Itoa(i)
		b := t.w.sessions[0].Batch()
		b.AppendText(t.part, t.length, text+strings.Repeat("x", deltaBytes-len(text)))
		t.length += deltaBytes
		slots <- struct{}{}
		ticket, err := b.Commit(ctx)
		if err != nil {
			return errors.Join(err, errors.Join(errs...))
		}
		wg.Go(func() {
			errs[i] = t.w.applied(ctx, 0, ticket)
			<-slots
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}
