package main

// A child process: a server, or followers, which does what it is asked for over its standard input and answers over
// its standard output, in lines of JSON. It ends when its input does, so it never outlives the benchmark.

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/mooring-rpc/mooring/internal/gctune"
	"github.com/mooring-rpc/mooring/internal/measure"
)

// envChild makes this program a child.
const envChild = "MOORING_BENCHFANOUT_CHILD"

// request is one thing to do: the fields that are set, in this order.
type request struct {
	Serve    *serving     `json:",omitempty"` // be a server
	Commits  bool         `json:",omitempty"` // of a server of Mooring: answer when each event was committed, and forget it
	Publish  *publication `json:",omitempty"` // of a bare server: publish events, and answer when each was
	Follow   *following   `json:",omitempty"` // connect followers, and answer when all of them have seen an event
	Expect   *expectation `json:",omitempty"` // note when each event that is to come reaches each follower
	Await    bool         `json:",omitempty"` // answer when all that is expected has come
	Stop     bool         `json:",omitempty"` // have all followers read no more
	Left     bool         `json:",omitempty"` // answer how much of what is expected has not come
	Against  [][]int64    `json:",omitempty"` // answer how long after these times, of each topic's events, that was
	Usage    bool         `json:",omitempty"` // answer what has been used, after garbage has been collected
	Resident bool         `json:",omitempty"` // answer the memory that is held as it is
	Profile  string       `json:",omitempty"` // begin a CPU profile into this file
	Profiled bool         `json:",omitempty"` // end it
}

// reply is what came of a request.
type reply struct {
	Error   string    `json:",omitempty"`
	Address string    `json:",omitempty"` // where a server listens,
	Owner   string    `json:",omitempty"` // and the ref of its owner
	Times   [][]int64 `json:",omitempty"` // Unix ns, by topic and event
	Bytes   int64     `json:",omitempty"` // received by all followers since Expect
	Left    int64     `json:",omitempty"`
	Last    int64     `json:",omitempty"` // when the last event reached the last follower, Unix ns
	Delays  []int64   `json:",omitempty"` // p50, p99, p99.9 and the longest, ns
	Usage   usage
}

// usage is what a process has used: CPU so far, and the memory that it holds: with request.Usage after what is free has
// been given back, which nothing but this program asks for.
type usage struct {
	CPU time.Duration
	RSS int64
}

// child is what a child process is: a server or followers.
type child struct {
	server    server
	followers *followers
	profile   *os.File
}

// runChild does what it is asked for until its input ends.
func runChild(in io.Reader, out io.Writer) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go gctune.Run(ctx) // as the server and the command have it
	var c child
	requests, replies := json.NewDecoder(in), json.NewEncoder(out)
	for {
		var r request
		if err := requests.Decode(&r); err == io.EOF {
			return c.close()
		} else if err != nil {
			return errors.Join(err, c.close())
		}
		answer, err := c.do(ctx, &r)
		if err != nil {
			answer = reply{Error: err.Error()}
		}
		if err := replies.Encode(answer); err != nil {
			return errors.Join(err, c.close())
		}
	}
}

func (c *child) do(ctx context.Context, r *request) (a reply, err error) {
	if r.Serve != nil {
		if c.server, err = serve(ctx, r.Serve); err != nil {
			return a, err
		}
		a.Address, a.Owner = c.server.where()
	}
	if r.Commits {
		a.Times = c.server.(*mooringServer).takeCommits()
	}
	if r.Publish != nil {
		a.Times = c.server.(bareServer).publish(r.Publish)
	}
	if r.Follow != nil {
		if c.followers, err = follow(ctx, r.Follow); err != nil {
			return a, err
		}
	}
	if r.Expect != nil {
		c.followers.expect(r.Expect)
	}
	if r.Await {
		if a.Last, err = c.followers.await(ctx); err != nil {
			return a, err
		}
		a.Bytes = c.followers.received()
	}
	if r.Stop {
		c.followers.stop()
	}
	if r.Left {
		a.Left = c.followers.left.Load()
	}
	if r.Against != nil {
		a.Delays = c.followers.delays(r.Against)
	}
	if r.Profile != "" {
		if c.profile, err = os.Create(r.Profile); err != nil {
			return a, err
		}
		if err := pprof.StartCPUProfile(c.profile); err != nil {
			return a, err
		}
	}
	if r.Profiled {
		pprof.StopCPUProfile()
		if err := c.profile.Close(); err != nil {
			return a, err
		}
	}
	if r.Usage {
		if a.Usage.CPU, err = measure.CPU(os.Getpid()); err != nil {
			return a, err
		}
		runtime.GC()
		debug.FreeOSMemory()
		a.Usage.RSS, err = measure.RSS(os.Getpid())
	}
	if r.Resident {
		a.Usage.RSS, err = measure.RSS(os.Getpid())
	}
	return a, err
}

func (c *child) close() error {
	var err error
	if c.followers != nil {
		err = c.followers.close()
	}
	if c.server != nil {
		err = errors.Join(err, c.server.close())
	}
	return err
}

// process is a child, as the benchmark sees it.
type process struct{ *measure.Child }

// startProcess starts a child. It is killed when ctx ends.
func startProcess(ctx context.Context) (process, error) {
	program, err := os.Executable()
	if err != nil {
		return process{}, err
	}
	cmd := exec.CommandContext(ctx, program)
	cmd.Env = append(os.Environ(), envChild+"=1")
	child, err := measure.StartChild(cmd, cmd.Start)
	return process{child}, err
}

func (p process) ask(r request) (reply, error) {
	var answer reply
	err := p.Ask(r, &answer, 0)
	if err == nil && answer.Error != "" {
		err = errors.New(answer.Error)
	}
	return answer, err
}
