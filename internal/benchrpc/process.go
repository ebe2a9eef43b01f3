package main

// The benchmark's side of a child process.

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// process is a child.
type process struct {
	cmd   *exec.Cmd
	input io.Closer
	in    *json.Encoder
	out   *json.Decoder
	log   strings.Builder
}

// startProcess starts a child, this program or the one on Node, with these additions to the environment. It is
// killed when ctx ends.
func startProcess(ctx context.Context, onNode, oneCore bool, env ...string) (*process, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &process{cmd: exec.CommandContext(ctx, program)}
	if onNode {
		p.cmd = exec.CommandContext(ctx, "node", "js/child.mjs")
	}
	p.cmd.Env = append(append(os.Environ(), envChild+"=1"), env...)
	p.cmd.Stderr = &p.log
	p.cmd.WaitDelay = time.Second
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.input, p.in, p.out = in, json.NewEncoder(in), json.NewDecoder(out)
	if oneCore {
		err = onOneCore(p.cmd.Start)
	} else {
		err = p.cmd.Start()
	}
	return p, err
}

// patience is how much longer than it should a request may take.
const patience = time.Minute

func (p *process) ask(r request) (reply, error) {
	stuck := time.AfterFunc(r.Measure+patience, func() { _ = p.cmd.Process.Kill() })
	defer stuck.Stop()
	var answer reply
	err := p.in.Encode(r)
	if err == nil {
		err = p.out.Decode(&answer)
	}
	switch {
	case err != nil:
		return answer, fmt.Errorf("a child has gone or is stuck: %w", err)
	case answer.Error != "":
		return answer, errors.New(answer.Error)
	}
	return answer, nil
}

// stop ends the child.
func (p *process) stop() error {
	err := p.input.Close()
	if err = errors.Join(err, p.cmd.Wait()); err != nil {
		return fmt.Errorf("child: %w\n%s", err, p.log.String())
	}
	return nil
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
			errs = append(errs, side.stop())
		}
	}
	return errors.Join(errs...)
}
