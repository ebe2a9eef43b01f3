package main

// Clients of an older commit, as they are: built from that commit's tree, at a server of now, beside a server of theirs.

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/mooring-rpc/mooring/internal/measure"
)

// oldCommit is the one of the Makefile's OLD.
const oldCommit = "3361347"

// oldClients is how fast an older commit's clients get events: those clients have no features that came later, and the
// server has to speak with them as they do.
type oldClients struct {
	commit            string
	followers, events int
}

func (l oldClients) label() string {
	return fmt.Sprintf("%d followers of commit %s, full speed", l.followers, l.commit)
}

func (l oldClients) small() special {
	l.followers, l.events = l.followers/20, l.events/20
	return l
}

func (l oldClients) measure(ctx context.Context, b *bench, dir string) (_ []figure, err error) {
	b.progress.Printf("%s: building", l.label())
	program, server := filepath.Join(dir, "followers"), filepath.Join(dir, "mooring")
	for _, args := range [][]string{{program, "internal/benchfanout/note.go", "internal/benchfanout/old_followers.go"}, {server}} {
		if missing, err := buildOld(ctx, l.commit, args...); err != nil {
			return nil, err
		} else if missing != "" {
			b.leftOut = append(b.leftOut, l.label()+": "+missing)
			return nil, nil
		}
	}
	rig, err := b.newRig(ctx, dir, benchCase{wire: wireCapnp, followers: l.followers, sessions: 1, events: l.events, batch: 1, replicas: 1})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rig.close()) }()
	rig.w.kind = oldKind
	if rig.plain.bytes, err = rig.eventBytes(ctx); err != nil {
		return nil, err
	}
	if _, err := rig.plain.follow(ctx, &following{Wire: wireBare, Addresses: rig.plain.addresses, Topics: 1, Followers: l.followers}); err != nil {
		return nil, err
	}
	theirs, err := measure.StartServe(ctx, server, filepath.Join(dir, "theirs"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, theirs.Stop()) }()
	w, err := newWriter(ctx, filepath.Join(dir, "their writer"), theirs.Owner, 1)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.client.Close()) }()
	w.kind = oldKind
	old := &side{addresses: []string{theirs.Address}}
	defer func() { err = errors.Join(err, old.stop()) }()
	for name, s := range map[string]struct {
		*side
		*writer
	}{"ours": {rig.m, rig.w}, "theirs": {old, w}} {
		if s.followers, err = startProgram(ctx, program); err != nil {
			return nil, err
		}
		if _, err := s.followers.ask(request{Follow: &following{Addresses: s.addresses, Refs: s.refs, Last: s.last, Followers: l.followers, Dir: filepath.Join(dir, "followers of "+name)}}); err != nil {
			return nil, err
		}
	}
	rate := func(s *side, publish func() error) (float64, error) {
		if err := s.expect(l.events); err != nil {
			return 0, err
		}
		took, err := s.await(publish)
		return float64(l.followers*l.events) / took.Seconds(), err
	}
	var now, before, bare []float64
	for round := range b.opts.rounds {
		b.progress.Printf("%s, round %d of %d", l.label(), round+1, b.opts.rounds)
		if _, err := rig.m.servers[0].ask(request{Commits: true}); err != nil { // those of before
			return nil, err
		}
		x, err := rate(rig.m, func() error { return rig.w.publish(ctx, rig.c) })
		if err != nil {
			return nil, err
		}
		y, err := rate(old, func() error { return w.publish(ctx, rig.c) })
		if err != nil {
			return nil, fmt.Errorf("at a server of theirs: %w", err)
		}
		committed, err := rig.m.servers[0].ask(request{Commits: true})
		if err != nil {
			return nil, err
		}
		z, err := rate(rig.plain, func() error {
			_, err := rig.plain.servers[0].ask(request{Publish: &publication{Times: sinceFirst(committed.Times), Bytes: rig.plain.bytes}})
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("bare: %w", err)
		}
		now, before, bare = append(now, x), append(before, y), append(bare, z)
		b.progress.Printf("%s: %.0f/s, at a server of theirs %.0f/s, bare %.0f/s", l.label(), x, y, z)
	}
	return []figure{
		compared("deliveries/s", "the same at that commit's server", now, before, 0, "ratio ≥ 1"),
		compared("deliveries/s", "a bare server", now, bare, 0, ""),
	}, nil
}

// oldKind is a kind of key that old clients and servers know.
const oldKind = "message"

// noSuchCommit is .ci/old's exit status when the clone has not the commit.
const noSuchCommit = 3

// buildOld has .ci/old build a program of another commit. missing is why that cannot be: the clone has not its history.
func buildOld(ctx context.Context, commit string, args ...string) (missing string, err error) {
	mod, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	cmd := exec.CommandContext(ctx, ".ci/old", append([]string{commit}, args...)...)
	cmd.Dir = filepath.Dir(strings.TrimSpace(string(mod)))
	said, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == noSuchCommit:
		return strings.TrimSpace(string(said)), nil
	case err != nil:
		return "", fmt.Errorf(".ci/old %s: %w\n%s", commit, err, said)
	}
	return "", nil
}

// startProgram starts followers of another commit.
func startProgram(ctx context.Context, program string) (process, error) {
	cmd := exec.CommandContext(ctx, program)
	child, err := measure.StartChild(cmd, cmd.Start)
	return process{child}, err
}
