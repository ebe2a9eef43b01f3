package main

// The benchmark's side of a child process.

import (
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/mooring-rpc/mooring/internal/measure"
)

// process is a child.
type process struct{ *measure.Child }

// startProcess starts a child, this program or the one on Node, with these additions to the environment. It is
// killed when ctx ends.
func startProcess(ctx context.Context, onNode, oneCore bool, env ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, program)
	if onNode {
		cmd = exec.CommandContext(ctx, "node", "js/child.mjs")
	}
	cmd.Env = append(append(os.Environ(), envChild+"=1"), env...)
	start := cmd.Start
	if oneCore {
		start = func() error { return onOneCore(cmd.Start) }
	}
	child, err := measure.StartChild(cmd, start)
	return &process{child}, err
}

func (p *process) ask(r request) (reply, error) {
	var answer reply
	err := p.Ask(r, &answer, r.Measure)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, err
}

// pair is a server and a client of one contender.
type pair struct {
	who            contender
	server, client *process
	address        string
}

// startPair starts both processes; nothing is connected yet.
func startPair(ctx context.Context, who contender, oneCore bool, env ...string) (p *pair, err error) {
	p = &pair{who: who}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.stop())
		}
	}()
	if p.server, err = startProcess(ctx, who.nodeServer, oneCore, env...); err != nil {
		p.server = nil
		return p, err
	}
	if p.client, err = startProcess(ctx, who.nodeClient, oneCore, env...); err != nil {
		p.client = nil
		return p, err
	}
	answer, err := p.server.ask(request{Serve: who.name})
	p.address = answer.Address
	return p, err
}

func (p *pair) connect(count int) error {
	_, err := p.client.ask(request{Connect: p.who.name, Address: p.address, Count: count})
	return err
}

// stop ends both, the client first.
func (p *pair) stop() error {
	var errs []error
	for _, side := range []*process{p.client, p.server} {
		if side != nil {
			errs = append(errs, side.Stop())
		}
	}
	return errors.Join(errs...)
}
